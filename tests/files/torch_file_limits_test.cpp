// Each limit of TorchFileLimits, at its value and one below what the file needs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/torch_file.h>

#include "files/hostile_torch_file.h"

using namespace attentive;
using attentive::test::Format;
using attentive::test::Pickle;
using attentive::test::times;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

namespace {

std::string outcome(const std::string& bytes, const TorchFileLimits& limits) {
  try {
    parse_torch(bytes.data(), bytes.size(), {.limits = limits});
    return "read";
  } catch (const TorchFileError& error) {
    return error.what_without_backtrace();
  }
}

// Checks in both formats that the file is read at `limit`, and refused one below with a message that names
// the limit.
template <class Number>
void check_limit(Number TorchFileLimits::*limit, Number enough, const std::string& name,
                 const std::function<Pickle(Format)>& pickle) {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const auto bytes = test::file_of(format, pickle(format).stop());
    TorchFileLimits limits;
    limits.*limit = enough;
    CHECK(outcome(bytes, limits) == "read");
    limits.*limit = enough - 1;
    const auto message = outcome(bytes, limits);
    INFO(message);
    CHECK(message.starts_with("parse_torch: "));
    CHECK(message.find(name) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("each limit of a torch.save file holds at its value and is named", "[torch_file][limits]") {
  const auto tensor = [](Format format) { return Pickle(2, format).tensor(); };
  check_limit(&TorchFileLimits::max_tensor_bytes, uint64_t{24}, "max_tensor_bytes", tensor);
  check_limit(&TorchFileLimits::max_tensors, int64_t{2}, "max_tensors", [](Format format) {
    return Pickle(2, format).tensor().tensor({.offset = 1, .sizes = {1}, .strides = {1}}).raw("\x86");
  });
  check_limit(&TorchFileLimits::max_depth, int64_t{3}, "max_depth",
              [](Format format) { return Pickle(2, format).raw("K\1\x85\x85\x85"); });
  check_limit(&TorchFileLimits::max_depth, int64_t{3}, "max_depth",
              [](Format format) { return Pickle(2, format).raw("]}K\1K\2\x85s").raw("a"); });
  check_limit(&TorchFileLimits::max_values, int64_t{101}, "max_values",
              [](Format format) { return Pickle(2, format).raw("(").raw(times(100, "N")).raw("t"); });
  // A value that is mentioned twice counts twice: five lists of a list of three.
  check_limit(&TorchFileLimits::max_values, int64_t{21}, "max_values", [](Format format) {
    return Pickle(2, format).raw(std::string("](](NNNeq\0h\0h\0h\0h\0e", 19));
  });
}

TEST_CASE("limits that say nothing are refused before a file is opened", "[torch_file][limits]") {
  const auto check_refused = [](const TorchFileLimits& limits, const std::string& name) {
    const std::string want = "load_torch: expected limits." + name + " from 1 to ";
    CHECK_THROWS_MATCHES(load_torch("/no such file", {.limits = limits}), c10::ValueError,
                         MessageMatches(StartsWith(want)));
  };
  check_refused({.max_pickle_bytes = 0}, "max_pickle_bytes");
  check_refused({.max_pickle_bytes = ~uint64_t{0}}, "max_pickle_bytes");
  check_refused({.max_pickle_bytes = uint64_t{1} << 32}, "max_pickle_bytes");
  check_refused({.max_depth = 0}, "max_depth");
  check_refused({.max_depth = -1}, "max_depth");
  check_refused({.max_depth = 1001}, "max_depth");
  check_refused({.max_tensors = -1}, "max_tensors");
  check_refused({.max_tensors = INT64_MAX}, "max_tensors");
  check_refused({.max_values = -1}, "max_values");
  check_refused({.max_values = int64_t{1} << 32}, "max_values");
}

TEST_CASE("the description has a limit of its own", "[torch_file][limits]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const auto bytes = test::file_of(format, Pickle(2, format).text(times(1 << 20, "x")).stop());
    CHECK(outcome(bytes, {.max_pickle_bytes = uint64_t{4} << 20}) == "read");
    CHECK(outcome(bytes, {.max_pickle_bytes = 1 << 20}).find("max_pickle_bytes") != std::string::npos);
  }
}

TEST_CASE("a hundred containers within each other are read", "[torch_file][limits]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    CHECK(outcome(test::file_of(format, Pickle(2, format).raw("N").raw(times(100, "\x85")).stop()), {}) ==
          "read");
    const auto lists = Pickle(2, format).raw(times(100, "]")).raw(times(99, "a")).stop();
    CHECK(outcome(test::file_of(format, lists), {}) == "read");
    const auto deep = Pickle(2, format).raw("N").raw(times(1000, "\x85")).stop();
    CHECK(outcome(test::file_of(format, deep), {.max_depth = 1000}) == "read");
  }
}
