#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <attentive/score/score_mod.h>

#include "support/option_cases.h"

namespace attentive::test {
namespace {

// Adds a step that makes functions, now and whenever the call's tensors are cast.
void define(OptionCall& call, std::function<void(OptionCall&)> step) {
  step(call);
  call.functions.push_back(std::move(step));
}

size_t capture(OptionCall& call, const at::Tensor& tensor) {
  call.captured.push_back(tensor);
  return call.captured.size() - 1;
}

}  // namespace

const std::vector<OptionCase>& function_cases() {
  static const std::vector<OptionCase> cases = {
      {"score function", "score",
       [](OptionCall& c) {
         define(c, [](OptionCall& call) {
           call.extras.score = score_mod([](auto s, auto pair) {
             return s + 0.5f * sin(s) - 0.1f * abs(pair.query - pair.key) + 0.2f * pair.head;
           });
         });
       }},
      {"score function with a learned table", "score",
       [](OptionCall& c) {
         const auto n = capture(c, at::randn({4, 64}, at::kDouble));
         define(c, [n](OptionCall& call) {
           const auto table = captured(call.captured[n]);
           call.extras.score = score_mod([=](auto s, auto pair) {
             return s * table(pair.head, pair.query - pair.key + 32) +
                    tanh(table(pair.head, abs(pair.query) % 5) + s);
           });
         });
       }},
      {"mask function", "mask function",
       [](OptionCall& c) {
         define(c, [](OptionCall& call) {
           call.extras.block_mask =
               mask_mod([](auto pair) { return (pair.query + pair.key + pair.head) % 3 != 0; });
         });
       }},
      {"mask function with a tensor", "mask function",
       [](OptionCall& c) {
         const auto n = capture(c, at::randint(2, {c.q.size(0), 9}, at::kLong));
         define(c, [n](OptionCall& call) {
           const auto kind = captured_indices(call.captured[n]);
           call.extras.block_mask =
               mask_mod([=](auto pair) { return (kind(pair.batch, pair.key) == 1) | (pair.key == 1); });
         });
       }},
      {"no softmax", "normalise", [](OptionCall& c) { c.extras.normalise = Normalise::None; }},
      {"no softmax but a sigmoid", "score",
       [](OptionCall& c) {
         c.extras.normalise = Normalise::None;
         define(c, [](OptionCall& call) {
           call.extras.score = score_mod([](auto s, auto pair) { return sigmoid(s - log(pair.keys)); });
         });
       }},
  };
  return cases;
}

}  // namespace attentive::test
