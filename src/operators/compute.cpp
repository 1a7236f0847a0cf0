#include "operators/compute.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "core/check.h"
#include "functional/dispatch.h"
#include "functional/problem_builder.h"
#include "kernels/dropout_counter.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/reference/backend.h"

namespace attentive::operators {
namespace {

namespace native_cpu = kernels::native_cpu;
using at::Tensor;
using kernels::Problem;

bool uses_native(const Problem& problem, Backend backend) {
  return (backend == Backend::Auto || backend == Backend::Native) && native_cpu::verdict(problem).can;
}

Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

int64_t state_size() {
  static const int64_t size = state_of(at::detail::createCPUGenerator()).size(0);
  return size;
}

// Gives a problem the random numbers of the call. An operator draws none: a compiler merges equal calls.
void take_dropout_key(const char* caller, const CallArguments& call, Problem& problem) {
  if (!problem.has_dropout()) return;
  const bool aten = problem.dropout_stream == DropoutStream::Aten;
  const auto& given = call.dropout_key;
  if (!given.defined() && problem.dropout_p == 1.0) {
    problem.dropout_key = 0;
    return;
  }
  const bool in_reach = given.defined() && (given.is_cpu() || given.device() == call.q.device());
  TORCH_CHECK_VALUE(in_reach && given.scalar_type() == (aten ? at::kByte : at::kLong) &&
                        given.dim() == (aten ? 1 : 0) && (!aten || given.size(0) == state_size()),
                    caller, ": expected dropout_key to be ",
                    aten ? "the state of a CPU generator (draw_dropout_state)"
                         : "one int64 number on the CPU (draw_dropout_key)",
                    ", got ", given.defined() ? describe(given) : "none");
  // A copy, because a generator that is set to a view, such as an item of a batch, reads beside it.
  const auto key = given.detach().to(at::kCPU, given.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  if (aten) {
    problem.generator = at::detail::createCPUGenerator();
    problem.generator->set_state(key);
  } else {
    problem.dropout_key = static_cast<uint64_t>(key.item<int64_t>());
  }
}

struct Computed {
  AttentionResult result;
  Tensor statistics;  // undefined if another backend computed the problem
};

// Writes the output to `output`.
Computed compute(const char* caller, const CallArguments& call, const Problem& problem, Backend backend,
                 const Tensor& output) {
  if (!uses_native(problem, backend)) {
    auto result = dispatch(caller, backend, problem);
    output.copy_(result.output);
    return {std::move(result), {}};
  }
  const native_cpu::PreparedCall native(problem, kernels::dropout_key_of(problem));
  const auto computed = native_cpu::compute(
      native.call, native.tensors,
      {.logsumexp = call.logsumexp, .statistics = call.for_backward, .weights = call.weights}, output);
  return {{computed.output, computed.weights, computed.logsumexp}, computed.statistics};
}

Gradients native_gradients(const Problem& problem, const BackwardArguments& arguments, const Tensor& output,
                           const Tensor& statistics, const AttentionResult& incoming) {
  const native_cpu::PreparedCall native(problem, kernels::dropout_key_of(problem));
  native_cpu::Wanted wanted;
  if (arguments.want_bias) wanted.want_bias(problem.bias, problem.q.scalar_type());
  if (arguments.want_alibi_slopes) wanted.slopes = problem.alibi_slopes.sizes();
  wanted.sinks = arguments.want_sinks;
  auto found =
      native_cpu::compute_gradients(native.call, native.tensors, {output, {}, statistics},
                                    native_cpu::incoming_of(incoming, output, problem.weights), wanted);
  return {found.q, found.k, found.v, found.bias, found.alibi_slopes, found.sinks};
}

Gradients recomputed_gradients(const char* caller, Problem problem, Backend backend,
                               const BackwardArguments& arguments, const AttentionResult& incoming) {
  const WithAutograd with_autograd;
  const std::pair<Tensor Problem::*, bool> terms[] = {{&Problem::q, true},
                                                      {&Problem::k, true},
                                                      {&Problem::v, true},
                                                      {&Problem::bias, arguments.want_bias},
                                                      {&Problem::alibi_slopes, arguments.want_alibi_slopes},
                                                      {&Problem::sinks, arguments.want_sinks}};
  for (const auto& [term, wanted] : terms) {
    auto& x = problem.*term;
    if (x.defined()) x = x.detach().requires_grad_(wanted);
  }
  auto found = kernels::reference::gradients_by_autograd(
      std::move(problem), incoming,
      [&](const Problem& of_leaves) { return dispatch(caller, backend, of_leaves); },
      /*create_graph=*/false);
  return {found.q, found.k, found.v, found.bias, found.alibi_slopes, found.sinks};
}

// The incoming gradients of the rank-4 problem.
AttentionResult of_rank_4(const AttentionResult& incoming, const Problem& problem) {
  const auto shaped = [&](const Tensor& x, at::IntArrayRef last) {
    if (!x.defined()) return x;
    at::DimVector sizes{problem.batch(), problem.heads(), problem.queries()};
    sizes.append(last.begin(), last.end());
    return x.reshape(sizes);
  };
  return {shaped(incoming.output, problem.value_dim()), shaped(incoming.weights, problem.keys()),
          shaped(incoming.logsumexp, {})};
}

// A packed call with its random numbers.
PackedCall packed_call_of(const CallArguments& call) {
  auto packed =
      packed_call(call.q, call.k, call.v, call.cu_seqlens_q, call.cu_seqlens_k, call.options, call.extras());
  take_dropout_key(name_of(Kind::Packed), call, packed.problem);
  return packed;
}

// Packed tokens (T, H, D) as the problem has them, (1, H, T, D), and back.
Tensor heads_first(const Tensor& x) {
  return x.defined() ? x.transpose(0, 1).unsqueeze(0) : x;
}
Tensor tokens_first(const Tensor& x) {
  return x.squeeze(0).transpose(0, 1);
}

using GradientsOfProblem =
    std::function<Gradients(const Problem&, Backend, const Tensor& output, const Tensor& statistics,
                            const AttentionResult& incoming)>;

Gradients padded_gradients(const BackwardArguments& arguments, const GradientsOfProblem& compute) {
  const auto& call = arguments.call;
  auto problem =
      normalize(name_of(Kind::Padded), call.q, call.k, call.v, call.options, call.extras()).problem;
  take_dropout_key(name_of(Kind::Padded), call, problem);
  const auto output =
      arguments.output.reshape({problem.batch(), problem.heads(), problem.queries(), problem.value_dim()});
  auto found = compute(problem, call.options.backend, output, arguments.statistics,
                       of_rank_4(arguments.incoming, problem));
  const auto shaped = [](Tensor& gradient, const Tensor& like) {
    if (gradient.defined()) gradient = gradient.reshape(like.sizes());
  };
  shaped(found.q, call.q);
  shaped(found.k, call.k);
  shaped(found.v, call.v);
  shaped(found.bias, call.bias);
  shaped(found.alibi_slopes, call.alibi_slopes);
  return found;
}

Gradients packed_gradients(const BackwardArguments& arguments, const GradientsOfProblem& compute) {
  const auto& call = arguments.call;
  const auto& incoming = arguments.incoming;
  const auto packed = packed_call_of(call);
  const auto of_rows = incoming.logsumexp.defined() ? incoming.logsumexp.unsqueeze(0) : Tensor();
  auto found = compute(packed.problem, packed.backend, heads_first(arguments.output),
                       arguments.statistics.unsqueeze(1), {heads_first(incoming.output), {}, of_rows});
  for (auto* gradient : {&found.q, &found.k, &found.v}) *gradient = tokens_first(*gradient);
  if (found.alibi_slopes.defined())
    found.alibi_slopes = found.alibi_slopes.reshape(call.alibi_slopes.sizes());
  return found;
}

Gradients gradients_of(Kind kind, const BackwardArguments& arguments, const GradientsOfProblem& compute) {
  return kind == Kind::Padded ? padded_gradients(arguments, compute) : packed_gradients(arguments, compute);
}

Results padded_forward(const CallArguments& call) {
  auto normal = normalize(name_of(Kind::Padded), call.q, call.k, call.v, call.options, call.extras());
  auto& problem = normal.problem;
  Results results;
  take_dropout_key(name_of(Kind::Padded), call, problem);
  results.output = output_like(call.q, call.v);
  const auto computed = compute(
      name_of(Kind::Padded), call, problem, call.options.backend,
      results.output.view({problem.batch(), problem.heads(), problem.queries(), problem.value_dim()}));
  const auto shaped = [&](const Tensor& x, std::initializer_list<int64_t> last) {
    std::vector<int64_t> sizes(normal.leading.begin(), normal.leading.end());
    sizes.insert(sizes.end(), last);
    return x.reshape(sizes).contiguous();
  };
  const auto floats = call.q.options().dtype(at::kFloat);
  results.weights = call.weights == Weights::None
                        ? nothing(call.q.options())
                        : shaped(computed.result.weights, {problem.queries(), problem.keys()});
  results.logsumexp = call.logsumexp ? shaped(computed.result.logsumexp, {problem.queries()})
                                     : nothing(call.q.options().dtype(wide_type(call.q)));
  results.statistics = computed.statistics;
  if (!results.statistics.defined()) {
    results.statistics = call.for_backward
                             ? at::zeros({2, problem.batch(), problem.heads(), problem.queries()}, floats)
                             : nothing(floats);
  }
  return results;
}

Results packed_forward(const CallArguments& call) {
  Results results;
  const auto packed = packed_call_of(call);
  const auto& q = call.q;
  const auto floats = q.options().dtype(at::kFloat);
  results.output = at::empty({q.size(0), q.size(1), call.v.size(2)}, q.options());
  const auto computed =
      compute(name_of(Kind::Packed), call, packed.problem, packed.backend, heads_first(results.output));
  results.logsumexp = call.logsumexp ? computed.result.logsumexp.squeeze(0).contiguous()
                                     : nothing(q.options().dtype(wide_type(q)));
  if (!call.for_backward) {
    results.statistics = nothing(floats);
  } else if (computed.statistics.defined()) {
    results.statistics = computed.statistics.squeeze(1);
  } else {
    results.statistics = at::zeros({2, q.size(1), q.size(0)}, floats);
  }
  return results;
}

}  // namespace

Tensor draw_dropout_key(const Tensor& /*salt*/, const std::optional<at::Generator>& generator) {
  return at::scalar_tensor(static_cast<int64_t>(kernels::draw_dropout_key(generator)), at::kLong);
}

Tensor draw_dropout_state(const Tensor& /*salt*/, double dropout_p, at::IntArrayRef sizes,
                          const std::optional<Tensor>& cu_seqlens_q,
                          const std::optional<Tensor>& cu_seqlens_k,
                          const std::optional<at::Generator>& generator) {
  const Inside inside;
  const auto source = generator ? *generator : at::detail::getDefaultCPUGenerator();
  auto state = state_of(source);
  const auto pass = [&](at::IntArrayRef weights) {
    at::empty(weights, at::kBool).bernoulli_(1.0 - dropout_p, source);
  };
  if (!cu_seqlens_q || !cu_seqlens_k) {
    pass(sizes);
    return state;
  }
  // The call itself refuses lengths that are none.
  const auto lengths = [](const Tensor& ends) {
    return ends.to(at::kCPU, at::kLong).flatten().diff().clamp_min(0);
  };
  const auto queries = lengths(*cu_seqlens_q), keys = lengths(*cu_seqlens_k);
  for (int64_t n = 0; n < std::min(queries.numel(), keys.numel()); ++n) {
    at::DimVector weights(sizes);
    weights.append({queries.const_data_ptr<int64_t>()[n], keys.const_data_ptr<int64_t>()[n]});
    pass(weights);
  }
  return state;
}

Results forward(Kind kind, const CallArguments& call) {
  const Inside inside;
  return kind == Kind::Padded ? padded_forward(call) : packed_forward(call);
}

Gradients backward(Kind kind, const BackwardArguments& arguments) {
  const Inside inside;
  auto found =
      gradients_of(kind, arguments,
                   [&](const Problem& problem, Backend backend, const Tensor& output,
                       const Tensor& statistics, const AttentionResult& incoming) {
                     return uses_native(problem, backend)
                                ? native_gradients(problem, arguments, output, statistics, incoming)
                                : recomputed_gradients(name_of(kind), problem, backend, arguments, incoming);
                   });
  const auto& call = arguments.call;
  found.q = laid_like(found.q, call.q);
  found.k = laid_like(found.k, call.k);
  found.v = laid_like(found.v, call.v);
  const auto of_term = [&](const Tensor& gradient, const Tensor& term) {
    if (!gradient.defined()) return nothing(call.q.options());
    return laid_like(gradient.to(term.scalar_type()), term);
  };
  found.bias = of_term(found.bias, call.bias);
  found.alibi_slopes = of_term(found.alibi_slopes, call.alibi_slopes);
  found.sinks = of_term(found.sinks, call.sinks);
  return found;
}

Gradients gradients_with_graph(Kind kind, const BackwardArguments& arguments) {
  const Inside inside;
  const auto& call = arguments.call;
  auto found = gradients_of(
      kind, arguments,
      [](const Problem& problem, Backend, const Tensor&, const Tensor&, const AttentionResult& incoming) {
        auto all = kernels::reference::gradients_with_graph(problem, incoming);
        // A tensor that requires no gradient has an undefined one, but an operator returns one for each.
        const auto or_zeros = [](const Tensor& x, const Tensor& like) {
          return x.defined() ? x : at::zeros_like(like);
        };
        return Gradients{or_zeros(all.q, problem.q), or_zeros(all.k, problem.k),
                         or_zeros(all.v, problem.v), all.bias,
                         all.alibi_slopes,           all.sinks};
      });
  for (auto* term : {&found.bias, &found.alibi_slopes, &found.sinks}) {
    if (!term->defined()) *term = nothing(call.q.options());
  }
  return found;
}

Tensor shape_of_key(const Tensor& salt, const std::optional<at::Generator>& /*generator*/) {
  return at::empty({}, salt.options().dtype(at::kLong));
}

Tensor shape_of_state(const Tensor& salt, double /*dropout_p*/, c10::SymIntArrayRef /*sizes*/,
                      const std::optional<Tensor>& /*cu_seqlens_q*/,
                      const std::optional<Tensor>& /*cu_seqlens_k*/,
                      const std::optional<at::Generator>& /*generator*/) {
  return at::empty({state_size()}, salt.options().dtype(at::kByte));
}

Results shapes_of_results(Kind kind, const CallArguments& call) {
  const auto& q = call.q;
  TORCH_CHECK_VALUE(q.dim() >= 2 && call.k.dim() == q.dim() && call.v.dim() == q.dim(),
                    "attention: expected q, k and v of one rank of at least 2, got ", q.dim(), ", ",
                    call.k.dim(), " and ", call.v.dim());
  const auto wide = q.options().dtype(wide_type(q)), floats = q.options().dtype(at::kFloat);
  Results results;
  if (kind == Kind::Packed) {
    const auto tokens = q.sym_size(0), heads = q.sym_size(1);
    results.output = at::empty_symint({tokens, heads, call.v.sym_size(-1)}, q.options());
    results.logsumexp = call.logsumexp ? at::empty_symint({heads, tokens}, wide) : nothing(wide);
    results.statistics = call.for_backward ? at::empty_symint({2, heads, tokens}, floats) : nothing(floats);
    return results;
  }
  results.output = output_like(q, call.v);
  c10::SymDimVector rows(q.sym_sizes());
  rows.pop_back();
  auto pairs = rows;
  pairs.push_back(call.k.sym_size(-2));
  results.weights =
      call.weights == Weights::None ? nothing(q.options()) : at::empty_symint(pairs, q.options());
  results.logsumexp = call.logsumexp ? at::empty_symint(rows, wide) : nothing(wide);
  results.statistics = nothing(floats);
  if (call.for_backward) {
    // Dimensions before the heads are one batch, and there is one head where q has no dimension for it.
    c10::SymInt batch = 1;
    const auto rank = q.dim();
    for (int64_t d = 0; d < (rank >= 4 ? rank - 3 : rank - 2); ++d) batch = batch * q.sym_size(d);
    results.statistics =
        at::empty_symint({2, batch, rank >= 4 ? q.sym_size(-3) : c10::SymInt(1), q.sym_size(-2)}, floats);
  }
  return results;
}

Gradients shapes_of_gradients(const BackwardArguments& arguments) {
  const auto& call = arguments.call;
  const auto of_term = [&](bool wanted, const Tensor& term) {
    return wanted ? at::empty_like(term) : nothing(call.q.options());
  };
  return {at::empty_like(call.q),
          at::empty_like(call.k),
          at::empty_like(call.v),
          of_term(arguments.want_bias, call.bias),
          of_term(arguments.want_alibi_slopes, call.alibi_slopes),
          of_term(arguments.want_sinks, call.sinks)};
}

}  // namespace attentive::operators
