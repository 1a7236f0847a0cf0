#include <cstring>
#include <fstream>
#include <limits>

#include <ATen/ops/from_blob.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/token_file.h>

#include "base/files.h"
#include "base/refusal.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"
#include "train/sha256.h"
#include "train/token_file_header.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::error_of;
using attentive::test::value_error;
using Path = std::filesystem::path;

namespace {

const std::string kVerse = "To be, or not to be:\r\nthat is the question \u2014\n\nwhether 't is nobler\n";

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

Path put(const TemporaryFolder& folder, const std::string& name, const std::string& bytes) {
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

std::string message_of(const std::function<void()>& call) {
  return error_of<TokenFileError>(call);
}

// Each byte is a token. `shift` makes invalid ids.
struct ByteTokenizer final : Tokenizer {
  explicit ByteTokenizer(int64_t added = 0) : shift(added) {}
  int64_t vocab_size() const override { return 256; }
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids(text.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]) + shift;
    return ids;
  }
  std::string_view bytes(int64_t) const override { return {}; }
  std::string to_json() const override { return "bytes"; }
  int64_t shift;
};

at::Tensor as_tokens(const std::vector<int64_t>& ids) {
  return at::from_blob(const_cast<int64_t*>(ids.data()), {static_cast<int64_t>(ids.size())}, at::kLong)
      .to(at::kInt);
}

void check_equal(const MappedTokens& mapped, const TokenizedText& expected) {
  CHECK(bit_equal(mapped.training, expected.training));
  CHECK(bit_equal(mapped.validation, expected.validation));
  CHECK(mapped.info.training == expected.training.size(0));
  CHECK(mapped.info.validation == expected.validation.size(0));
}

}  // namespace

TEST_CASE("A token file holds the ids that tokenize gives", "[token_file]") {
  const TemporaryFolder folder;
  for (const std::string& text :
       {kVerse, std::string("x"), std::string("\xff\0\x80", 3), repeated(kVerse, 400)}) {
    const auto path = put(folder, "text", text);
    const auto chars = CharTokenizer::train(text);
    const auto pairs = BpeTokenizer::train(text, 300);
    for (const Tokenizer* tokenizer :
         {static_cast<const Tokenizer*>(&chars), static_cast<const Tokenizer*>(&pairs)}) {
      for (const double share : {0.9, 0.5, 1.0}) {
        write_token_file(folder / "tokens", path, *tokenizer, {.training_share = share});
        const auto mapped = map_token_file(folder / "tokens");
        check_equal(mapped, tokenize(text, *tokenizer, share));
        CHECK(mapped.info.text_bytes == text.size());
        CHECK(mapped.info.text_sha256 == sha256(text));
        CHECK(mapped.info.tokenizer_sha256 == sha256(tokenizer->to_json()));
        CHECK(mapped.info.vocab_size == tokenizer->vocab_size());
        CHECK(mapped.info.training_share == share);
        CHECK(mapped.info.piece_bytes == size_t{16} << 20);
        CHECK(token_file_mismatch(folder / "tokens", path, *tokenizer, {.training_share = share}) ==
              std::nullopt);
      }
    }
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"text", "tokens"});
}

TEST_CASE("A token file is a page and the ids as int32", "[token_file]") {
  const TemporaryFolder folder;
  write_token_file(folder / "tokens", put(folder, "text", "hello"), ByteTokenizer(), {.training_share = 0.6});
  const auto bytes = read_file(folder / "tokens");
  REQUIRE(bytes.size() == 4096 + 5 * 4);
  CHECK(bytes.starts_with("attntok\n"));
  const int32_t expected[] = {'h', 'e', 'l', 'l', 'o'};
  CHECK(std::memcmp(bytes.data() + 4096, expected, sizeof(expected)) == 0);
  CHECK(read_token_file_info(folder / "tokens").training == 3);
}

