#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/generate.h>
#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

GPTOptions small_gpt(int64_t vocab) {
  return GPTOptions(vocab, 8, 12, 3, 1).tied(true).dropout(0.1);
}

Checkpoint saved(const GPT& model, const Tokenizer& tokenizer) {
  return {4, state_dict(*model), {{"step", at::zeros({})}}, language_model_documents(model, tokenizer)};
}

}  // namespace

TEST_CASE("A language model comes back from its checkpoint and writes", "[language_model]") {
  const TemporaryFolder root;
  const auto tokenizer = CharTokenizer::train("banana bread");
  at::manual_seed(1);
  GPT model(small_gpt(tokenizer.vocab_size()));
  CheckpointFolder(root.path()).save(saved(model, tokenizer));
  auto language = load_language_model(root.path());
  CHECK(language.step == 4);
  CHECK_FALSE(language.model.module().is_training());
  model->eval();
  const auto ids = at::arange(5).unsqueeze(0);
  CHECK(bit_equal(language.model.forward(ids), model->forward(ids)));
  CHECK(language.tokenizer->decode(language.tokenizer->encode("bread")) == "bread");
}

TEST_CASE("load_language_model refuses a checkpoint that does not fit itself, by name", "[language_model]") {
  const auto tokenizer = CharTokenizer::train("banana bread");
  GPT model(small_gpt(tokenizer.vocab_size()));
  const auto refused = [&](const auto& change) {
    const TemporaryFolder root;
    auto checkpoint = saved(model, tokenizer);
    change(checkpoint);
    CheckpointFolder(root.path()).save(checkpoint);
    return value_error([&] { return load_language_model(root.path()).step; });
  };
  const auto has = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  for (const char* name : {"model.json", "tokenizer.json"}) {
    CHECK(has(refused([&](Checkpoint& c) { c.documents.erase(name); }), name));
  }
  // A missing key, an additional one, another shape, another dtype, another configuration.
  CHECK(has(refused([](Checkpoint& c) { c.model.erase("final_norm.scale"); }), "final_norm.scale"));
  CHECK(has(refused([](Checkpoint& c) { c.model["extra"] = at::zeros({1}); }), "extra"));
  CHECK(
      has(refused([](Checkpoint& c) { c.model["final_norm.scale"] = at::zeros({13}); }), "final_norm.scale"));
  CHECK(has(refused([](Checkpoint& c) { c.model["final_norm.scale"] = at::zeros({12}, at::kLong); }),
            "final_norm.scale"));
  CHECK(has(refused([&](Checkpoint& c) {
              auto other = model->options;
              c.documents["model.json"] = to_json(other.num_layers(2));
            }),
            "trf_blocks.1"));
  CHECK(has(refused([&](Checkpoint& c) {
              c.documents["tokenizer.json"] = BpeTokenizer::train("banana", 257).to_json();
            }),
            "expected a tokenizer of at most"));
  CHECK(has(refused([](Checkpoint& c) { c.documents["model.json"] = "[]"; }),
            "GPTOptions: expected a JSON object"));
  CHECK(has(refused([](Checkpoint& c) { c.documents["tokenizer.json"] = "{"; }), "okenizer"));
}

constexpr const char* kModelJson = R"({
 "bias": false,
 "context_length": 0,
 "dropout": 0.25,
 "emb_dim": 12,
 "init": "book",
 "num_heads": 3,
 "num_kv_heads": 1,
 "num_layers": 2,
 "positions": "rotary",
 "qkv_bias": false,
 "rotary_base": 500.0,
 "rotary_factor": 2.0,
 "rotary_pairing": "interleaved",
 "rotary_scaling": "ntk",
 "tied": false,
 "vocab_size": 7,
 "window": 5
}
)";

