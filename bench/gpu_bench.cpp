// Attention on a GPU for several lengths, head sizes and options, compared with each of PyTorch's kernels and
// with a composition of single operations.

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "suites.h"

namespace bench {
namespace {

using attentive::AttentionExtras;
using attentive::AttentionOptions;
using attentive::Backend;
using attentive::Causal;

constexpr int64_t kHeads = 16;
constexpr int64_t kKeyHeads = 4;  // in the decoding cases
constexpr int64_t kDocuments = 8;

enum class Kernel { Flash, Efficient, Cudnn };
constexpr Kernel kKernels[] = {Kernel::Flash, Kernel::Efficient, Kernel::Cudnn};

std::string to_string(Kernel kernel) {
  return kernel == Kernel::Flash       ? "torch flash"
         : kernel == Kernel::Efficient ? "torch efficient"
                                       : "torch cuDNN";
}

/// Forces PyTorch's function to use one kernel or to refuse the call.
class OnlyKernel {
 public:
  explicit OnlyKernel(Kernel kernel) {
    context_.setSDPUseFlash(kernel == Kernel::Flash);
    context_.setSDPUseMemEfficient(kernel == Kernel::Efficient);
    context_.setSDPUseCuDNN(kernel == Kernel::Cudnn);
    context_.setSDPUseMath(false);
  }
  ~OnlyKernel() {
    context_.setSDPUseFlash(flash_);
    context_.setSDPUseMemEfficient(efficient_);
    context_.setSDPUseCuDNN(cudnn_);
    context_.setSDPUseMath(math_);
  }
  OnlyKernel(const OnlyKernel&) = delete;
  OnlyKernel& operator=(const OnlyKernel&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  bool flash_ = context_.userEnabledFlashSDP(), efficient_ = context_.userEnabledMemEfficientSDP(),
       cudnn_ = context_.userEnabledCuDNNSDP(), math_ = context_.userEnabledMathSDP();
};

using Forward = std::function<at::Tensor(const Qkv&)>;

/// One computation, expressed for this package, for single operations and for PyTorch's function.
struct Task {
  std::string name;
  double flops = 0;
  std::function<at::Tensor(const Qkv&, Backend)> package;
  Composition composition = {};
  bool causal_alone = false;  ///< no options except the causal order and dropout
  std::string chosen = {};    ///< the backend that Auto chooses
};

Task task_of(std::string name, const Qkv& x, double flops, const AttentionOptions& options,
             const Composition& composition, const AttentionExtras& extras = {}) {
  const auto package = [=](const Qkv& in, Backend backend) {
    auto forced = options;
    forced.backend = backend;
    return attentive::attention(in.q, in.k, in.v, forced, extras).output;
  };
  return {std::move(name),
          flops,
          package,
          composition,
          false,
          std::string(attentive::to_string(attentive::explain(x.q, x.k, x.v, options, extras).chosen))};
}

/// Single operations in float32, one head at a time, because the scores of all heads do not fit in memory.
/// Returns the output and, given an output gradient, the gradients.
Tensors expected(const Qkv& x, const Composition& composition, const at::Tensor& grad) {
  const auto heads = x.q.size(1), group = heads / x.k.size(1);
  std::vector<Tensors> results;
  for (int64_t h = 0; h < heads; ++h) {
    const auto part = [&](const at::Tensor& t, int64_t head) {
      return t.detach().narrow(1, head, 1).to(at::kFloat).requires_grad_(grad.defined());
    };
    const Qkv one{part(x.q, h), part(x.k, h / group), part(x.v, h / group)};
    Composition head_composition = composition;
    if (head_composition.bias.defined()) head_composition.bias = head_composition.bias.narrow(1, h, 1);
    if (head_composition.sinks.defined()) head_composition.sinks = head_composition.sinks.narrow(0, h, 1);
    if (!grad.defined()) {
      results.push_back({composed(one, head_composition)});
    } else {
      results.push_back(
          with_backward(one, part(grad, h).detach(), [&] { return composed(one, head_composition); })());
    }
  }
  Tensors whole;
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    Tensors parts;
    for (const auto& result : results) parts.push_back(result[i]);
    whole.push_back(at::cat(parts, 1));
  }
  return whole;
}

double allowed(at::ScalarType type) {
  return type == at::kBFloat16 ? 3e-2 : 1e-3;
}

/// The mask that PyTorch's function needs; undefined if no mask can express the options.
at::Tensor peer_mask(const Composition& composition, at::ScalarType type) {
  if (composition.softcap > 0 || composition.sinks.defined() || !composition.hidden.defined()) return {};
  if (!composition.bias.defined()) return composition.hidden.logical_not();
  return composition.bias.masked_fill(composition.hidden, -std::numeric_limits<double>::infinity()).to(type);
}

std::vector<std::pair<std::string, Forward>> peers(const Task& task, at::ScalarType type) {
  std::vector<std::pair<std::string, Forward>> found;
  if (task.causal_alone) {
    for (const auto kernel : kKernels) {
      found.emplace_back(to_string(kernel), [kernel, p = task.composition.dropout_p](const Qkv& x) {
        const OnlyKernel only(kernel);
        return sdpa(x, true, p);
      });
    }
  } else if (const auto mask = peer_mask(task.composition, type); mask.defined()) {
    found.emplace_back("torch efficient + mask", [mask](const Qkv& x) {
      const OnlyKernel only(Kernel::Efficient);
      return at::scaled_dot_product_attention(x.q, x.k, x.v, mask);
    });
  }
  return found;
}

void run(Runner& runner, Case c, const Task& task, const Qkv& x, bool gradients) {
  const auto type = x.q.scalar_type();
  const at::AutoGradMode mode(gradients);
  const auto grad = gradients ? at::randn_like(x.q) : at::Tensor();
  const auto add = [&](const std::string& name, const Forward& forward, MayRefuse may_refuse) {
    if (gradients) {
      c.contenders.push_back({name, with_backward(x, grad, [=] { return forward(x); }), may_refuse});
    } else {
      c.contenders.push_back({name, [=] { return Tensors{forward(x)}; }, may_refuse});
    }
  };
  const auto by = [&](Backend backend) {
    return [package = task.package, backend](const Qkv& in) { return package(in, backend); };
  };
  add(task.chosen.empty() ? "attentive" : fmt::format("attentive ({})", task.chosen), by(Backend::Auto),
      MayRefuse::Never);
  add("attentive, Native forced", by(Backend::Native), MayRefuse::Always);
  for (const auto& [name, forward] : peers(task, type)) add(name, forward, MayRefuse::Always);
  add(
      "composed", [c = task.composition](const Qkv& in) { return composed(in, c); }, MayRefuse::ForMemory);
  const auto package = c.contenders[0].run;
  if (task.composition.dropout_p > 0) {
    c.check = [=, p = task.composition.dropout_p] { return same_drops(x, grad, p); };
  } else {
    c.check = [=, composition = task.composition] {
      return Check{"composed in float32, head by head", difference(package(), expected(x, composition, grad)),
                   allowed(type)};
    };
  }
  runner.run(c);
}

Task causal_task(const Qkv& x, const Shape& shape, double dropout_p) {
  AttentionOptions options{.causal = Causal::BottomRight};
  options.dropout_p = dropout_p;
  auto task = task_of(dropout_p > 0 ? "dropout" : "causal", x, attention_flops(shape, true), options,
                      {.hidden = hidden_by(shape.T, {}, x.q.device()), .dropout_p = dropout_p});
  task.causal_alone = true;
  return task;
}

/// Packed documents of equal length: a query sees its own document up to itself.
Task documents_task(const Qkv& x, const Shape& shape) {
  const auto length = shape.T / kDocuments, used = length * kDocuments;
  const auto ends = at::arange(0, used + 1, length, at::kLong);
  const auto document = at::arange(shape.T, x.q.options().dtype(at::kLong)).div(length, "floor");
  const auto apart = document.unsqueeze(1) != document.unsqueeze(0);
  const auto package = [=](const Qkv& in, Backend backend) {
    const auto packed = [](const at::Tensor& t) { return t.squeeze(0).transpose(0, 1); };
    AttentionOptions options{.causal = Causal::BottomRight};
    options.backend = backend;
    return attentive::attention_varlen(packed(in.q), packed(in.k), packed(in.v), ends, ends, options)
        .output.transpose(0, 1)
        .unsqueeze(0);
  };
  return {"documents",
          kDocuments * attention_flops({shape.B, shape.H, length, shape.D}, true),
          package,
          {.hidden = apart.logical_or_(hidden_by(shape.T, {}, x.q.device()))}};
}

std::vector<std::function<Task(const Qkv&, const Shape&)>> option_tasks() {
  const auto causal = [](const Qkv& x, const Shape& shape) { return hidden_by(shape.T, {}, x.q.device()); };
  const auto numbers = [](const Qkv& x) { return x.q.options().dtype(at::kFloat).requires_grad(false); };
  return {
      [](const Qkv& x, const Shape& shape) {
        const auto width = std::min(kWindow, shape.T);
        return task_of("window 256", x, window_flops(shape, width),
                       {.causal = Causal::BottomRight, .window = {width - 1, 0}},
                       {.hidden = hidden_by(shape.T, width, x.q.device())});
      },
      [=](const Qkv& x, const Shape& shape) {
        return task_of("softcap", x, attention_flops(shape, true),
                       {.causal = Causal::BottomRight, .softcap = kSoftcap},
                       {.hidden = causal(x, shape), .softcap = kSoftcap});
      },
      [=](const Qkv& x, const Shape& shape) {
        const auto slopes = attentive::alibi_slopes(shape.H).to(numbers(x));
        return task_of("ALiBi", x, attention_flops(shape, true), {.causal = Causal::BottomRight},
                       {.hidden = causal(x, shape), .bias = alibi_bias(slopes, shape.T)},
                       {.alibi_slopes = slopes});
      },
      [=](const Qkv& x, const Shape& shape) {
        const auto sinks = at::linspace(-1, 1, shape.H, numbers(x));
        return task_of("sinks", x, attention_flops(shape, true), {.causal = Causal::BottomRight},
                       {.hidden = causal(x, shape), .sinks = sinks}, {.sinks = sinks});
      },
      [=](const Qkv& x, const Shape& shape) {
        const auto keep = at::rand({shape.T, shape.T}, numbers(x)).lt_(0.9).to(at::kBool);
        keep.diagonal().fill_(true);
        return task_of("keep mask", x, attention_flops(shape, true), {.causal = Causal::BottomRight},
                       {.hidden = keep.logical_not().logical_or_(causal(x, shape))},
                       {.mask = attentive::Mask::keep(keep)});
      },
      documents_task,
      [](const Qkv& x, const Shape& shape) { return causal_task(x, shape, kDropout); },
  };
}

template <class Numbers>
std::vector<int64_t> chosen(const std::vector<int64_t>& asked, const Numbers& defaults) {
  return asked.empty() ? std::vector<int64_t>(std::begin(defaults), std::end(defaults)) : asked;
}

using MakeTask = std::function<Task(const Qkv&, const Shape&)>;

void run_over(Runner& runner, const std::string& suite, const std::vector<MakeTask>& tasks,
              const std::vector<int64_t>& tokens) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    if (!runner.wants(type)) continue;
    for (const auto D : chosen(runner.settings().head_dims, std::vector<int64_t>{64, 128})) {
      for (const auto T : chosen(runner.settings().tokens, tokens)) {
        const Shape shape{1, kHeads, T, D};
        for (const bool gradients : {false, true}) {
          const auto x = make_qkv(shape, type, gradients, runner.settings().device);
          for (const auto& make : tasks) {
            const auto task = make(x, shape);
            if (task.composition.dropout_p > 0 && !gradients) continue;
            Case c{suite,
                   fmt::format("{} {} T={} D{}", task.name, gradients ? "fwd+bwd" : "fwd", token_count(T), D),
                   type_name(type), limit_of(type), task.flops * (gradients ? kWithBackward : 1)};
            if (runner.wants(c)) run(runner, std::move(c), task, x, gradients);
          }
        }
      }
    }
  }
}

}  // namespace