TEST_CASE("A long text is encoded piece by piece", "[token_file]") {
  const TemporaryFolder folder;
  const auto text = repeated(kVerse, 9) + repeated("\U0001f600abc", 30) + repeated(kVerse, 3);
  const auto path = put(folder, "text", text);
  const auto chars = CharTokenizer::train(text);
  const auto pairs = BpeTokenizer::train(text, 400);
  for (const size_t piece : {4U, 5U, 31U, 100U, 700U}) {
    for (const Tokenizer* tokenizer :
         {static_cast<const Tokenizer*>(&chars), static_cast<const Tokenizer*>(&pairs)}) {
      std::vector<int64_t> ids;
      TextPieces pieces(path, piece);
      size_t count = 0, calls = 0;
      for (auto part = pieces.next(); !part.empty(); part = pieces.next(), ++count) {
        const auto more = tokenizer->encode_whole(part);
        ids.insert(ids.end(), more.begin(), more.end());
      }
      write_token_file(folder / "tokens", path, *tokenizer,
                       {.training_share = 0.8, .piece_bytes = piece, .on_piece = [&] { ++calls; }});
      CHECK(calls == count);
      const auto mapped = map_token_file(folder / "tokens");
      const auto all = as_tokens(ids);
      const auto training = static_cast<int64_t>(0.8 * static_cast<double>(ids.size()));
      check_equal(mapped, {all.narrow(0, 0, training), all.narrow(0, training, all.size(0) - training)});
      CHECK(mapped.info.text_sha256 == sha256(text));
      CHECK(mapped.info.piece_bytes == piece);
    }
  }
}

TEST_CASE("A token file with any changed byte of its header is refused", "[token_file]") {
  const TemporaryFolder folder;
  write_token_file(folder / "tokens", put(folder, "text", kVerse), ByteTokenizer());
  const auto good = read_file(folder / "tokens");
  const auto path = folder / "damaged";
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto message = message_of([&] { map_token_file(path); });
    CHECK(message_of([&] { read_token_file_info(path); }).starts_with("read_token_file_info: "));
    CHECK(message.starts_with("map_token_file: " + path.string() + ": "));
    return message.substr(("map_token_file: " + path.string() + ": ").size());
  };
  for (size_t offset = 0; offset < kTokenFileHeader; ++offset) {
    auto bytes = good;
    bytes[offset] = static_cast<char>(bytes[offset] ^ (1 << offset % 8));
    const auto reason = refused(bytes);
    const auto expected = offset < 8    ? std::string("expected a token file, got another file")
                          : offset < 16 ? std::string("expected format 1, got ")
                                        : std::string("damaged: the SHA-256 of its header differs");
    if (!reason.starts_with(expected)) FAIL(offset << ": " << reason);
  }
  for (size_t size = 0; size < good.size(); size += size < 200 || size + 600 > good.size() ? 1 : 37) {
    const auto reason = refused(good.substr(0, size));
    const auto expected = size < 8 ? std::string("expected a token file, got another file")
                          : size < kTokenFileHeader
                              ? fmt::format("expected a header of 4096 bytes, got {}", size)
                              : fmt::format("damaged: expected {} bytes, got {}", good.size(), size);
    if (reason != expected) FAIL(size << ": " << reason);
  }
  CHECK(refused(good + "x") ==
        fmt::format("damaged: expected {} bytes, got {}", good.size(), good.size() + 1));
  CHECK(refused("") == "expected a token file, got another file");
  CHECK(message_of([&] { map_token_file(folder / "none"); }) ==
        "map_token_file: " + (folder / "none").string() + ": cannot open it: No such file or directory");
  CHECK(message_of([&] { map_token_file(folder.path()); }) ==
        "map_token_file: " + folder.path().string() + ": not a regular file");
}

