#include "distributed/context_scenarios.h"

#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/distributed/context_attention.h>
#include <attentive/distributed/data_parallel.h>
#include <attentive/models/gpt.h>
#include <attentive/score/score_mod.h>

#include "support/memory_meter.h"
#include "support/saved_tensor_hooks.h"

namespace attentive::test {
namespace {

constexpr int64_t kBatch = 2, kHeads = 8, kKeyHeads = 4, kTokens = 264, kFeatures = 16, kValues = 24;
constexpr uint64_t kSeed = 41;

struct Call {
  AttentionOptions options;
  AttentionExtras extras;
  at::Tensor bias;  // defined if it gets a gradient
  at::Device device = at::kCPU;

  // Tensors are drawn on the CPU, so that all processes have the same values.
  at::Tensor here(const at::Tensor& drawn) const { return drawn.to(device); }
};

struct Option {
  const char* name;
  std::function<void(Call&)> apply;
};

const std::vector<Option>& options() {
  static const auto per_pair = [] { return at::rand({kTokens, kTokens}).gt(0.4); };
  static const std::vector<Option> all = {
      {"nothing", [](Call&) {}},
      {"causal", [](Call& c) { c.options.causal = Causal::BottomRight; }},
      {"causal from the top left", [](Call& c) { c.options.causal = Causal::TopLeft; }},
      {"causal window",
       [](Call& c) {
         c.options = {.causal = Causal::BottomRight, .window = {50, 0}};
       }},
      {"window on both sides",
       [](Call& c) {
         c.options.window = {30, 70};
       }},
      {"scale and softcap", [](Call& c) { c.options = {.scale = 0.3, .softcap = 2.0}; }},
      {"softmax plus one",
       [](Call& c) { c.options = {.causal = Causal::BottomRight, .softmax_plus_one = true}; }},
      {"ALiBi", [](Call& c) { c.extras.alibi_slopes = c.here(at::linspace(0.01, 0.5, kHeads)); }},
      {"causal ALiBi",
       [](Call& c) {
         c.options.causal = Causal::BottomRight;
         c.extras.alibi_slopes = c.here(at::linspace(0.01, 0.5, kBatch * kHeads).view({kBatch, kHeads}));
       }},
      {"sinks",
       [](Call& c) {
         c.options.causal = Causal::BottomRight;
         c.extras.sinks = c.here(at::linspace(-1, 2, kHeads)).requires_grad_();
       }},
      {"sinks and no key at all",
       [](Call& c) {
         c.extras.sinks = c.here(at::linspace(-1, 2, kHeads)).requires_grad_();
         c.extras.mask = Mask::key_lengths(c.here(at::tensor({int64_t{0}, kTokens}, at::kLong)));
       }},
      {"key lengths",
       [](Call& c) {
         c.extras.mask = Mask::key_lengths(c.here(at::tensor({kTokens - 60, int64_t{3}}, at::kLong)));
       }},
      {"no key at all",
       [](Call& c) {
         c.extras.mask = Mask::key_lengths(c.here(at::tensor({int64_t{0}, kTokens}, at::kLong)));
       }},
      {"key mask",
       [](Call& c) {
         c.extras.mask = Mask::key_keep(c.here(at::rand({kBatch, kTokens}).gt(0.3)));
       }},
      {"pairs", [](Call& c) { c.extras.mask = Mask::keep(c.here(per_pair())); }},
      {"pairs per head",
       [](Call& c) {
         c.extras.mask = Mask::per_head(c.here(at::rand({kHeads, kTokens, kTokens}).gt(0.4)));
       }},
      {"bias",
       [](Call& c) {
         c.options.causal = Causal::BottomRight;
         c.extras.mask = Mask::bias(c.here(at::randn({1, kHeads, kTokens, kTokens})));
       }},
      {"bias with a gradient",
       [](Call& c) {
         c.bias = c.here(at::randn({kTokens, kTokens})).requires_grad_();
         c.extras.mask = Mask::bias(c.bias);
       }},
      {"slopes with a gradient",
       [](Call& c) { c.extras.alibi_slopes = c.here(at::rand({kHeads})).requires_grad_(); }},
      {"score function",
       [](Call& c) {
         const auto table = captured(c.here(at::randn({kHeads, kTokens})));
         c.extras.score = score_mod(
             [=](auto s, auto pair) {
               return s + table(pair.head, pair.key) -
                      0.01f * abs(pair.query - pair.key) * where(pair.batch == 0, 1, 2);
             },
             "table");
       }},
      {"mask function",
       [](Call& c) {
         c.extras.block_mask = mask_mod(
             [](auto pair) { return (pair.query >= pair.key) | (pair.key >= pair.keys - 9); }, "prefix");
       }},
      {"dropout", [](Call& c) { c.options = {.causal = Causal::BottomRight, .dropout_p = 0.3}; }},
  };
  return all;
}

struct Tensors {
  at::Tensor q, k, v, of_output, of_logsumexp;
};

Tensors whole_tensors(at::ScalarType type, const at::Device& device) {
  at::manual_seed(kSeed);
  const auto normal = [&](int64_t heads, int64_t features) {
    return at::randn({kBatch, heads, kTokens, features}, at::kDouble).to(device, type);
  };
  return {normal(kHeads, kFeatures), normal(kKeyHeads, kFeatures), normal(kKeyHeads, kValues),
          normal(kHeads, kValues), at::randn({kBatch, kHeads, kTokens}, at::kDouble).to(device)};
}

bool has_learned_slopes(const Call& call) {
  return call.extras.alibi_slopes.defined() && call.extras.alibi_slopes.requires_grad();
}

// Output, logsumexp and the gradients of q, k, v, and of sinks, bias or slopes.
using Results = std::vector<at::Tensor>;

Results run(
    const Tensors& t, const Call& call,
    const std::function<AttentionResult(const at::Tensor&, const at::Tensor&, const at::Tensor&)>& attend) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : {t.q, t.k, t.v}) leaves.push_back(x.detach().requires_grad_());
  at::manual_seed(7);  // seeds dropout
  const auto result = attend(leaves[0], leaves[1], leaves[2]);
  for (const auto& x : {call.extras.sinks, call.bias}) {
    if (x.defined()) leaves.push_back(x);
  }
  if (has_learned_slopes(call)) leaves.push_back(call.extras.alibi_slopes);
  const auto finite =
      result.logsumexp.masked_fill(result.logsumexp.eq(-std::numeric_limits<double>::infinity()), 0.0);
  Results all{result.output.detach(), finite.detach()};
  const auto gradients = torch::autograd::grad({result.output, finite}, leaves,
                                               {t.of_output, t.of_logsumexp.to(finite.scalar_type())});
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

constexpr std::array kNames = {"output", "logsumexp", "dq", "dk", "dv", "sinks, bias or slopes"};

double largest_error(const at::Tensor& got, const at::Tensor& want) {
  const auto scale = std::max(1.0, want.to(at::kDouble).abs().max().item<double>());
  return (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>() / scale;
}

Call call_of(const Option& option, at::ScalarType type, const at::Device& device) {
  at::manual_seed(kSeed + 1);
  Call call;
  call.device = device;
  option.apply(call);
  // On CUDA, the default stream of one process depends on the backend, so the stream is set explicitly.
  if (device.is_cuda()) call.options.dropout_stream = DropoutStream::Counter;
  call.extras.logsumexp = true;
  if (type != at::kDouble) return call;
  const auto widen = [](const at::Tensor& x) { return x.detach().to(at::kDouble).requires_grad_(); };
  if (call.extras.sinks.defined()) call.extras.sinks = widen(call.extras.sinks);
  if (call.bias.defined()) call.extras.mask = Mask::bias(call.bias = widen(call.bias));
  if (has_learned_slopes(call)) call.extras.alibi_slopes = widen(call.extras.alibi_slopes);
  return call;
}

struct Comparison {
  std::shared_ptr<Group> group;
  ContextMethod method;
  at::ScalarType type;
  Tensors whole = whole_tensors(type, group->device());

  Results here(const Call& call) const {
    const auto shard = [&](const at::Tensor& x) { return zigzag_shard(x, *group, 2); };
    const Tensors shards{shard(whole.q), shard(whole.k), shard(whole.v), shard(whole.of_output),
                         shard(whole.of_logsumexp)};
    auto results = run(shards, call, [&](const auto& q, const auto& k, const auto& v) {
      at::manual_seed(7 + group->rank());  // only rank 0's seed matters for dropout
      return context_attention(q, k, v, group, call.options, call.extras, method);
    });
    for (size_t i = 0; i < 5; ++i) results[i] = zigzag_gather(results[i], *group, 2);
    for (size_t i = 5; i < results.size(); ++i) group->sum(results[i]);
    return results;
  }

  static Results alone(const Tensors& tensors, const Call& call) {
    return run(tensors, call, [&](const auto& q, const auto& k, const auto& v) {
      return attention(q, k, v, call.options, call.extras);
    });
  }

  // LibTorch's products compute float64, and their bits depend on the number of rows. With a window, tiles of
  // keys begin at the first query of a block, which depends on the part; calls with a score or mask function
  // are rounded differently in parts as well. On CUDA, kernels depend on the sizes.
  bool equal_bits(const Call& call, size_t i) const {
    const bool functions = call.extras.score || call.extras.block_mask;
    if (method == ContextMethod::Ring || i > 4 || call.device.is_cuda()) return false;
    return method == ContextMethod::Heads ||
           (i < 2 && type == at::kFloat && call.options.window.left < 0 && !functions);
  }

  // All processes gather the results; one of them, in turn, computes those of a single process and compares.
  std::string check(const Option& option, int64_t turn) const {
    const auto call = call_of(option, type, group->device());
    const bool learned = call.bias.defined() || has_learned_slopes(call);
    if (method == ContextMethod::Ring && (call.options.dropout_p > 0 || learned)) return "";
    const auto got = here(call);
    if (type == at::kFloat && group->size() == 2) {
      const SavedTensorHooksGuard turned(kSavedTensorHooks[1]);
      const auto again = here(call);
      for (size_t i = 0; i < got.size(); ++i) {
        const auto error = largest_error(again[i], got[i]);
        if (!(error <= 1e-6))
          return fmt::format("{}: {} is {} off with hooks of saved tensors; ", option.name, kNames[i], error);
      }
    }
    if (turn % group->size() != group->rank()) return "";
    const auto want = alone(whole, call);
    if (type == at::kBFloat16) return check_rounded(option, got, want);
    const double allowed = (type == at::kDouble ? 1e-13 : 1e-6) * (call.device.is_cuda() ? 10 : 1);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto error = largest_error(got[i], want[i]);
      if (equal_bits(call, i) ? !at::equal(got[i], want[i]) : !(error <= allowed))
        return fmt::format("{}: {} is {} off; ", option.name, kNames[i], error);
    }
    return "";
  }

  // Allows 1.5 times the error of one process.
  std::string check_rounded(const Option& option, const Results& got, const Results& want) const {
    auto exact = whole;
    for (auto* x : {&exact.q, &exact.k, &exact.v, &exact.of_output}) *x = x->to(at::kDouble);
    auto call = call_of(option, type, group->device());
    call.options.dropout_stream = DropoutStream::Counter;
    const auto truth = alone(exact, call);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto error = largest_error(got[i], truth[i]), alone = largest_error(want[i], truth[i]);
      if (!(error <= 1.5 * alone))
        return fmt::format("{}: {} is {} off, one process {}; ", option.name, kNames[i], error, alone);
    }
    return "";
  }
};

