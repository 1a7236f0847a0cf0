#include "distributed/call_scenarios.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <attentive/distributed/context_attention.h>
#include <attentive/distributed/data_parallel.h>
#include <attentive/train/adamw.h>

namespace attentive::test {
namespace {

void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error("wrong: " + what);
}

// Lets the last process of a group make other calls than the rest.
struct Differing {
  std::shared_ptr<Group> group;

  int64_t last() const { return group->size() - 1; }
  bool other() const { return group->rank() == last(); }

  // In the text, {} stands for the last rank.
  void refused(const std::string& text, const std::function<void()>& call) const {
    const auto expected = fmt::format(fmt::runtime(text), last());
    bool thrown = false;
    try {
      call();
    } catch (const c10::ValueError& error) {
      thrown = true;
      const std::string got = error.what_without_backtrace();
      expect(got.find(expected) != std::string::npos, "expected \"" + expected + "\", got \"" + got + "\"");
    }
    expect(thrown, "not refused: " + expected);
    const auto sum = at::ones({2});
    group->sum(sum);
    expect(at::equal(sum, at::full({2}, static_cast<double>(group->size()))), "sum after " + expected);
  }
};

}  // namespace

void check_calls_that_differ(const std::shared_ptr<Group>& group) {
  const Differing differing{group};
  const bool other = differing.other();
  const auto both = at::zeros({2, 3}), three = at::zeros({3}), none = at::zeros({0});
  const auto choose = [&](const at::Tensor& rest, const at::Tensor& last) { return other ? last : rest; };
  const auto refused = [&](const std::string& text, const auto& call) { differing.refused(text, call); };

  refused("Group::gather: the tensors differ: rank 0 has Float (2, 3), rank {} has Float (3,)",
          [&] { group->gather(choose(both, three)); });
  refused("rank 0 has Float (3,), rank {} has Double (3,)",
          [&] { group->gather(choose(three, three.to(at::kDouble))); });
  refused("rank 0 has Float (0,), rank {} has Float (3,)", [&] { group->gather(choose(none, three)); });
  refused("Group::sum: the tensors differ: rank 0 has Float (2, 3), rank {} has Float (3,)",
          [&] { group->sum(choose(both, three)); });
  refused("rank 0 has Float (3,), rank {} has Int (3,)",
          [&] { group->sum(choose(three, three.to(at::kInt))); });
  refused("rank 0 has Float (3,), rank {} has Float (0,)", [&] { group->sum(choose(three, none)); });
  refused(
      "Group::broadcast: the tensors and roots differ: rank 0 has Float (2, 3) of root 0, rank {} has Float "
      "(3,) of root 0",
      [&] { group->broadcast(choose(both, three), 0); });
  refused("rank 0 has Float (3,) of root 0, rank {} has Float (3,) of root 1",
          [&] { group->broadcast(three, other ? 1 : 0); });
  refused("the calls differ: rank 0 calls Group::barrier, rank {} calls Group::sum", [&] {
    if (other) {
      group->sum(three);
    } else {
      group->barrier();
    }
  });
  refused("on rank {}: expected a dense tensor on the CPU, got an undefined one",
          [&] { group->gather(choose(three, at::Tensor())); });
  refused("on rank {}: expected Double, Float, Half, BFloat16, Long, Int, Char or Byte, got Short",
          [&] { group->sum(choose(three, three.to(at::kShort))); });

  torch::nn::Linear model(3, 2), second(3, 2);
  DataParallel parallel(*model, group), parallel_of_second(*second, group);
  const auto loss = [&] { return model->forward(at::rand({4, 3})).sum(); };
  refused("rank 0 has bucket_bytes 1000, rank {} has bucket_bytes 2000",
          [&] { DataParallel(*model, group, {.bucket_bytes = other ? 2000 : 1000}); });
  refused("on rank {}: expected positive sizes",
          [&] { DataParallel(*model, group, {.bucket_bytes = other ? -1 : 1000}); });
  refused("the calls differ: rank 0 calls DataParallel::backward, rank {} calls Group::sum", [&] {
    if (other) {
      group->sum(three);
    } else {
      parallel.backward(loss());
    }
  });
  refused("rank 0 has that of DataParallel 1 of the group, rank {} has that of DataParallel 2 of the group",
          [&] {
            if (other) {
              parallel_of_second.backward(second->forward(at::rand({4, 3})).sum());
            } else {
              parallel.backward(loss());
            }
          });
  refused("DataParallel::backward: on rank {}: expected a loss, got an undefined tensor",
          [&] { parallel.backward(other ? at::Tensor() : loss()); });
  refused("DataParallel::backward: on rank {}: expected a loss of one element",
          [&] { parallel.backward(other ? loss().detach() : loss()); });
  refused("DataParallel::backward: expected a loss, got an undefined tensor",
          [&] { parallel.backward(at::Tensor(), /*last=*/false); });
  refused("ShardedAdamW: expected the same options in every process",
          [&] { ShardedAdamW(*model, group, {.eps = other ? 1e-7 : 1e-8}); });
  parallel.backward(loss());

  torch::nn::Linear partly(3, 2);
  partly->bias.set_requires_grad(false);
  DataParallel parallel_of_partly(*partly, group);
  refused("DataParallel::backward: on rank {}: bias requires a gradient, but did not when", [&] {
    partly->bias.set_requires_grad(other);
    parallel_of_partly.backward(partly->forward(at::rand({4, 3})).sum());
  });

  torch::nn::Linear wide(3, 2);
  wide->options.bias(!other);  // changes what the module prints
  refused("rank 0 has the model: bias=true, rank {} has the model: bias=false",
          [&] { DataParallel(*wide, group); });
}

