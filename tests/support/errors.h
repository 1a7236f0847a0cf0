#pragma once

#include <functional>
#include <string>

#include <c10/util/Exception.h>

#include "base/refusal.h"

namespace attentive::test {

/// Returns the message of the `Error` that `call` throws, without a backtrace, or a text that says that it
/// threw another error or none.
template <class Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

inline std::string value_error(const std::function<void()>& call) {
  return error_of<c10::ValueError>(call);
}
inline std::string type_error(const std::function<void()>& call) {
  return error_of<c10::TypeError>(call);
}

/// Returns the message of the Refusal that `call` throws, or "no error".
template <class Call>
std::string refusal_of(Call call) {
  try {
    (void)call();
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "no error";
}

}  // namespace attentive::test
