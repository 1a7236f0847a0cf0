#include <memory>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/attention.h>
#include <attentive/models/gpt.h>

#include "support/compare.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;

namespace {

at::Tensor swapped(const at::Tensor& x, int64_t dim) {
  const auto half = x.size(dim) / 2;
  return at::cat({x.narrow(dim, half, half), x.narrow(dim, 0, half)}, dim);
}

// A context that holds the whole sequence in one process, with its second half first.
class Swapped final : public AttentionContext {
 public:
  int64_t size() const override { return size_; }
  std::vector<Run> runs(int64_t tokens) const override { return {{tokens / 2, tokens / 2}, {0, tokens / 2}}; }
  AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, const AttentionExtras& extras) override {
    auto result = attentive::attention(swapped(q, 2), swapped(k, 2), swapped(v, 2), options, extras);
    result.output = swapped(result.output, 2);
    return result;
  }

  int64_t size_ = 1;
};

}  // namespace

TEST_CASE("GPT computes a sequence whose tokens are in another order in its context", "[gpt][context]") {
  const auto positions = GENERATE(GPTPositions::Learned, GPTPositions::Rotary);
  at::manual_seed(5);
  GPT model(GPTOptions(17, 12, 16, 4, 2).positions(positions).num_kv_heads(2));
  const auto ids = at::randint(17, {2, 12});
  const auto want = model->forward(ids);
  const auto context = std::make_shared<Swapped>();
  model->set_context(context);
  CHECK(difference(swapped(model->forward(swapped(ids, 1)), 1), want) == "");
  const auto cache = model->make_cache(2);
  CHECK_THROWS_WITH(model->forward_cached(ids, *cache), ContainsSubstring("expected no cache"));
  model->options.checkpoint(1);
  CHECK_THROWS_WITH(model->forward(ids),
                    ContainsSubstring("GPT: expected checkpoint = 0 for a part of a longer sequence, got 1"));
  model->options.checkpoint(0);
  context->size_ = 2;
  CHECK_THROWS_WITH(model->forward(ids), ContainsSubstring("context_length"));
  model->set_context(nullptr);
  CHECK(bit_equal(model->forward(ids), want));
}
