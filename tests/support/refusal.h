#pragma once

#include <string>

#include "base/refusal.h"

namespace attentive::test {

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