ContextMethod method_of(const std::string& name) {
  for (const auto method : {ContextMethod::Gather, ContextMethod::Heads, ContextMethod::Ring}) {
    if (to_string(method) == name) return method;
  }
  throw std::runtime_error("no method " + name);
}

void check_same(const std::shared_ptr<Group>& group, const std::string& method) {
  std::string wrong;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    if (group->size() == 3 && type != at::kFloat) continue;  // 2 and 4 processes test the other dtypes
    const Comparison comparison{group, method_of(method), type};
    int64_t turn = 0;
    for (const auto& option : options()) {
      const auto found = comparison.check(option, turn++);
      if (!found.empty()) wrong += fmt::format("{} {}", c10::toString(type), found);
    }
  }
  if (!wrong.empty()) throw std::runtime_error("wrong: " + wrong);
  std::printf("%d options\n", static_cast<int>(options().size()));
}

// Checks that the losses and gradients of a model over parts of each sequence equal those of the whole.
void check_gpt(const std::shared_ptr<Group>& group, const std::string& method) {
  for (const auto positions : {GPTPositions::Learned, GPTPositions::Rotary}) {
    at::manual_seed(kSeed);
    GPT model(GPTOptions(/*vocab_size=*/31, /*context_length=*/48, /*emb_dim=*/32, /*num_heads=*/4,
                         /*num_layers=*/2)
                  .positions(positions));
    const auto device = group->device();
    model->to(device);
    const auto ids = at::randint(31, {2, 48}).to(device), targets = at::randint(31, {2, 48}).to(device);
    model->loss(ids, targets).backward();
    std::vector<at::Tensor> want;
    for (const auto& parameter : model->parameters()) want.push_back(parameter.grad().clone());
    const auto loss = model->loss(ids, targets).item<double>();

    DataParallel parallel(*model, group);
    model->set_context(std::make_shared<ContextParallel>(group, method_of(method)));
    model->zero_grad();
    const auto part = model->loss(zigzag_shard(ids, *group, 1), zigzag_shard(targets, *group, 1));
    parallel.backward(part);
    auto mean = part.detach().to(at::kDouble).reshape({1}) / group->size();
    group->sum(mean);
    double worst = std::abs(mean.item<double>() - loss);
    for (size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, (model->parameters()[i].grad() - want[i]).abs().max().item<double>());
    if (!(worst <= (device.is_cuda() ? 1e-5 : 1e-6)))
      throw std::runtime_error(fmt::format("wrong: {} off", worst));
    try {
      const auto cache = model->make_cache(2);
      model->forward_cached(ids.slice(1, 0, 4), *cache);
      throw std::runtime_error("wrong: a cache was taken");
    } catch (const c10::ValueError&) {
    }
  }
}

