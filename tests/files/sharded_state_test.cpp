#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>

#include "support/errors.h"
#include "support/files.h"

using namespace attentive;
using attentive::test::value_error;
using attentive::test::write_bytes;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const StateDict kFirst = {{"a", at::arange(3)}, {"b", at::ones({2})}};
const StateDict kSecond = {{"c", at::arange(5)}};

json index_of(const std::string& first, const std::string& second) {
  return {{"metadata", {{"total_size", 72}, {"note", "x"}}},
          {"weight_map", {{"a", first}, {"b", first}, {"c", second}}}};
}

// A folder of two shards and their index.
class Shards {
 public:
  explicit Shards(bool safetensors) : safetensors_(safetensors) {
    save(first, kFirst);
    save(second, kSecond);
    write_index(index_of(first, second).dump());
  }
  void save(const std::string& name, const StateDict& state) const {
    safetensors_ ? save_safetensors(folder / name, state) : save_torch(folder / name, state);
  }
  std::filesystem::path index() const {
    return folder / (safetensors_ ? "model.safetensors.index.json" : "pytorch_model.bin.index.json");
  }
  void write_index(const std::string& text) const { write_bytes(index(), text); }

  TemporaryFolder folder;
  std::string first = "part-00001-of-00002";
  std::string second = "part-00002-of-00002";

 private:
  bool safetensors_;
};

std::string refusal_of_shards(const Shards& shards) {
  return value_error([&] { read_state_dict(shards.index()); });
}

}  // namespace

TEST_CASE("shards are read by their index, or by their folder", "[sharded_state]") {
  for (const bool safetensors : {false, true}) {
    const Shards shards(safetensors);
    for (const auto& path : {shards.index(), shards.folder.path()}) {
      const auto file = read_state_dict_file(path, {.file = {.map = path == shards.index()}});
      CHECK(file.state.size() == 3);
      for (const auto& part : {kFirst, kSecond}) {
        for (const auto& [key, tensor] : part) CHECK(file.state.at(key).equal(tensor));
      }
      CHECK(file.values.at("metadata").at("total_size").as<int64_t>() == 72);
      CHECK(file.values.at("metadata").at("note").as<std::string>() == "x");
    }
  }
}

TEST_CASE("a folder holds one state dict", "[sharded_state][errors]") {
  const Shards shards(true);
  shards.save("model.safetensors", kFirst);
  CHECK_THAT(value_error([&] { read_state_dict(shards.folder.path()); }),
             ContainsSubstring("holds model.safetensors, model.safetensors.index.json: name one of them"));
  CHECK(read_state_dict(shards.folder / "model.safetensors").size() == 2);
  const TemporaryFolder single;
  save_torch(single / "pytorch_model.bin", kSecond);
  CHECK(read_state_dict(single.path()).at("c").equal(kSecond.at("c")));
}

TEST_CASE("a shard has a plain name", "[sharded_state][errors]") {
  const Shards shards(true);
  for (const std::string name : {"../part", "/etc/passwd", "a/b", "..", ".", "", "a\\b"}) {
    INFO(name);
    shards.write_index(index_of(shards.first, name).dump());
    CHECK_THAT(refusal_of_shards(shards), ContainsSubstring(" of \"c\" is not the plain name of a file"));
  }
  shards.write_index(index_of(shards.first, std::string("a\0b", 3)).dump());
  CHECK_THAT(refusal_of_shards(shards), ContainsSubstring("is not the plain name of a file"));
}

TEST_CASE("a shard that is missing or damaged is named", "[sharded_state][errors]") {
  const Shards shards(false);
  write_bytes(shards.folder / shards.second, "PK\3\4 and no more");
  CHECK_THAT(refusal_of_shards(shards), ContainsSubstring((shards.folder / shards.second).string()));
  shards.write_index(index_of(shards.first, "part-3").dump());
  CHECK_THAT(refusal_of_shards(shards),
             ContainsSubstring((shards.folder / "part-3").string() + ": cannot open it"));
}

TEST_CASE("every tensor is in the shard that the index lists it in", "[sharded_state][errors]") {
  const Shards shards(true);
  const auto names = [&](const std::string& text) {
    return fmt::format(fmt::runtime(text), shards.first, shards.second);
  };
  shards.write_index(
      json{{"weight_map", {{"a", shards.first}, {"b", shards.second}, {"c", shards.second}}}}.dump());
  CHECK_THAT(refusal_of_shards(shards),
             ContainsSubstring(names("shard \"{0}\" holds \"b\", which the index lists in \"{1}\"")));
  shards.write_index(json{{"weight_map", {{"a", shards.first}, {"c", shards.second}}}}.dump());
  CHECK_THAT(refusal_of_shards(shards),
             ContainsSubstring(names("shard \"{0}\" holds \"b\", which the index does not list")));
  auto index = index_of(shards.first, shards.second);
  index["weight_map"]["d"] = shards.second;
  shards.write_index(index.dump());
  CHECK_THAT(refusal_of_shards(shards),
             ContainsSubstring(names("shard \"{1}\" lacks \"d\", which the index lists in it")));
  // One tensor in both shards.
  shards.write_index(index_of(shards.first, shards.second).dump());
  shards.save(shards.second, {{"a", at::arange(3)}, {"c", at::arange(5)}});
  CHECK_THAT(refusal_of_shards(shards),
             ContainsSubstring(names("shard \"{1}\" holds \"a\", which the index lists in \"{0}\"")));
}

TEST_CASE("a shard is a state dict as a whole", "[sharded_state][errors]") {
  const Shards shards(false);
  save_torch(shards.folder / shards.second,
             FileValue::Dict{{{"model", FileValue::Dict{{{"c", at::arange(5)}}}}}});
  CHECK_THAT(refusal_of_shards(shards), ContainsSubstring("is no state dict as a whole"));
}

TEST_CASE("an index is JSON with a weight map", "[sharded_state][errors]") {
  const Shards shards(true);
  const auto refused = [&](const std::string& text, const char* reason) {
    INFO(text);
    shards.write_index(text);
    const auto message = refusal_of_shards(shards);
    CHECK_THAT(message, ContainsSubstring("read_state_dict: " + shards.index().string() + ": "));
    CHECK_THAT(message, ContainsSubstring(reason));
  };
  refused("", "not JSON");
  refused("{", "not JSON");
  refused("\xFF", "not UTF-8");
  refused("[]", "the key \"weight_map\"");
  refused("{}", "the key \"weight_map\"");
  refused(R"({"weight_map": []})", "the key \"weight_map\"");
  refused(R"({"weight_map": {}})", "lists no tensors");
  refused(R"({"weight_map": {"a": 1}})", "the shard of \"a\" is no string");
  refused(R"({"weight_map": {"a": "x", "a": "y"}})", "holds \"a\" twice");
  refused(R"({"weight_map": {"a": "x"}, "weight_map": {"a": "y"}})", "holds \"weight_map\" twice");
  refused(R"({"weight_map": {"a": "x"}, "metadata": )" + std::string(100'000, '[') +
              std::string(100'000, ']') + "}",
          "nests too deep");
  CHECK_THAT(value_error([&] { read_state_dict(shards.index(), {.entry = "model"}); }),
             ContainsSubstring("an index has no entries"));
}
