// Runs every case that PyTorch wrote for torch.nn.MultiheadAttention.

#include <catch2/catch_test_macros.hpp>

#include "support/parity_cases.h"

using namespace attentive;

TEST_CASE("MultiheadAttention equals PyTorch on every recorded case", "[compat][multihead_attention]") {
  test::check_cases("torch#mha-*", 150);
}

TEST_CASE("MultiheadAttention drops what PyTorch drops for a seed", "[compat][multihead_attention]") {
  test::check_dropout_cases("dropout#torch.nn.MultiheadAttention-*");
}