// Runs forward and backward over T tokens and prints the most tensor memory beyond the inputs: of one process
// with the whole sequence, and of each of several processes with its part.
void compare_memory(const std::shared_ptr<Group>& group, const std::string& detail) {
  const auto space = detail.find(' ');
  const auto method = method_of(detail.substr(0, space));
  const int64_t tokens = std::stoll(detail.substr(space + 1)), size = group->size();
  const auto peak = [](int64_t length, const auto& attend) {
    std::vector<at::Tensor> x;
    for (int i = 0; i < 3; ++i) x.push_back(at::rand({1, 4, length, 16}).requires_grad_());
    const auto direction = at::rand({1, 4, length, 16});
    const MemoryMeter meter;
    torch::autograd::grad({attend(x[0], x[1], x[2])}, x, {direction});
    return static_cast<double>(meter.peak()) / 0x1p20;
  };
  const AttentionOptions options{.causal = Causal::BottomRight};
  const auto here = [&](const auto& q, const auto& k, const auto& v) {
    return context_attention(q, k, v, group, options, {}, method).output;
  };
  const auto several = peak(tokens / size, here);
  const auto alone = group->rank() > 0 ? 0.0 : peak(tokens, [&](const auto& q, const auto& k, const auto& v) {
    return attention(q, k, v, options);
  });
  group->barrier();
  std::printf("alone %.1f MiB, here %.1f MiB\n", alone, several);
}