void check_context_calls_that_differ(const std::shared_ptr<Group>& group) {
  const Differing differing{group};
  const bool other = differing.other();
  const int64_t heads = 2 * group->size(), tokens = 8 * group->size();
  at::manual_seed(1);
  const auto x = at::rand({1, heads, 8, 4});
  const auto keep = at::ones({tokens, tokens}, at::kBool), other_keep = keep.clone();
  other_keep[3][1] = false;
  const auto slopes = at::linspace(0.1, 0.5, heads);
  const auto attend = [&](const at::Tensor& q, const AttentionOptions& options, const AttentionExtras& extras,
                          ContextMethod method = ContextMethod::Gather) {
    const auto rest = q.defined() && q.is_floating_point() ? x.to(q.scalar_type()) : x;
    context_attention(q, rest, rest, group, options, extras, method);
  };
  const auto refused = [&](const std::string& text, const auto& call) {
    differing.refused("context_attention: " + text, call);
  };
  refused("the calls differ: rank 0 has method: gather, rank {} has method: ring",
          [&] { attend(x, {}, {}, other ? ContextMethod::Ring : ContextMethod::Gather); });
  refused("the calls differ: rank 0 has dtype: Float, rank {} has dtype: Double",
          [&] { attend(other ? x.to(at::kDouble) : x, {}, {}); });
  refused("on rank {}: ", [&] { attend(other ? x.to(at::kLong) : x, {}, {}); });
  refused("on rank {}: ", [&] { attend(other ? at::Tensor() : x, {}, {}); });
  refused("the calls differ: rank 0 has last key: 0, rank {} has last key: ",
          [&] { attend(x, {.causal = other ? Causal::None : Causal::BottomRight}, {}); });
  for (const auto method : {ContextMethod::Gather, ContextMethod::Heads, ContextMethod::Ring}) {
    refused("the calls differ: rank 0 has alibi_slopes: (",
            [&] { attend(x, {}, {.alibi_slopes = other ? slopes * 1.001 : slopes}, method); });
    refused("the calls differ: rank 0 has keep: (",
            [&] { attend(x, {}, {.mask = Mask::keep(other ? other_keep : keep)}, method); });
  }
  refused("the calls differ: rank 0 has bias: (", [&] {
    attend(x, {}, {.mask = Mask::bias(at::full({tokens, tokens}, other ? 0.25 : 0.5))});
  });
  refused("the calls differ: rank 0 has sinks: (",
          [&] { attend(x, {}, {.sinks = at::full({heads}, other ? 0.25 : 0.5)}); });
  refused("the calls differ: rank 0 has key_lengths: (",
          [&] { attend(x, {}, {.mask = Mask::key_lengths(at::full({1}, other ? 3 : 4, at::kLong))}); });
  refused("on rank {}: expected batch items of one length, got Align::Lengths or query_lengths", [&] {
    attend(x, {}, {.mask = other ? Mask::query_lengths(at::full({1}, 3, at::kLong)) : Mask()});
  });
  refused("the calls differ: rank 0 has gradients: q true",
          [&] { attend(other ? x : x.detach().requires_grad_(), {}, {}); });
  differing.refused("the calls differ: rank 0 calls context_attention, rank {} calls Group::barrier", [&] {
    if (other) {
      group->barrier();
    } else {
      attend(x, {}, {});
    }
  });
  // Equal values in other memory make the same call.
  attend(x, {}, {.alibi_slopes = other ? at::linspace(0.1, 0.5, heads).clone() : slopes});
}

