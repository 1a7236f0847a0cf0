#pragma once

#include <ATen/ops/randint.h>

#include <attentive/models/gpt.h>

namespace bench {

inline constexpr int64_t kGpt2Vocabulary = 50257;

/// GPT-2 (124M), with drawn weights.
inline attentive::GPT gpt2(double dropout = 0.0) {
  return attentive::GPT(attentive::GPTOptions(kGpt2Vocabulary, 1024, 768, 12, 12)
                            .qkv_bias(true)
                            .tied(true)
                            .init(attentive::GPTInit::Gpt2)
                            .dropout(dropout));
}

/// Random ids of its vocabulary, (rows, tokens).
inline at::Tensor gpt2_ids(int64_t rows, int64_t tokens) {
  return at::randint(kGpt2Vocabulary, {rows, tokens}, at::kLong);
}

}  // namespace bench
