#include "core/option_json.h"

#include <cstdint>

#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/positions.h>

#include "support/errors.h"

using namespace attentive;
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

}  // namespace

TEST_CASE("Options survive JSON, those within options too", "[option_json]") {
  const auto object = written(Sample());
  CHECK(object.size() == 9);
  CHECK(object["rotary_pairing"] == "halves");
  const auto back = read(nlohmann::json::parse(object.dump()));
  CHECK(back.tokens == -3);
  CHECK(back.seed == 0xffffffffffffffffull);
  CHECK(back.rate == 0.1 + 0.2);
  CHECK(back.tied);
  CHECK(back.rotary.pairing() == RotaryPairing::Halves);
  CHECK(written(back) == object);
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
