#pragma once

// Checks that every decoder-only model passes.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/memory_meter.h"

namespace attentive::test {

/// Two texts of seven tokens, all below 11.
inline at::Tensor example_ids() {
  return at::arange(14).view({2, 7}).mul(5).remainder(11);
}

/// The loss of a model with tied weights equals the composed one, in every bit while all logits take at most
/// 128 MiB, and takes less memory beyond.
template <class Model>
void check_loss_in_chunks(Model& model, int64_t vocabulary) {
  const auto peak_and_loss = [&](int64_t tokens) {
    const auto ids = at::randint(vocabulary, {1, tokens}, at::kLong), targets = ids.flip(1);
    model->zero_grad();
    const MemoryMeter meter;
    const auto loss = model->loss(ids, targets);
    loss.backward();
    const auto peak = meter.peak();
    const auto gradient = model->tok_emb->weight.grad().clone();
    model->zero_grad();
    const auto composed = at::cross_entropy_loss(model->forward(ids).flatten(0, 1), targets.flatten());
    composed.backward();
    CHECK_WITHIN(loss.detach(), composed.detach(), {1e-6, 0});
    CHECK_WITHIN(gradient, model->tok_emb->weight.grad(), {1e-4, 1e-7});
    return std::pair(peak, bit_equal(loss.detach(), composed.detach()) &&
                               bit_equal(gradient, model->tok_emb->weight.grad()));
  };
  const int64_t at_most = (int64_t{128} << 20) / (4 * vocabulary);
  const auto [whole, whole_bits] = peak_and_loss(at_most);
  const auto [chunks, chunks_bits] = peak_and_loss(at_most + 1);
  CHECK(whole_bits);
  CHECK(chunks * 3 < whole * 2);
}

/// Targets of -100 do not count, whether there are all logits or chunks of them; their hidden states get no
/// gradient through the loss. `caller` begins the errors.
template <class Model>
void check_ignored_targets(Model& model, int64_t vocabulary, const std::string& caller) {
  const int64_t at_most = (int64_t{128} << 20) / (4 * vocabulary);
  for (const int64_t tokens : {at_most, at_most + 1}) {
    const auto ids = at::randint(vocabulary, {1, tokens}, at::kLong);
    auto targets = ids.flip(1).clone();
    targets.narrow(1, 1, tokens / 2).fill_(-100);
    const auto counted = targets.ne(-100);
    const auto all = model->forward(ids).log_softmax(-1);
    const auto chosen = all.gather(2, targets.clamp(0).unsqueeze(2)).squeeze(2).masked_select(counted);
    const auto want = -chosen.mean();
    CHECK_WITHIN(model->loss(ids, targets).detach(), want.detach(), {1e-6, 0});
    const auto weight = model->tok_emb->weight;
    const auto got = torch::autograd::grad({model->loss(ids, targets.to(at::kInt))}, {weight})[0];
    CHECK_WITHIN(got, torch::autograd::grad({want}, {weight})[0], {1e-4, 1e-7});
    const auto refused = [&](const at::Tensor& wrong) {
      return value_error([&] { model->loss(ids, wrong); });
    };
    CHECK(refused(targets.masked_fill(counted, vocabulary)) ==
          fmt::format("{}: expected targets in [0, {}), got {}", caller, vocabulary, vocabulary));
    CHECK(refused(targets.masked_fill(counted, -99)) ==
          fmt::format("{}: expected targets in [0, {}), got -99", caller, vocabulary));
    CHECK(refused(targets.masked_fill(targets.eq(-100), -101)) ==
          fmt::format("{}: expected targets in [0, {}), got -101", caller, vocabulary));
    CHECK(refused(targets.fill_(-100)) == caller + ": expected a target that is not -100, got -100 alone");
  }
}

/// Loss, gradients and the generator have the same bits with checkpoints as without. `make(every)` returns a
/// model of a vocabulary of 11.
template <class Make>
void check_bits_of_checkpoints(const Make& make, bool autocast) {
  const auto results = [&](int64_t every, bool frozen_embedding) {
    at::manual_seed(5);
    auto model = make(every);
    if (frozen_embedding) model->tok_emb->weight.set_requires_grad(false);
    const auto ids = at::randint(11, {2, 7}, at::kLong);
    at::Tensor loss;
    {
      const CpuAutocast scope(autocast ? std::optional(at::kBFloat16) : std::nullopt);
      loss = model->loss(ids, ids.flip(1));
    }
    model->eval();  // after the forward pass
    loss.backward();
    std::vector<at::Tensor> found{loss.detach(), at::rand({3})};
    for (const auto& p : model->parameters()) found.push_back(p.grad().defined() ? p.grad() : at::zeros({}));
    return found;
  };
  for (const bool frozen : {false, true}) {
    const auto want = results(0, frozen);
    for (const int64_t every : {1, 2, 5}) {
      INFO("every " << every);
      const auto got = results(every, frozen);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(bit_equal(got[i], want[i]));
    }
  }
}

/// Fewer checkpoints take more memory. `make(every)` returns a model of twelve layers and a vocabulary of 11.
template <class Make>
void check_memory_of_checkpoints(const Make& make) {
  const auto peak = [&](int64_t every) {
    at::manual_seed(6);
    auto model = make(every);
    const auto ids = at::randint(11, {1, 256}, at::kLong);
    const MemoryMeter meter;
    model->loss(ids, ids).backward();
    return meter.peak();
  };
  const auto none = peak(0), one = peak(1), three = peak(3);
  CHECK(one * 3 < none);
  CHECK(one < three);
  CHECK(three < none);
}

}  // namespace attentive::test
