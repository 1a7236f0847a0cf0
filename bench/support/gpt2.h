#pragma once

#include <ATen/core/Tensor.h>

#include <attentive/models/gpt.h>

namespace bench {

/// GPT-2 (124M), with drawn weights.
attentive::GPT gpt2(double dropout = 0.0);

/// Random ids of its vocabulary, (rows, tokens).
at::Tensor gpt2_ids(int64_t rows, int64_t tokens);

}  // namespace bench
