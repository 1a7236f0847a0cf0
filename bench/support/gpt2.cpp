#include "support/gpt2.h"

#include <ATen/ops/randint.h>

namespace bench {

using attentive::GPT;
using attentive::GPTInit;
using attentive::GPTOptions;

namespace {
constexpr int64_t kVocabulary = 50257;
}

GPT gpt2(double dropout) {
  return GPT(GPTOptions(kVocabulary, 1024, 768, 12, 12)
                 .qkv_bias(true)
                 .tied(true)
                 .init(GPTInit::Gpt2)
                 .dropout(dropout));
}

at::Tensor gpt2_ids(int64_t rows, int64_t tokens) {
  return at::randint(kVocabulary, {rows, tokens}, at::kLong);
}

}  // namespace bench