TEST_CASE("A header that was made by hand is checked, too", "[token_file]") {
  TokenFileInfo info{.training = 7, .validation = 1, .text_bytes = 8, .text_sha256 = "t"};
  CHECK(parse_token_file_header(make_token_file_header(info)).validation == 1);
  info.training = -1;
  CHECK_THROWS_AS(parse_token_file_header(make_token_file_header(info)), Refusal);
  info.training = std::numeric_limits<int64_t>::max() / 2;
  CHECK_THROWS_AS(parse_token_file_header(make_token_file_header(info)), Refusal);
  // A header with its own digest, but without its members.
  auto header = make_token_file_header({});
  header.replace(96, 8, "{      }");
  header.replace(104, 3900, 3900, ' ');
  const auto digest = sha256(header.substr(0, 16) + header.substr(80));
  CHECK_THROWS_AS(parse_token_file_header(header.replace(16, 64, digest)), Refusal);
}

TEST_CASE("A token file of another text or tokenizer is noticed", "[token_file]") {
  const TemporaryFolder folder;
  const auto text = put(folder, "text", kVerse);
  const auto tokenizer = CharTokenizer::train(kVerse);
  const auto file = folder / "tokens";
  write_token_file(file, text, tokenizer, {.piece_bytes = 16});
  size_t pieces = 0;
  const TokenFileOptions counting{.piece_bytes = 32, .on_piece = [&] { ++pieces; }};
  CHECK(token_file_mismatch(file, text, tokenizer, counting) == std::nullopt);
  CHECK(pieces > 2);
  // The text itself is read last.
  pieces = 0;
  CHECK(token_file_mismatch(file, put(folder, "longer", kVerse + "!"), tokenizer, counting) ==
        fmt::format("it holds the tokens of a text of {} bytes, and this one has {}", kVerse.size(),
                    kVerse.size() + 1));
  CHECK(token_file_mismatch(file, text, CharTokenizer::train(kVerse + "!"), counting) ==
        fmt::format("it was made by another tokenizer, of {} tokens", tokenizer.vocab_size()));
  CHECK(token_file_mismatch(file, text, tokenizer, {.training_share = 0.5}) ==
        "its training share is 0.9, not 0.5");
  CHECK(pieces == 0);
  for (const size_t offset : {size_t{0}, kVerse.size() / 2, kVerse.size() - 1}) {
    auto changed = kVerse;
    changed[offset] ^= 1;
    CHECK(token_file_mismatch(file, put(folder, "changed", changed), tokenizer) ==
          "it holds the tokens of another text of the same size: the SHA-256 differs");
  }
  CHECK(message_of([&] { token_file_mismatch(file, folder / "none", tokenizer); }) ==
        "token_file_mismatch: " + (folder / "none").string() + ": cannot open it: No such file or directory");
  CHECK(message_of([&] { token_file_mismatch(text, text, tokenizer); }) ==
        "token_file_mismatch: " + text.string() + ": expected a token file, got another file");
}

