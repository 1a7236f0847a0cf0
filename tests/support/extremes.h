#pragma once

// Calls with meaningless arguments, to check that the error begins with the public name.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <catch2/catch_test_macros.hpp>

namespace attentive::test {

/// Counts and sizes that cannot occur; the largest ones exceed every address space.
constexpr std::initializer_list<int64_t> kSizesWithoutMeaning = {0,
                                                                 -1,
                                                                 std::numeric_limits<int64_t>::min(),
                                                                 std::numeric_limits<int64_t>::max(),
                                                                 std::numeric_limits<int64_t>::max() - 1,
                                                                 int64_t{1} << 62,
                                                                 int64_t{1} << 48};

template <class Argument>
struct Probe {
  std::string name;  ///< the name before the first colon of the message; "A|B": A, or its part B
  std::function<void(const Argument&)> call;
};

/// Returns the message of a ValueError, TypeError or OutOfMemoryError, or another text for any other error
/// and for none.
template <class Argument>
std::string message_of(const Probe<Argument>& probe, const Argument& argument) {
  try {
    probe.call(argument);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  } catch (const c10::TypeError& error) {
    return error.what_without_backtrace();
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

inline bool carries_name(const std::string& message, const std::string& names) {
  std::istringstream all(names);
  for (std::string name; std::getline(all, name, '|');) {
    if (message.starts_with(name + ": ")) return true;
  }
  return false;
}

inline std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream out;
  out << tensor.toString() << " of rank " << tensor.dim();
  return out.str();
}
template <class Number>
std::string described(Number number) {
  return std::to_string(number);
}

}  // namespace attentive::test

#define CHECK_NAMED(probe, argument)                                          \
  do {                                                                        \
    INFO((probe).name << " with " << ::attentive::test::described(argument)); \
    const auto message = ::attentive::test::message_of(probe, argument);      \
    INFO(message);                                                            \
    CHECK(::attentive::test::carries_name(message, (probe).name));            \
  } while (false)