// Every call is refused by all processes before anything is sent, so the next call works.
void check_refused(const std::shared_ptr<Group>& group) {
  const auto x = at::rand({1, 3, 8, 4});
  const auto says = [&](const char* text, const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::ValueError& error) {
      if (std::string(error.what()).find(text) != std::string::npos) return;
      throw std::runtime_error(std::string("wrong: ") + error.what_without_backtrace());
    }
    throw std::runtime_error(std::string("wrong: not refused: ") + text);
  };
  const auto refuses = [&](const char* text, const AttentionOptions& o, const AttentionExtras& e,
                           ContextMethod m) {
    says(text, [&] { context_attention(x, x, x, group, o, e, m); });
  };
  refuses("multiple of the 2 processes", {}, {}, ContextMethod::Heads);
  refuses("dropout_p = 0", {.dropout_p = 0.1}, {}, ContextMethod::Ring);
  refuses("weights", {}, {.weights = Weights::Clean}, ContextMethod::Gather);
  refuses("DropoutStream::Counter", {.dropout_p = 0.1, .dropout_stream = DropoutStream::Aten}, {},
          ContextMethod::Gather);
  refuses("a bias without a gradient", {}, {.mask = Mask::bias(at::zeros({16, 16}).requires_grad_())},
          ContextMethod::Ring);
  refuses("alibi_slopes without a gradient", {}, {.alibi_slopes = at::ones({3}).requires_grad_()},
          ContextMethod::Ring);
  refuses("to broadcast to (1, 3, 16, 16)", {}, {.mask = Mask::keep(at::ones({8, 8}, at::kBool))},
          ContextMethod::Ring);
  refuses("scale: ", {.scale = 1.0 + group->rank()}, {}, ContextMethod::Gather);
  const auto odd = at::rand({1, 3, 7, 4}), more = at::rand({1, 3, 8 + 2 * group->rank(), 4});
  says("a multiple of 2, got 7", [&] { context_attention(odd, odd, odd, group); });
  says("the calls differ: ", [&] { context_attention(more, more, more, group); });
  says("the same tokens, got 8 and 7", [&] { context_attention(x, odd, odd, group); });
  says("of shape (B, heads, tokens, features)", [&] { context_attention(x[0], x[0], x[0], group); });
  const auto elsewhere = x.to(at::kMeta);
  says("expected tensors on the CPU, got them on meta",
       [&] { context_attention(elsewhere, elsewhere, elsewhere, group); });
  says("expected a group", [&] { context_attention(x, x, x, nullptr); });
  says("a multiple of 4, got 6", [&] { zigzag_shard(at::arange(6), *group, 0); });
  says("a multiple of 4, got 6", [&] { zigzag_positions(6, *group); });
  says("a dimension of a tensor of rank 1", [&] { zigzag_shard(at::arange(8), *group, 1); });
  if (!at::equal(zigzag_positions(8, *group),
                 group->rank() == 0 ? at::tensor({0, 1, 6, 7}) : at::tensor({2, 3, 4, 5})))
    throw std::runtime_error("wrong: positions");
  if (!at::equal(zigzag_gather(zigzag_positions(8, *group), *group, 0), at::arange(8)))
    throw std::runtime_error("wrong: order");
  context_attention(x, x, x, group, {}, {}, ContextMethod::Ring);
}