TEST_CASE("write_token_file writes the whole file or nothing", "[token_file]") {
  const TemporaryFolder folder;
  const auto text = put(folder, "text", repeated(kVerse, 10));
  const auto file = folder / "tokens";
  write_token_file(file, text, ByteTokenizer());
  const auto before = read_file(file);
  const auto refused = [&](const std::function<void()>& call) {
    const auto message = message_of(call);
    CHECK(read_file(file) == before);
    for (const auto& name : names_in(folder.path())) CHECK(!name.starts_with(".attentive-"));
    return message;
  };
  const auto prefix = "write_token_file: " + text.string() + ": ";
  // A piece in the middle fails.
  size_t left = 3;
  struct Stop {};
  CHECK_THROWS_AS(write_token_file(file, text, ByteTokenizer(),
                                   {.piece_bytes = 50,
                                    .on_piece =
                                        [&] {
                                          if (--left == 0) throw Stop();
                                        }}),
                  Stop);
  CHECK(left == 0);
  CHECK(refused([] {}) == "no error");
  const auto chars = CharTokenizer::train("abc");
  CHECK(refused([&] {
          write_token_file(file, put(folder, "odd", "abc\ncab\nab!\n"), chars, {.piece_bytes = 6});
        }) == "write_token_file: " + (folder / "odd").string() +
                  ": bytes 0 to 4: CharTokenizer: expected characters of its vocabulary of 3, got byte 0x0a "
                  "at byte 3");
  const auto with_ends = CharTokenizer::train("abc\n");
  CHECK(
      refused([&] { write_token_file(file, folder / "odd", with_ends, {.piece_bytes = 6}); }) ==
      "write_token_file: " + (folder / "odd").string() +
          ": bytes 8 to 12: CharTokenizer: expected characters of its vocabulary of 4, got \"!\" at byte 2");
  CHECK(refused([&] { write_token_file(file, text, ByteTokenizer(200)); }) ==
        prefix + fmt::format("bytes 0 to {}: expected ids in [0, 256) from the tokenizer, got 284",
                             10 * kVerse.size()));
  CHECK(refused([&] { write_token_file(file, text, ByteTokenizer(-100)); }).ends_with("got -16"));
  CHECK(refused([&] { write_token_file(file, folder / "none", ByteTokenizer()); }) ==
        "write_token_file: " + (folder / "none").string() + ": cannot open it: No such file or directory");
  CHECK(refused([&] { write_token_file(file, put(folder, "empty", ""), ByteTokenizer()); }) ==
        "write_token_file: " + (folder / "empty").string() + ": expected a text, got an empty file");
  CHECK(refused([&] {
          write_token_file(folder / "none/tokens", text, ByteTokenizer());
        }).starts_with("write_token_file: " + (folder / "none/tokens").string() + ": "));
  CHECK(refused([&] { write_token_file(text, text, ByteTokenizer()); }) ==
        prefix + "expected another file than the text");
  CHECK(read_file(text) == repeated(kVerse, 10));
  CHECK(value_error([&] { write_token_file(file, text, ByteTokenizer(), {.training_share = 0}); }) ==
        "write_token_file: expected training_share in (0, 1], got 0");
  CHECK(value_error([&] { write_token_file(file, text, ByteTokenizer(), {.piece_bytes = 3}); }) ==
        "write_token_file: expected piece_bytes of at least 4, got 3");
  CHECK(read_file(file) == before);
}

TEST_CASE("Mapped tokens outlive their file and leave it unchanged", "[token_file]") {
  const TemporaryFolder folder;
  const auto text = put(folder, "text", kVerse);
  const auto file = folder / "tokens";
  write_token_file(file, text, ByteTokenizer());
  const auto before = read_file(file);
  auto mapped = map_token_file(file);
  const auto training = mapped.training.clone();
  mapped.training[0] = 1;
  CHECK(read_file(file) == before);
  CHECK(bit_equal(map_token_file(file).training, training));
  auto other = map_token_file(file).validation;
  const auto expected = other.clone();
  write_token_file(file, put(folder, "short", "x"), ByteTokenizer());
  CHECK(bit_equal(other, expected));
  std::filesystem::remove(file);
  CHECK(bit_equal(other, expected));
}

TEST_CASE("A MappedText is the bytes of its file", "[token_file]") {
  const TemporaryFolder folder;
  const auto text = std::string("\0\xff", 2) + repeated(kVerse, 300);
  const MappedText mapped(put(folder, "text", text));
  CHECK(mapped.view() == text);
  CHECK(BpeTokenizer::train(mapped.view(), 300).to_json() == BpeTokenizer::train(text, 300).to_json());
  CHECK(CharTokenizer::train(mapped.view()).to_json() == CharTokenizer::train(text).to_json());
  CHECK(value_error([&] { MappedText(folder / "none"); }) ==
        "MappedText: " + (folder / "none").string() + ": cannot open it: No such file or directory");
  CHECK(value_error([&] { MappedText(put(folder, "empty", "")); }) ==
        "MappedText: " + (folder / "empty").string() + ": expected a text, got an empty file");
}