TEST_CASE("GPTOptions survive JSON and name what is wrong in it", "[language_model]") {
  const auto options = GPTOptions(7, 0, 12, 3, 2)
                           .positions(GPTPositions::Rotary)
                           .rotary(RotaryPositionsOptions(2).base(500).scaling(RotaryScaling::Ntk).factor(2))
                           .num_kv_heads(1)
                           .window(5)
                           .dropout(0.25)
                           .bias(false);
  CHECK(to_json(parse_gpt_options(to_json(options))) == to_json(options));
  CHECK(to_json(options) == kModelJson);  // the format of all checkpoints, also of earlier versions
  const auto scaled = GPTOptions(options).rotary(RotaryPositionsOptions(2)
                                                     .scaling(RotaryScaling::Llama3)
                                                     .factor(8)
                                                     .low_freq_factor(1.5)
                                                     .high_freq_factor(5)
                                                     .original_context(100));
  CHECK(to_json(parse_gpt_options(to_json(scaled))) == to_json(scaled));
  CHECK(parse_gpt_options(to_json(scaled)).rotary().original_context() == 100);
  CHECK(parse_gpt_options(kModelJson).rotary().original_context() == 8192);
  CHECK(parse_gpt_options(kModelJson).checkpoint() == 0);
  CHECK(parse_gpt_options(to_json(GPTOptions(options).checkpoint(2))).checkpoint() == 2);
  auto text = to_json(options);
  const auto change = [&](const std::string& from, const std::string& to) {
    auto changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    return changed.replace(changed.find(from), from.size(), to);
  };
  const auto refused = [](const std::string& json) {
    return value_error([&] { return parse_gpt_options(json).vocab_size(); });
  };
  CHECK(refused(change("\"vocab_size\"", "\"vocab\"")) == "GPTOptions: expected a member \"vocab_size\"");
  CHECK(refused(change("\"vocab_size\": 7", "\"vocab_size\": \"7\"")) ==
        "GPTOptions: expected \"vocab_size\" to be an integer, got \"7\"");
  CHECK(refused(change("\"rotary\"", "\"spiral\"")) ==
        "GPTOptions: expected a known \"positions\", got \"spiral\"");
}

TEST_CASE("LlamaOptions survive JSON and are told from GPTOptions", "[language_model]") {
  const auto plain = LlamaOptions(7, 12, 3, 2);
  const auto all = LlamaOptions(plain)
                       .windows({4, 0})
                       .scale(0.25)
                       .softcap(2.0)
                       .activation(Activation::GeluTanh)
                       .window_rotary(RotaryPositionsOptions(0).base(50).pairing(RotaryPairing::Halves));
  for (const auto& options : {plain, all}) {
    CHECK(to_json(parse_llama_options(to_json(options))) == to_json(options));
  }
  CHECK(to_json(plain) != to_json(all));
  CHECK(parse_llama_options(to_json(all)).window_rotary()->base() == 50);
  CHECK(parse_llama_options(to_json(all)).windows() == std::vector<int64_t>{4, 0});
  CHECK_FALSE(parse_llama_options(to_json(plain)).scale());
  CHECK(parse_llama_options(to_json(LlamaOptions(plain).checkpoint(2))).checkpoint() == 2);
  CHECK(to_json(plain).find("checkpoint") ==
        std::string::npos);  // a member that earlier versions do not know
  CHECK(parse_llama_options(to_json(plain)).checkpoint() == 0);
  CHECK(value_error([] { return parse_llama_options(kModelJson).vocab_size(); }) ==
        "LlamaOptions: expected a member \"model\" with the value \"Llama\"");
}

TEST_CASE("read_text and tokenize take any bytes and refuse none, by name", "[language_model]") {
  const TemporaryFolder root;
  const auto put = [&](const char* name, const std::string& bytes) {
    std::ofstream(root / name, std::ios::binary) << bytes;
    return root / name;
  };
  CHECK(value_error([&] { return read_text(root / "none"); }) ==
        "read_text: cannot open " + (root / "none").string() + ": No such file or directory");
  CHECK(value_error([&] { return read_text(put("empty", "")); }) ==
        "read_text: " + (root / "empty").string() + ": expected a text, got an empty file");
  CHECK(value_error([&] { return read_text(root.path()); }) ==
        "read_text: not a regular file: " + root.path().string() + ": Is a directory");
  // NULs, a truncated UTF-8 character, and a byte that never occurs in UTF-8.
  const std::string odd("a\0b\xe2\x82 \xff\xff\0", 9);
  const auto text = read_text(put("odd", odd));
  CHECK(text == odd);
  const auto tokenizer = CharTokenizer::train(text);
  const auto tokens = tokenize(text, tokenizer, 0.5);
  CHECK(tokens.training.size(0) + tokens.validation.size(0) ==
        static_cast<int64_t>(tokenizer.encode(odd).size()));
  CHECK(tokenizer.decode(tokenizer.encode(odd)) == odd);
  CHECK(value_error([&] { return tokenize(text, tokenizer, 0).training; }) ==
        "tokenize: expected training_share in (0, 1], got 0");
}
