#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/train/token_file.h>

#include "base/files.h"
#include "base/refusal.h"
#include "files/mapped_file.h"
#include "train/sha256.h"
#include "train/token_file_header.h"

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace attentive {
namespace {

constexpr std::string_view kMagic = "attntok\n";
constexpr uint64_t kTokenFileFormat = 1;
constexpr size_t kFormatAt = 8, kDigestAt = 16, kTrainingAt = 80, kValidationAt = 88, kJsonAt = 96;
constexpr uint64_t kMostTokens = std::numeric_limits<int64_t>::max() / 16;

void put(std::string& header, size_t offset, uint64_t number) {
  std::memcpy(header.data() + offset, &number, sizeof(number));
}

uint64_t number_at(std::string_view header, size_t offset) {
  uint64_t number = 0;
  std::memcpy(&number, header.data() + offset, sizeof(number));
  return number;
}

std::string digest_of(std::string_view header) {
  Sha256 sum;
  sum.add(header.substr(0, kDigestAt));
  sum.add(header.substr(kTrainingAt));
  return sum.digest();
}

int64_t tokens_at(std::string_view header, size_t offset) {
  const auto count = number_at(header, offset);
  if (count > kMostTokens) refuse("damaged: it cannot hold {} tokens", count);
  return static_cast<int64_t>(count);
}

}  // namespace

std::string make_token_file_header(const TokenFileInfo& info) {
  const nlohmann::json json{{"text_bytes", info.text_bytes},
                            {"text_sha256", info.text_sha256},
                            {"tokenizer_sha256", info.tokenizer_sha256},
                            {"vocab_size", info.vocab_size},
                            {"training_share", info.training_share},
                            {"piece_bytes", info.piece_bytes}};
  std::string header(kTokenFileHeader, ' ');
  header.replace(0, kMagic.size(), kMagic);
  put(header, kFormatAt, kTokenFileFormat);
  put(header, kTrainingAt, static_cast<uint64_t>(info.training));
  put(header, kValidationAt, static_cast<uint64_t>(info.validation));
  const auto text = json.dump();
  header.replace(kJsonAt, text.size(), text);
  const auto digest = digest_of(header);
  return header.replace(kDigestAt, digest.size(), digest);
}

TokenFileInfo parse_token_file_header(std::string_view header) {
  if (!header.starts_with(kMagic)) refuse("expected a token file, got another file");
  if (header.size() < kTokenFileHeader) {
    refuse("expected a header of {} bytes, got {}", kTokenFileHeader, header.size());
  }
  if (const auto format = number_at(header, kFormatAt); format != kTokenFileFormat) {
    refuse("expected format {}, got {}", kTokenFileFormat, format);
  }
  if (header.substr(kDigestAt, kTrainingAt - kDigestAt) != digest_of(header)) {
    refuse("damaged: the SHA-256 of its header differs");
  }
  TokenFileInfo info{.training = tokens_at(header, kTrainingAt),
                     .validation = tokens_at(header, kValidationAt)};
  try {
    const auto json = nlohmann::json::parse(header.substr(kJsonAt));
    json.at("text_bytes").get_to(info.text_bytes);
    json.at("text_sha256").get_to(info.text_sha256);
    json.at("tokenizer_sha256").get_to(info.tokenizer_sha256);
    json.at("vocab_size").get_to(info.vocab_size);
    json.at("training_share").get_to(info.training_share);
    json.at("piece_bytes").get_to(info.piece_bytes);
  } catch (const nlohmann::json::exception& error) {
    refuse("damaged: {}", error.what());
  }
  return info;
}

MappedText::MappedText(const std::filesystem::path& path) {
  try {
    const ByteSource file(path);
    if (file.size() == 0) refuse("expected a text, got an empty file");
    mapping_ = std::make_unique<MappedFile>(file.descriptor(), file.size());
    text_ = {mapping_->data(), static_cast<size_t>(file.size())};
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, "MappedText: ", path.string(), ": ", refusal.what());
  }
}