void gpu_grid_suite(Runner& runner) {
  run_over(runner, "gpu-grid", {[](const Qkv& x, const Shape& shape) { return causal_task(x, shape, 0.0); }},
           {512, 1024, 2048, 4096, 8192, 16384});
}

void gpu_options_suite(Runner& runner) {
  run_over(runner, "gpu-options", option_tasks(), {2048, 8192});
}

void gpu_decode_suite(Runner& runner) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    if (!runner.wants(type)) continue;
    for (const auto D : chosen(runner.settings().head_dims, std::vector<int64_t>{64, 128})) {
      for (const auto keys : chosen(runner.settings().tokens, std::vector<int64_t>{1024, 8192, 32768})) {
        Case c{"gpu-decode", fmt::format("{}/{} heads, {} keys D{}", kHeads, kKeyHeads, token_count(keys), D),
               type_name(type), Limit::Read,
               2.0 * static_cast<double>(kKeyHeads * keys * D) * static_cast<double>(c10::elementSize(type))};
        if (!runner.wants(c)) continue;
        auto x = make_qkv({1, kHeads, keys, D}, type, false, runner.settings().device);
        x = {x.q.narrow(2, 0, 1).contiguous(), x.k.narrow(1, 0, kKeyHeads).contiguous(),
             x.v.narrow(1, 0, kKeyHeads).contiguous()};
        auto task = task_of("decode", x, 0, {.causal = Causal::BottomRight}, {});
        const at::NoGradGuard no_grad;
        const auto repeated = [](const Qkv& in) {
          return Qkv{in.q, in.k.repeat_interleave(kHeads / kKeyHeads, 1),
                     in.v.repeat_interleave(kHeads / kKeyHeads, 1)};
        };
        c.contenders = {
            {fmt::format("attentive ({})", task.chosen),
             [=] { return Tensors{task.package(x, Backend::Auto)}; }},
            {"attentive, Native forced", [=] { return Tensors{task.package(x, Backend::Native)}; },
             MayRefuse::Always},
            {"torch flash enable_gqa",
             [=] {
               const OnlyKernel only(Kernel::Flash);
               return Tensors{at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0.0, false, {}, true)};
             },
             MayRefuse::Always},
            {"torch sdpa, keys repeated", [=] { return Tensors{sdpa(repeated(x), false)}; },
             MayRefuse::ForMemory},
            {"composed", [=] { return Tensors{composed(repeated(x), Composition{})}; },
             MayRefuse::ForMemory}};
        const auto package = c.contenders[0].run;
        c.check = [=] {
          return Check{"composed in float32, head by head", difference(package(), expected(x, {}, {})),
                       allowed(type)};
        };
        runner.run(c);
      }
    }
  }
}

}  // namespace bench