void make_passes_in_other_orders(const std::shared_ptr<Group>& group, const std::string& method) {
  const auto by = method == "gather"  ? ContextMethod::Gather
                  : method == "heads" ? ContextMethod::Heads
                                      : ContextMethod::Ring;
  std::vector<at::Tensor> sums;
  for (const int64_t tokens : {8, 64}) {
    const auto x = at::rand({1, 2 * group->size(), tokens, 4}).requires_grad_();
    sums.push_back(context_attention(x, x, x, group, {}, {}, by).output.sum());
  }
  if (group->rank() == 0) std::swap(sums[0], sums[1]);
  for (const auto& sum : sums) sum.backward();
}

void check_sums(const std::shared_ptr<Group>& group) {
  const int64_t size = group->size(), rank = group->rank();
  const auto check = [&](const at::Tensor& summed, const at::Tensor& of_rank_0, const std::string& what) {
    // of_rank_0 (n) + rank, summed: n W + W (W - 1) / 2
    group->sum(summed);
    expect(at::equal(summed, (of_rank_0 * size + size * (size - 1) / 2).to(summed.scalar_type())), what);
  };
  const auto numbers = at::arange(6, at::kDouble);
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kChar, at::kByte}) {
    check((numbers + rank).to(dtype), numbers, c10::toString(dtype));
  }
  for (const auto dtype : {at::kShort, at::kBool, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble,
                           at::ScalarType::Float8_e4m3fn, at::ScalarType::Float8_e5m2}) {
    try {
      group->sum(at::zeros({2}).to(dtype));
      expect(false, std::string("not refused: ") + c10::toString(dtype));
    } catch (const c10::ValueError& error) {
      const std::string line = error.what_without_backtrace();
      expect(line.ends_with(std::string("Char or Byte, got ") + c10::toString(dtype)), line);
    }
  }
  const auto table = (numbers + rank).view({2, 3});
  check(table.clone().t(), numbers.view({2, 3}).t(), "transposed");
  const auto wide = at::zeros({2, 6}, at::kDouble);
  wide.slice(1, 0, 6, 2).copy_(table);
  check(wide.slice(1, 0, 6, 2), numbers.view({2, 3}), "slice");
  expect(at::equal(wide.slice(1, 1, 6, 2), at::zeros({2, 3}, at::kDouble)), "between the slice");
  check((numbers + rank).requires_grad_(), numbers, "leaf");
  check((numbers + rank)[3], numbers[3], "of no dimension");
  group->sum(at::zeros({0, 3}));
  const auto part =
      rank == 0 ? at::zeros({6}, at::kDouble) : at::imag(at::zeros({6}, at::kComplexDouble).conj());
  part.copy_(numbers + rank);
  check(part, numbers, "negated view");
  // A tensor with one element counts as contiguous, whatever its stride.
  const auto single =
      rank == 0 ? at::zeros({1}, at::kDouble) : at::imag(at::zeros({1}, at::kComplexDouble).conj());
  single.fill_(4.0 + static_cast<double>(rank));
  check(single, at::full({1}, 4.0, at::kDouble), "negated view of one number");

  const auto refused = [&](const char* text, const at::Tensor& tensor) {
    try {
      group->sum(tensor);
      expect(false, std::string("not refused: ") + text);
    } catch (const c10::ValueError& error) {
      const std::string line = error.what_without_backtrace();
      expect(line.find(text) != std::string::npos, line);
    }
  };
  refused("got an undefined one", at::Tensor());
  refused("expected a dense tensor", at::ones({2, 2}).to_sparse());
  refused("expected a dense tensor", at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8));
  refused("whose elements do not share memory, got shape (3, 2) with strides (0, 1)",
          at::ones({2}).expand({3, 2}));
  refused("whose elements do not share memory", at::ones({8}).unfold(0, 4, 1));

  for (const int64_t count : {1, 2}) {
    const auto gathered = group->gather(at::imag(at::full({count}, c10::complex<double>(1, 2)).conj()));
    for (const auto& other : gathered)
      expect(at::equal(other, at::full({count}, -2.0, at::kDouble)), "gathered");
  }
}