MappedText::~MappedText() = default;

namespace {

constexpr const char* kWrite = "write_token_file";
constexpr const char* kMap = "map_token_file";
constexpr const char* kInfo = "read_token_file_info";
constexpr const char* kMismatch = "token_file_mismatch";
constexpr size_t kSmallestPiece = 4;  // the longest UTF-8 character

[[noreturn]] void fail_token_file(const char* caller, const std::filesystem::path& path,
                                  const std::string& reason) {
  throw TokenFileError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                       fmt::format("{}: {}: {}", caller, path.string(), reason));
}

// Calls `work`, which reads or writes the file at `path`.
template <class Work>
auto reporting_file(const char* caller, const std::filesystem::path& path, Work work) {
  try {
    return work();
  } catch (const Refusal& refusal) {
    fail_token_file(caller, path, refusal.what());
  } catch (const std::system_error& error) {
    fail_token_file(caller, path, error.what());
  }
}

void check_token_file_options(const char* caller, const TokenFileOptions& options) {
  TORCH_CHECK_VALUE(options.training_share > 0 && options.training_share <= 1, caller,
                    ": expected training_share in (0, 1], got ", options.training_share);
  TORCH_CHECK_VALUE(options.piece_bytes >= kSmallestPiece, caller, ": expected piece_bytes of at least ",
                    kSmallestPiece, ", got ", options.piece_bytes);
}

