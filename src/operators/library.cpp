#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <attentive/accelerate.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/merge_attention.h>
#include <attentive/operators.h>

#include "operators/call_arguments.h"
#include "operators/compute.h"

namespace attentive {
namespace operators {
namespace {

using torch::CppFunction;
using torch::jit::Stack;

template <Kind kKind>
void forward_kernel(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto call = pop_call(kKind, *stack);
  push(kKind, forward(kKind, call), *stack);
}

template <Kind kKind>
void backward_kernel(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto arguments = pop_backward(kKind, *stack);
  push(kKind, backward(kKind, arguments), *stack);
}

template <Kind kKind>
void forward_shapes(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto call = pop_call(kKind, *stack);
  push(kKind, shapes_of_results(kKind, call), *stack);
}

template <Kind kKind>
void backward_shapes(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto arguments = pop_backward(kKind, *stack);
  push(kKind, shapes_of_gradients(arguments), *stack);
}

void explain_kernel(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto call = pop_explained(*stack);
  const auto explanation = explain(call.q, call.k, call.v, call.options, call.extras());
  std::vector<std::string> backends, reasons;
  c10::List<bool> available;
  for (const auto& candidate : explanation.candidates) {
    backends.emplace_back(to_string(candidate.backend));
    available.push_back(candidate.available);
    reasons.push_back(candidate.reason);
  }
  torch::jit::push(*stack, std::string(to_string(explanation.chosen)), backends, available, reasons,
                   explanation.notes);
}

std::tuple<at::Tensor, at::Tensor> merge(at::TensorList outputs, at::TensorList logsumexps) {
  TORCH_CHECK_VALUE(outputs.size() == logsumexps.size(),
                    "merge_attention: expected as many logsumexps as outputs, got ", outputs.size(),
                    " outputs and ", logsumexps.size(), " logsumexps");
  std::vector<AttentionResult> parts;
  for (size_t n = 0; n < outputs.size(); ++n) parts.push_back({outputs[n], {}, logsumexps[n]});
  const auto merged = merge_attention(parts);
  return {merged.output, merged.logsumexp};
}

void accelerate(bool exact_dropout) {
  accelerate_sdpa({.dropout = exact_dropout ? SdpaDropout::Exact : SdpaDropout::Ours});
}

std::tuple<int64_t, std::vector<std::string>, std::vector<int64_t>> report() {
  const auto found = sdpa_report();
  std::vector<std::string> reasons;
  std::vector<int64_t> calls;
  for (const auto& left : found.left) {
    reasons.push_back(left.reason);
    calls.push_back(left.calls);
  }
  return {found.taken, reasons, calls};
}

template <Kind kKind>
void implement(torch::Library& library, const char* forward_name, const char* backward_of_it) {
  using c10::DispatchKey;
  const auto boxed = [&]<auto kKernel>(const char* name, DispatchKey key) {
    library.impl(name, torch::dispatch(key, CppFunction::makeFromBoxedFunction<kKernel>()));
  };
  for (const auto key : {DispatchKey::CPU, DispatchKey::CUDA}) {
    boxed.template operator()<&forward_kernel<kKind>>(forward_name, key);
    boxed.template operator()<&backward_kernel<kKind>>(backward_of_it, key);
  }
  boxed.template operator()<&forward_shapes<kKind>>(forward_name, DispatchKey::Meta);
  boxed.template operator()<&backward_shapes<kKind>>(backward_of_it, DispatchKey::Meta);
  boxed.template operator()<&forward_with_autograd<kKind>>(forward_name, DispatchKey::Autograd);
  boxed.template operator()<&backward_with_autograd<kKind>>(backward_of_it, DispatchKey::Autograd);
  for (const auto key : {DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA})
    boxed.template operator()<&forward_with_autocast<kKind>>(forward_name, key);
}

}  // namespace
}  // namespace operators

void load_operators() {}

}  // namespace attentive

TORCH_LIBRARY(attentive, library) {
  using attentive::operators::Kind;
  const std::vector<at::Tag> pure{at::Tag::pt2_compliant_tag};
  const std::vector<at::Tag> drawing{at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};
  for (const auto kind : {Kind::Padded, Kind::Packed}) {
    library.def(attentive::operators::forward_schema(kind).c_str(), pure);
    library.def(attentive::operators::backward_schema(kind).c_str(), pure);
  }
  attentive::operators::implement<Kind::Padded>(library, "attention", "attention_backward");
  attentive::operators::implement<Kind::Packed>(library, "attention_varlen", "attention_varlen_backward");
  library.def("draw_dropout_key(Tensor salt, *, Generator? generator=None) -> Tensor", drawing);
  library.def(
      "draw_dropout_state(Tensor salt, float dropout_p, SymInt[] sizes, Tensor? cu_seqlens_q=None, "
      "Tensor? cu_seqlens_k=None, *, Generator? generator=None) -> Tensor",
      drawing);
  using c10::DispatchKey;
  library.impl("draw_dropout_key", DispatchKey::CompositeExplicitAutograd,
               attentive::operators::draw_dropout_key);
  library.impl("draw_dropout_key", DispatchKey::Meta, attentive::operators::shape_of_key);
  library.impl("draw_dropout_state", DispatchKey::CompositeExplicitAutograd,
               attentive::operators::draw_dropout_state);
  library.impl("draw_dropout_state", DispatchKey::Meta, attentive::operators::shape_of_state);
  library.def("merge_attention(Tensor[] outputs, Tensor[] logsumexps) -> (Tensor output, Tensor logsumexp)",
              pure);
  // The second key is that of torch.func.vmap, which needs a rule of its own for lists of tensors.
  for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::FuncTorchBatched})
    library.impl("merge_attention", torch::dispatch(key, attentive::operators::merge));
  attentive::operators::add_gated_delta_rule(library);
  library.def(attentive::operators::explain_schema().c_str());
  library.impl(
      "explain",
      torch::dispatch(DispatchKey::CompositeImplicitAutograd,
                      torch::CppFunction::makeFromBoxedFunction<&attentive::operators::explain_kernel>()));

  library.def("accelerate_sdpa(bool exact_dropout=False) -> ()", attentive::operators::accelerate);
  library.def("stop_accelerating_sdpa() -> ()", attentive::stop_accelerating_sdpa);
  library.def("accelerates_sdpa() -> bool", attentive::accelerates_sdpa);
  library.def("sdpa_report() -> (int taken, str[] reasons, int[] calls)", attentive::operators::report);
  library.def("reset_sdpa_report() -> ()", attentive::reset_sdpa_report);
}