TEST_CASE("Memory of a token file: one piece to write it, its own pages to train on it", "[token_file]") {
  if (const auto reason = test::why_no_peak_memory()) SKIP(*reason);
  constexpr size_t kMiB = 1 << 20;
  const TemporaryFolder folder;
  std::string text(16 * kMiB, '\n');
  for (size_t i = 0; i < text.size(); ++i) {
    if (i % 50 != 0) text[i] = static_cast<char>(i % 7);
  }
  const auto path = put(folder, "text", text);
  text = {};
  // All ids take 128 MiB as int64, those of a piece 8.
  const auto writing = test::peak_memory(
      [&] { write_token_file(folder / "tokens", path, ByteTokenizer(), {.piece_bytes = kMiB}); });
  CHECK(writing < 16 * kMiB);
  const auto comparing = test::peak_memory(
      [&] { (void)token_file_mismatch(folder / "tokens", path, ByteTokenizer(), {.piece_bytes = kMiB}); });
  CHECK(comparing < 8 * kMiB);
  // Mapping reads nothing; the trainer reads all 64 MiB once, for their digest, and copies none of it.
  const auto mapping = test::peak_memory([&] { (void)map_token_file(folder / "tokens"); });
  CHECK(mapping < kMiB);
  const auto training = test::peak_memory([&] {
    const auto tokens = map_token_file(folder / "tokens");
    const auto model = test::make_bigram(11);
    Trainer trainer(model, test::loss_of(model), tokens.training, tokens.validation.narrow(0, 0, 1000),
                    test::small());
    trainer.step();
    trainer.validate();
  });
  CHECK(training > 50 * kMiB);
  CHECK(training < 80 * kMiB);
}

TEST_CASE("Training on mapped tokens has the bits of training in memory, and resumes it", "[token_file]") {
  const TemporaryFolder folder;
  std::string text;
  for (int64_t i = 0; i < 5000; ++i) text += static_cast<char>(i * i % 7);
  const auto path = put(folder, "text", text);
  write_token_file(folder / "tokens", path, ByteTokenizer(), {.piece_bytes = 1000});
  const auto in_memory = tokenize(text, ByteTokenizer());
  const auto mapped = map_token_file(folder / "tokens");
  const auto trainer_on = [](const std::shared_ptr<test::Bigram>& model, const at::Tensor& training,
                             const at::Tensor& validation) {
    return std::make_unique<Trainer>(model, test::loss_of(model), training, validation, test::small());
  };
  std::vector<Checkpoint> ends;
  std::vector<std::vector<double>> losses;
  const std::vector<std::pair<at::Tensor, at::Tensor>> texts{
      {in_memory.training, in_memory.validation},
      {mapped.training, mapped.validation},
      {in_memory.training.to(at::kLong), in_memory.validation.to(at::kShort)}};
  for (size_t first = 0; first < texts.size(); ++first) {
    for (size_t second = 0; second < texts.size(); ++second) {
      auto& seen = losses.emplace_back();
      const auto run = [&](Trainer& trainer, int steps) {
        for (int i = 0; i < steps; ++i) seen.push_back(trainer.step().loss);
        seen.push_back(trainer.validate().value());
      };
      auto model = test::make_bigram();
      auto trainer = trainer_on(model, texts[first].first, texts[first].second);
      run(*trainer, 4);
      const auto middle = test::copy_of(trainer->checkpoint());
      model = test::make_bigram();
      trainer = trainer_on(model, texts[second].first, texts[second].second);
      CHECK(trainer->restore(middle).empty());
      run(*trainer, 4);
      ends.push_back(test::copy_of(trainer->checkpoint()));
    }
  }
  for (size_t i = 1; i < ends.size(); ++i) {
    CHECK(test::equal(ends[i], ends[0]));
    CHECK(losses[i] == losses[0]);
  }
}
