// The checks of numbers that all programs' flags share. flags_test.py sees that every flag has one.

#include "common/flags.h"

#include <array>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

namespace {

// What a program with this check of --flag says about a command line; empty if it takes it.
std::string refusal(const CLI::Validator& check, const std::string& text) {
  CLI::App app;
  std::string taken;
  app.add_option("--flag", taken)->check(check);
  try {
    app.parse("--flag=\"" + text + '"');
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  CHECK(taken == text);
  return "";
}

constexpr std::array kNoNumbers{"nan", "inf", "-inf", "-1", "1e999", "0x10", "1 5", "x"};
constexpr auto kLargestSeed = "18446744073709551615";

}  // namespace

TEST_CASE("flags: texts that are no whole number, and numbers beyond the limits, are refused", "[flags]") {
  for (const std::string text : {"0", "7", "1024"}) CHECK(refusal(apps::whole_number(0, 1024), text).empty());
  for (const auto& texts : {std::vector(kNoNumbers.begin(), kNoNumbers.end()),
                            {"010", "1.5", "1e3", "1025", "99999999999999999999999"}})
    for (const std::string text : texts)
      CHECK(refusal(apps::whole_number(0, 1024), text) ==
            "--flag: expected a whole number from 0 to 1024, got " + text);
}

TEST_CASE("flags: seeds have 64 bits", "[flags]") {
  for (const std::string text : {"0", kLargestSeed}) CHECK(refusal(apps::seed_number(), text).empty());
  for (const auto& texts :
       {std::vector(kNoNumbers.begin(), kNoNumbers.end()), {"010", "1.5", "1e3", "18446744073709551616"}})
    for (const std::string text : texts)
      CHECK(refusal(apps::seed_number(), text) ==
            fmt::format("--flag: expected a whole number from 0 to {}, got {}", kLargestSeed, text));
}

TEST_CASE("flags: fractions are finite, and a limit may be left out", "[flags]") {
  using apps::Ends;
  for (const std::string text : {"0", "1e-3", "1"}) CHECK(refusal(apps::number(0, 1), text).empty());
  for (const std::string text : kNoNumbers)
    CHECK(refusal(apps::number(0, 1), text) == "--flag: expected a number from 0 to 1, got " + text);
  CHECK(refusal(apps::number(0, 1, Ends::WithoutLeast), "1").empty());
  CHECK(refusal(apps::number(0, 1, Ends::WithoutLeast), "0") ==
        "--flag: expected a number above 0, at most 1, got 0");
  CHECK(refusal(apps::number(0, 1, Ends::WithoutMost), "0").empty());
  CHECK(refusal(apps::number(0, 1, Ends::WithoutMost), "1") ==
        "--flag: expected a number from 0 to below 1, got 1");
}

TEST_CASE("flags: words for yes and no", "[flags]") {
  for (const std::string text : {"true", "false", "1", "0", "yes", "no", "on", "off"})
    CHECK(refusal(apps::true_or_false(), text).empty());
  for (const std::string text : {"2", "01", "y"})
    CHECK(refusal(apps::true_or_false(), text) == "--flag: expected true or false, got " + text);
}

TEST_CASE("flags: a configuration file has the same limits", "[flags]") {
  CLI::App app;
  int threads = 0;
  app.set_config("--config");
  apps::add_threads(app, threads);
  std::istringstream file("threads = 1000000\n");
  try {
    app.parse_from_stream(file);
    FAIL("1000000 threads were taken");
  } catch (const CLI::ParseError& error) {
    CHECK(error.what() == std::string("--threads: expected a whole number from 0 to 1024, got 1000000"));
  }
}
