#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/torch_file.h>
#include <attentive/models/model_folder.h>

#include "support/errors.h"
#include "support/file_bytes.h"
#include "support/source_folder.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::value_error;
using attentive::test::write_bytes;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const std::filesystem::path kData = test::source_folder() + "/tests/models/data";

}  // namespace

TEST_CASE("a folder that Python wrote is read", "[model_folder]") {
  const auto gpt2 = read_model_folder(kData / "gpt2");
  CHECK(gpt2.family == "gpt2");
  CHECK(gpt2.config.at("n_embd").as<int64_t>() == 16);
  CHECK(gpt2.weights.size() == 2 + 2 * 12 + 2);
  CHECK(gpt2.weights.at("transformer.h.1.attn.c_attn.weight").sizes() == at::IntArrayRef({16, 48}));
  CHECK(gpt2.stop_tokens == std::vector<int64_t>{2});
  CHECK(gpt2.tokenizer.empty());
  const auto llama = read_model_folder(kData / "llama");  // in shards
  CHECK(llama.family == "llama");
  CHECK(llama.weights.size() == 2 * 9 + 3);
  CHECK(llama.stop_tokens == std::vector<int64_t>{2});
  const auto owned = read_model_folder(kData / "llama", {.map = false});
  for (const auto& [name, tensor] : owned.weights) CHECK(tensor.equal(llama.weights.at(name)));
  CHECK(read_model_folder(kData / "llama", {.weights = false}).weights.empty());
}

TEST_CASE("weights are looked for in Python's order", "[model_folder]") {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", R"({"model_type": "x", "eos_token_id": null})");
  CHECK_THAT(value_error([&] { read_model_folder(folder.path()); }),
             ContainsSubstring("expected weights, model.safetensors, model.safetensors.index.json, "
                               "pytorch_model.bin, pytorch_model.bin.index.json; got none"));
  save_torch(folder / "pytorch_model.bin", {{"module.a", at::tensor({1.0})}});
  CHECK(read_model_folder(folder.path()).weights.at("a").item<double>() == 1);
  save_safetensors(folder / "model.safetensors", {{"a", at::tensor({2.0})}});
  CHECK(read_model_folder(folder.path()).weights.at("a").item<double>() == 2);
}

TEST_CASE("tokens that end a text", "[model_folder]") {
  const TemporaryFolder folder;
  const auto stops = [&](const std::string& config, const std::string& generation) {
    write_bytes(folder / "config.json", R"({"model_type": "x")" + config + "}");
    write_bytes(folder / "generation_config.json", "{" + generation + "}");
    return read_model_folder(folder.path(), {.weights = false}).stop_tokens;
  };
  CHECK(stops("", "") == std::vector<int64_t>{});
  CHECK(stops(R"(, "eos_token_id": 3)", "") == std::vector<int64_t>{3});
  CHECK(stops(R"(, "eos_token_id": 3)", R"("eos_token_id": [5, 6])") == std::vector<int64_t>{5, 6});
  CHECK(stops(R"(, "eos_token_id": 3)", R"("eos_token_id": null)") == std::vector<int64_t>{});
  for (const auto* bad : {"-1", "1.5", "\"2\"", "[1, null]", "{}", "18446744073709551615"}) {
    INFO(bad);
    CHECK_THAT(value_error([&] { stops(R"(, "eos_token_id": )" + std::string(bad), ""); }),
               ContainsSubstring("config.json: field \"eos_token_id\": expected a token, a list of tokens or "
                                 "null"));
  }
}

TEST_CASE("a folder names the file of its tokenizer and that of its vocabulary", "[model_folder]") {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", R"({"model_type": "x"})");
  write_bytes(folder / "tokenizer.json", "{}");
  CHECK(read_model_folder(folder.path(), {.weights = false}).tokenizer == folder / "tokenizer.json");
  CHECK(read_model_folder(folder.path(), {.weights = false}).vocabulary.empty());
  // They are added from the last name to the first, which counts.
  for (const auto* name :
       {"sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    write_bytes(folder / name, "x");
    CHECK(read_model_folder(folder.path(), {.weights = false}).vocabulary == folder / name);
  }
}

TEST_CASE("folders that are no models are refused by name", "[model_folder][errors]") {
  const TemporaryFolder folder;
  const auto refusal = [&] { return value_error([&] { read_model_folder(folder.path()); }); };
  const auto path = folder.path().string();
  CHECK(refusal() == "read_model_folder: " + path + ": expected config.json, got none");
  CHECK(value_error([&] { read_model_folder(folder / "absent"); }) ==
        "read_model_folder: " + path + "/absent: expected a folder, got none");
  const auto config = folder / "config.json";
  const auto says = [&](const std::string& text, const std::string& reason) {
    write_bytes(config, text);
    CHECK(refusal() == "read_model_folder: " + config.string() + ": " + reason);
  };
  says("", "the file is not JSON");
  says("[1]", "expected an object, got a list");
  says("{\"a\": 1, \"a\": 2}", "the file holds \"a\" twice");
  says("{\"a\": \"\xff\"}", "the file is not UTF-8");
  says("{\"a\": " + std::string(40, '[') + std::string(40, ']') + "}", "the file nests too deep");
  says("{}", "field \"model_type\": expected a string, got none");
  says("{\"model_type\": 3}", "field \"model_type\": expected a string, got int");
  ::remove(config.c_str());
  REQUIRE(::mkfifo(config.c_str(), 0600) == 0);
  CHECK(refusal() == "read_model_folder: " + config.string() + ": not a regular file");
}
