#pragma once

#include <string>

#include <c10/util/Exception.h>

namespace attentive::test {

/// The message of the c10::ValueError that `call` throws, without the backtrace; empty if it throws none.
template <class Call>
std::string value_error(Call call) {
  try {
    (void)call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return {};
}

}  // namespace attentive::test