// Gradients that are computed with a graph are those of the definition, equal within rounding;
// differentiating them again gives a clear error.
void check_twice(const std::shared_ptr<Group>& group, const std::string& method) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto whole = whole_tensors(type, group->device());
    Tensors shards = whole;
    for (auto* x : {&shards.q, &shards.k, &shards.v})
      *x = zigzag_shard(x->detach(), *group, 2).requires_grad_();
    const auto y = context_attention(shards.q, shards.k, shards.v, group, {.causal = Causal::BottomRight}, {},
                                     method_of(method));
    const std::vector<at::Tensor> leaves = {shards.q, shards.k, shards.v};
    const auto loss = y.output.square().sum();
    const auto plain = torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/true);
    const auto linked = torch::autograd::grad({loss}, leaves, {}, true, /*create_graph=*/true);
    const double near = type == at::kBFloat16 ? 5e-2 : 1e-4;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!linked[i].allclose(plain[i], near, near))
        throw std::runtime_error("wrong: another first derivative");
      // The gradient of q stays in its process, and dtypes that are not widened for sums give the same bits.
      const bool local = method == "gather" && i == 0 && type != at::kBFloat16;
      try {
        torch::autograd::grad({linked[i].square().sum()}, {leaves[i]}, {}, /*retain_graph=*/true);
      } catch (const c10::NotImplementedError& error) {
        const std::string text = error.what_without_backtrace();
        if (text.starts_with(
                local ? "attention: backend "
                      : "context_attention: a call over several processes has no second derivative") &&
            text.ends_with("through Backend::Reference"))
          continue;
        throw std::runtime_error("wrong: " + text);
      }
      if (!local) throw std::runtime_error("wrong: differentiated twice");
    }
  }
}

}  // namespace

void context_scenario(const std::shared_ptr<Group>& group, const std::string& what,
                      const std::string& detail) {
  if (what == "same") return check_same(group, detail);
  if (what == "gpt") return check_gpt(group, detail);
  if (what == "refused") return check_refused(group);
  if (what == "twice") return check_twice(group, detail);
  if (what == "memory") return compare_memory(group, detail);
  if (what != "for_ever") throw std::runtime_error("no scenario " + what);
  const auto x = at::rand({1, 2, 512, 16}).to(group->device());
  for (bool first = true;; first = false) {
    context_attention(x, x, x, group, {.causal = Causal::BottomRight}, {}, ContextMethod::Ring);
    if (first) {
      std::printf("started\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace attentive::test