namespace {

// Layers, one of them in float64, one without a gradient for its bias, and one used twice.
struct Layers : torch::nn::Module {
  explicit Layers(bool backwards_) : backwards(backwards_) {
    for (int i = 0; i < 6; ++i)
      layers.push_back(register_module(fmt::format("layer{}", i), torch::nn::Linear(33, 33)));
    layers[2]->to(at::kDouble);
    layers[3]->bias.set_requires_grad(false);
    register_module("again", layers[0]);
  }
  at::Tensor loss(const at::Tensor& x) {
    auto y = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      auto layer = layers[backwards ? layers.size() - 1 - i : i];
      y = layer->forward(y.to(layer->weight.scalar_type())).tanh();
    }
    return layers[0]->forward(y.to(at::kFloat)).pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
  bool backwards;  // used in another order than the registration
};

}  // namespace

void check_same_gradients(const std::shared_ptr<Group>& group) {
  for (const bool backwards : {false, true}) {
    for (const int64_t bytes : {2'000, 10'000, 25 << 20}) {
      at::manual_seed(100 + group->rank());
      Layers model(backwards);
      DataParallel parallel(model, group, {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
      const auto x = at::randn({16, 33});
      std::vector<at::Tensor> first;
      for (int step = 0; step < 6; ++step) {
        model.zero_grad(/*set_to_none=*/step % 2 == 0);
        if (step == 3) {  // two halves give the gradients of the whole
          parallel.backward(model.loss(x) / 2, /*last=*/false);
          parallel.backward(model.loss(x) / 2);
        } else {
          parallel.backward(model.loss(x));
        }
        if (step == 4) group->gather(model.loss(x));
        std::vector<at::Tensor> gradients;
        for (const auto& parameter : model.parameters()) {
          if (parameter.requires_grad()) gradients.push_back(parameter.grad().clone());
        }
        if (step == 0) first = gradients;
        for (size_t i = 0; i < gradients.size(); ++i) {
          expect(at::equal(gradients[i], first[i]),
                 fmt::format("gradient {} of step {}, buckets of {} bytes", i, step, bytes));
        }
        const auto count = parallel.statistics();
        expect(group->size() == 1 || count.collectives == count.buckets, "a call for each bucket");
      }
    }
  }
}

}  // namespace attentive::test
