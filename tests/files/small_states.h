#pragma once

// A small module, and its state before and after a file.

#include <catch2/catch_test_macros.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/compare.h"

namespace attentive::test {

inline MultiHeadAttention make(int64_t context_length = 4) {
  return MultiHeadAttention(3, 2, context_length, 0.0, 2);
}

inline StateDict snapshot(const MultiHeadAttention& module) {
  auto state = state_dict(*module);
  for (auto& [key, tensor] : state) tensor = tensor.clone();
  return state;
}

inline void check_equal(const StateDict& left, const StateDict& right) {
  REQUIRE(left.size() == right.size());
  for (const auto& [key, tensor] : left) {
    INFO(key);
    REQUIRE(right.count(key));
    CHECK(bit_equal(tensor, right.at(key)));
  }
}

}  // namespace attentive::test