std::vector<int64_t> encode_piece(const Tokenizer& tokenizer, const TextPieces& pieces,
                                  std::string_view piece) {
  const auto place = [&] {
    return fmt::format("bytes {} to {}", pieces.begin(), pieces.begin() + piece.size());
  };
  std::vector<int64_t> ids;
  try {
    ids = tokenizer.encode_whole(piece);
  } catch (const c10::ValueError& error) {
    refuse("{}: {}", place(), error.what_without_backtrace());
  }
  const auto vocab_size = tokenizer.vocab_size();
  const auto bad = std::ranges::find_if(ids, [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (bad != ids.end()) {
    refuse("{}: expected ids in [0, {}) from the tokenizer, got {}", place(), vocab_size, *bad);
  }
  return ids;
}

// Writes ids in parts, so that no second copy of a piece's ids exists.
void write_ids(AtomicFile& file, const std::vector<int64_t>& ids) {
  std::array<int32_t, size_t{1} << 14> part;
  for (size_t offset = 0; offset < ids.size(); offset += part.size()) {
    const auto count = std::min(part.size(), ids.size() - offset);
    for (size_t i = 0; i < count; ++i) part[i] = static_cast<int32_t>(ids[offset + i]);
    file.write(part.data(), count * sizeof(int32_t));
  }
}

uint64_t file_size_of(const TokenFileInfo& info) {
  return kTokenFileHeader + sizeof(int32_t) * static_cast<uint64_t>(info.training + info.validation);
}

TokenFileInfo read_info(const ByteSource& file) {
  std::string header(static_cast<size_t>(std::min<uint64_t>(file.size(), kTokenFileHeader)), '\0');
  file.read(0, header.data(), header.size());
  auto info = parse_token_file_header(header);
  if (const auto size = file_size_of(info); size != file.size()) {
    refuse("damaged: expected {} bytes, got {}", size, file.size());
  }
  return info;
}

std::string sha256_of(const char* caller, const std::filesystem::path& text,
                      const TokenFileOptions& options) {
  const auto reading = [&](auto work) { return reporting_file(caller, text, work); };
  auto pieces = reading([&] { return TextPieces(text, options.piece_bytes); });
  Sha256 sum;
  while (true) {
    const auto piece = reading([&] { return pieces.next(); });
    if (piece.empty()) return sum.digest();
    sum.add(piece);
    if (options.on_piece) options.on_piece();
  }
}

}  // namespace

void write_token_file(const std::filesystem::path& file, const std::filesystem::path& text,
                      const Tokenizer& tokenizer, const TokenFileOptions& options) {
  check_token_file_options(kWrite, options);
  TORCH_CHECK_VALUE(tokenizer.vocab_size() <= std::numeric_limits<int32_t>::max(), kWrite,
                    ": expected a tokenizer of fewer than 2^31 tokens, got ", tokenizer.vocab_size());
  const auto reading = [&](auto work) { return reporting_file(kWrite, text, work); };
  const auto writing = [&](auto work) { return reporting_file(kWrite, file, work); };
  auto pieces = reading([&] { return TextPieces(text, options.piece_bytes); });
  std::error_code none;  // the file need not exist
  if (std::filesystem::equivalent(file, text, none)) {
    fail_token_file(kWrite, file, "expected another file than the text");
  }
  TokenFileInfo info{.text_bytes = pieces.size(),
                     .tokenizer_sha256 = sha256(tokenizer.to_json()),
                     .vocab_size = tokenizer.vocab_size(),
                     .training_share = options.training_share,
                     .piece_bytes = options.piece_bytes};
  auto out = writing([&] { return AtomicFile(file); });
  writing([&] { out.write(std::string(kTokenFileHeader, '\0').data(), kTokenFileHeader); });
  Sha256 sum;
  size_t count = 0;
  while (true) {
    const auto piece = reading([&] { return pieces.next(); });
    if (piece.empty()) break;
    sum.add(piece);
    const auto ids = reading([&] { return encode_piece(tokenizer, pieces, piece); });
    writing([&] { write_ids(out, ids); });
    count += ids.size();
    if (options.on_piece) options.on_piece();
  }
  info.text_sha256 = sum.digest();
  info.training = static_cast<int64_t>(options.training_share * static_cast<double>(count));
  info.validation = static_cast<int64_t>(count) - info.training;
  const auto header = make_token_file_header(info);
  writing([&] {
    out.overwrite(0, header.data(), header.size());
    out.commit();
  });
}

MappedTokens map_token_file(const std::filesystem::path& file) {
  return reporting_file(kMap, file, [&] {
    const ByteSource source(file);
    auto info = read_info(source);
    const auto mapping = std::make_shared<MappedFile>(source.descriptor(), source.size());
    const auto tokens = [&](int64_t begin, int64_t count) {
      const auto offset = kTokenFileHeader + sizeof(int32_t) * static_cast<uint64_t>(begin);
      return count > 0 ? mapped_tensor(mapping, offset, {count}, at::kInt) : at::empty({0}, at::kInt);
    };
    return MappedTokens{tokens(0, info.training), tokens(info.training, info.validation), info};
  });
}

TokenFileInfo read_token_file_info(const std::filesystem::path& file) {
  return reporting_file(kInfo, file, [&] { return read_info(ByteSource(file)); });
}

std::optional<std::string> token_file_mismatch(const std::filesystem::path& file,
                                               const std::filesystem::path& text, const Tokenizer& tokenizer,
                                               const TokenFileOptions& options) {
  check_token_file_options(kMismatch, options);
  const auto info = reporting_file(kMismatch, file, [&] { return read_info(ByteSource(file)); });
  const auto bytes = reporting_file(kMismatch, text, [&] { return ByteSource(text).size(); });
  if (info.text_bytes != bytes) {
    return fmt::format("it holds the tokens of a text of {} bytes, and this one has {}", info.text_bytes,
                       bytes);
  }
  if (info.training_share != options.training_share) {
    return fmt::format("its training share is {}, not {}", info.training_share, options.training_share);
  }
  if (info.tokenizer_sha256 != sha256(tokenizer.to_json())) {
    return fmt::format("it was made by another tokenizer, of {} tokens", info.vocab_size);
  }
  if (info.text_sha256 != sha256_of(kMismatch, text, options)) {
    return "it holds the tokens of another text of the same size: the SHA-256 differs";
  }
  return std::nullopt;
}

}  // namespace attentive
