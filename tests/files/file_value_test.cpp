#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/file_value.h>
#include <attentive/modules/positions.h>

#include "files/option_json.h"
#include "support/errors.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Dict = FileValue::Dict;
using List = FileValue::List;

TEST_CASE("a value says what it is", "[torch_value][errors]") {
  const FileValue value = Dict{{{"a", 1}}, true};
  CHECK(value.find("b") == nullptr);
  CHECK_THROWS_MATCHES(value.at("b"), c10::ValueError,
                       MessageMatches(ContainsSubstring("FileValue: no key \"b\" in the OrderedDict of 1")));
  CHECK_THROWS_MATCHES(value.at("a").as<std::string>(), c10::ValueError,
                       MessageMatches(ContainsSubstring("FileValue: expected str, got int")));
  CHECK_THROWS_MATCHES(value.at("a").find("b"), c10::ValueError,
                       MessageMatches(ContainsSubstring("expected dict, got int")));
  CHECK_THROWS_AS(FileValue(List{}).as<Dict>(), c10::ValueError);
  CHECK(FileValue(List{{1, 2}}).as<List>().items.size() == 2);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<const int64_t*, FileValue>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<FileValue, size_t>);
}

TEST_CASE("a value has the kind of what it was made from", "[torch_value]") {
  const std::vector<std::pair<FileValue, std::string_view>> kinds = {
      {FileValue(), "None"},
      {true, "bool"},
      {7, "int"},
      {7.0f, "float"},
      {std::complex<double>(0, 1), "complex"},
      {"text", "str"},
      {at::ones({2}), "tensor"},
      {FileValue::Parameter{at::ones({2})}, "Parameter"},
      {at::kHalf, "dtype"},
      {c10::Device(at::kCPU), "device"},
      {at::kStrided, "layout"},
      {FileValue::Bytes{"b"}, "bytes"},
      {FileValue::Integer{"18446744073709551616"}, "int beyond 64 bits"},
      {List{}, "list"},
      {FileValue::Tuple{}, "tuple"},
      {FileValue::Set{}, "set"},
      {Dict{}, "dict"},
      {Dict{.items = {}, .ordered = true}, "OrderedDict"}};
  for (const auto& [value, kind] : kinds) CHECK(value.kind() == kind);
}

TEST_CASE("copies of a value share tensors and nothing else", "[torch_value]") {
  const FileValue value = Dict{{{"weight", at::ones({2})}, {"steps", List{{1, 2}}}}};
  FileValue copy = value;
  CHECK(copy.at("weight").as<at::Tensor>().is_same(value.at("weight").as<at::Tensor>()));
  auto taken = std::move(copy).as<Dict>();
  taken.items.clear();
  CHECK(value.as<Dict>().items.size() == 2);
  CHECK(value.at("steps").as<List>().items[1].as<int64_t>() == 2);
}

using namespace attentive::test;

namespace {

struct Sample {
  int64_t tokens = -3;
  uint64_t seed = 0xffffffffffffffffull;
  double rate = 0.1 + 0.2;
  bool tied = true;
  RotaryPositionsOptions rotary = RotaryPositionsOptions(4).pairing(RotaryPairing::Halves);

  ATTENTIVE_OPTIONS(tokens, seed, rate, tied, rotary);
};

nlohmann::json written(const Sample& options) {
  nlohmann::json object;
  each_option(options, OptionWriter(object));
  return object;
}

Sample read(const nlohmann::json& object) {
  Sample options{.tokens = 0, .seed = 0, .rate = 0, .tied = false, .rotary = RotaryPositionsOptions(2)};
  each_option(options, OptionReader("Sample", object));
  return options;
}

struct Absent {
  std::vector<int64_t> windows = {3, 0};
  std::optional<double> scale;
  std::optional<RotaryPositionsOptions> rotary;

  ATTENTIVE_OPTIONS(windows, scale, rotary);
};

nlohmann::json written(const Absent& options) {
  nlohmann::json object;
  each_option(options, OptionWriter(object));
  return object;
}

Absent read_absent(const nlohmann::json& object) {
  Absent options{.windows = {7}, .scale = 9.0, .rotary = RotaryPositionsOptions(2)};
  each_option(options, OptionReader("Absent", object));
  return options;
}

}  // namespace

TEST_CASE("Options survive JSON, those within options too", "[option_json]") {
  const auto object = written(Sample());
  CHECK(object.size() == 18);
  CHECK(object["rotary_pairing"] == "halves");
  const auto back = read(nlohmann::json::parse(object.dump()));
  CHECK(back.tokens == -3);
  CHECK(back.seed == 0xffffffffffffffffull);
  CHECK(back.rate == 0.1 + 0.2);
  CHECK(back.tied);
  CHECK(back.rotary.pairing() == RotaryPairing::Halves);
  CHECK(written(back) == object);
}

TEST_CASE("Lists and options that may be absent survive JSON", "[option_json]") {
  CHECK(written(Absent()).dump() == R"({"rotary":null,"scale":null,"windows":[3,0]})");
  const auto back = read_absent(written(Absent()));
  CHECK(back.windows == std::vector<int64_t>{3, 0});
  CHECK_FALSE(back.scale);
  CHECK_FALSE(back.rotary);
  const Absent all{.windows = {},
                   .scale = 0.5,
                   .rotary = RotaryPositionsOptions(4).base(50).scaling(RotaryScaling::Llama3)};
  const auto object = written(all);
  CHECK(object["rotary"]["scaling"] == "llama3");
  CHECK(written(read_absent(nlohmann::json::parse(object.dump()))) == object);
  CHECK(read_absent(object).rotary->base() == 50);
  const auto refused = [&](const char* name, const nlohmann::json& value) {
    auto changed = object;
    changed[name] = value;
    return value_error([&] { read_absent(changed); });
  };
  CHECK(refused("windows", 3) == "Absent: expected \"windows\" to be a list, got 3");
  CHECK(refused("windows", {1, 0.5}) == "Absent: expected \"windows\" to be an integer, got 0.5");
  CHECK(refused("scale", true) == "Absent: expected \"scale\" to be a number, got true");
  CHECK(refused("rotary", 1) == "Absent: expected \"rotary\" to be an object or null, got 1");
  CHECK(refused("rotary", {{"base", "x"}}) == "Absent: expected \"base\" to be a number, got \"x\"");
  auto earlier = object;  // without members that were added since
  earlier["rotary"].erase("beta_fast");
  CHECK(written(read_absent(earlier)) == object);
  auto shorter = object;
  shorter.erase("scale");
  CHECK(value_error([&] { read_absent(shorter); }) == "Absent: expected a member \"scale\"");
}

TEST_CASE("A member that is missing or does not fit is named", "[option_json]") {
  const auto refused = [](const char* name, const nlohmann::json& value) {
    auto object = written(Sample());
    object[name] = value;
    return value_error([&] { return read(object).tokens; });
  };
  CHECK(refused("tokens", 1.5) == "Sample: expected \"tokens\" to be an integer, got 1.5");
  CHECK(refused("seed", -1) == "Sample: expected \"seed\" to be an integer >= 0, got -1");
  CHECK(refused("rate", "0.1") == "Sample: expected \"rate\" to be a number, got \"0.1\"");
  CHECK(refused("tied", 1) == "Sample: expected \"tied\" to be true or false, got 1");
  CHECK(refused("rotary_pairing", 1) == "Sample: expected \"rotary_pairing\" to be a string, got 1");
  CHECK(refused("rotary_pairing", "unknown") ==
        "Sample: expected a known \"rotary_pairing\", got \"unknown\"");
  auto object = written(Sample());
  object.erase("rotary_base");
  CHECK(value_error([&] { return read(object).tokens; }) == "Sample: expected a member \"rotary_base\"");
  CHECK(value_error([] { return parse_option_object("Sample", "[1]").size(); }) ==
        "Sample: expected a JSON object");
}
