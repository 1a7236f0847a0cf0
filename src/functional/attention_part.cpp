#include "functional/attention_part.h"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "core/memory.h"
#include "functional/dispatch.h"
#include "functional/problem_builder.h"
#include "kernels/dropout_counter.h"
#include "kernels/native_backward.h"

namespace attentive {
namespace {

using kernels::kDifferentiable;
using kernels::Problem;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A tensor with the shape of the whole sequence and the memory of one element.
at::Tensor shape_only(const at::Tensor& part, int64_t parts) {
  return at::empty({1}, part.options())
      .expand({part.size(0), part.size(1), part.size(2) * parts, part.size(3)});
}

// A text with a digest of the values of a tensor; empty for a large tensor on a GPU, which is not fetched.
std::string values_of(const at::Tensor& x) {
  constexpr size_t kMostFetched = 1 << 20;
  auto once = x.detach();
  for (int64_t dim = 0; dim < once.dim(); ++dim) {
    if (once.stride(dim) == 0 && once.size(dim) > 1) once = once.narrow(dim, 0, 1);
  }
  if (!once.is_cpu() && once.nbytes() > kMostFetched) return "";
  const auto here = once.cpu().resolve_neg().contiguous();
  return fmt::format(", values {:016x}",
                     digest_of({static_cast<const char*>(here.const_data_ptr()), here.nbytes()}));
}

// Slices a term, except along a dimension of size 1, which broadcasts.
at::Tensor slice(const at::Tensor& term, int64_t dim, int64_t begin, int64_t length) {
  return !term.defined() || term.size(dim) == 1 ? term : term.narrow(dim, begin, length);
}

// A problem and the backend that runs it.
struct DispatchedProblem : torch::CustomClassHolder {
  const char* caller = nullptr;
  Backend backend = Backend::Auto;
  Problem problem;

  AttentionResult run() const { return dispatch(caller, backend, problem); }
};

// Recomputes a call and returns the gradients of its differentiable tensors that are marked as wanted; the
// others stay undefined.
std::array<at::Tensor, kDifferentiable.size()> recomputed_gradients(
    DispatchedProblem call, const std::array<bool, kDifferentiable.size()>& wanted,
    const WholeAttention::ResultGradients& result_gradients) {
  const at::AutoGradMode enabled(true);
  variable_list leaves;
  for (size_t i = 0; i < kDifferentiable.size(); ++i) {
    auto& tensor = call.problem.*kDifferentiable[i];
    if (!tensor.defined()) continue;
    tensor = tensor.detach();
    if (wanted[i]) leaves.push_back(tensor.requires_grad_());
  }
  const auto result = call.run();
  const auto [grad_output, grad_logsumexp] =
      result_gradients({result.output.detach(), {}, result.logsumexp.detach()});
  auto found = torch::autograd::grad({result.output, result.logsumexp}, leaves, {grad_output, grad_logsumexp},
                                     /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  std::array<at::Tensor, kDifferentiable.size()> gradients;
  for (size_t i = 0, next = 0; i < gradients.size(); ++i) {
    if ((call.problem.*kDifferentiable[i]).defined() && wanted[i]) gradients[i] = std::move(found[next++]);
  }
  return gradients;
}

// Computes the results in the dtype of q, and in the backward pass recomputes the call in the wider dtype of
// k and v.
class WideGradients : public torch::autograd::Function<WideGradients> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                               const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& slopes,
                               const c10::intrusive_ptr<DispatchedProblem>& call) {
    context->save_for_backward(
        {q, k, v, sinks.value_or(at::Tensor()), bias.value_or(at::Tensor()), slopes.value_or(at::Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    DispatchedProblem narrow = *call;
    narrow.problem.k = k.to(q.scalar_type());
    narrow.problem.v = v.to(q.scalar_type());
    const auto result = narrow.run();
    return {result.output, result.logsumexp};
  }

  static variable_list backward(AutogradContext* context, const variable_list& result_gradients) {
    const auto saved = context->get_saved_variables();
    const auto call =
        c10::static_intrusive_pointer_cast<DispatchedProblem>(context->saved_data["call"].toCapsule());
    auto inputs = saved;
    inputs.insert(inputs.end(), result_gradients.begin(), result_gradients.end());
    return first_derivative_of_parts(inputs, [&] { return gradients_of(*call, saved, result_gradients); });
  }

 private:
  static variable_list gradients_of(DispatchedProblem wide, const variable_list& saved,
                                    const variable_list& result_gradients) {
    const auto dtype = saved[1].scalar_type();
    std::array<bool, kDifferentiable.size()> wanted{};
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] = saved[i].defined() && saved[i].requires_grad();
      wide.problem.*kDifferentiable[i] = saved[i];
    }
    wide.problem.q = saved[0].to(dtype);
    auto gradients = recomputed_gradients(wide, wanted, [&](const AttentionResult&) {
      return std::pair(result_gradients[0].defined() ? result_gradients[0].to(dtype) : at::Tensor(),
                       result_gradients[1]);
    });
    if (gradients[0].defined()) gradients[0] = gradients[0].to(saved[0].scalar_type());
    variable_list all(gradients.begin(), gradients.end());
    all.emplace_back();
    return all;
  }
};

}  // namespace

WholeAttention::WholeAttention(const char* caller, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOptions& options,
                               const AttentionExtras& extras, int64_t parts)
    : caller_(caller), backend_(options.backend) {
  for (const auto& [name, x] : {std::pair{"q", q}, std::pair{"k", k}, std::pair{"v", v}}) {
    check_floating(caller, name, x);
    TORCH_CHECK_VALUE(x.dim() == 4, caller, ": expected ", name,
                      " of shape (B, heads, tokens, features), got ", shape_string(x.sizes()));
  }
  TORCH_CHECK_VALUE(q.size(2) == k.size(2), caller, ": expected q and k of the same tokens, got ", q.size(2),
                    " and ", k.size(2));
  whole_ =
      normalize(caller, shape_only(q, parts), shape_only(k, parts), shape_only(v, parts), options, extras)
          .problem;
  TORCH_CHECK_VALUE(
      whole_.normalise, caller,
      ": expected Normalise::Softmax, got Normalise::None: parts are joined by their logsumexps");
  TORCH_CHECK_VALUE(!whole_.sequences, caller,
                    ": expected batch items of one length, got Align::Lengths or query_lengths that shorten "
                    "some: their parts would be unequal work");
  check_functions();
  whole_.logsumexp = true;
  whole_.whole_queries = whole_.queries();
  whole_.whole_keys = whole_.keys();
  whole_.blocks.reset();  // a part has other tiles
}

// A gradient of a captured tensor would stay in the process of the part that it comes from.
void WholeAttention::check_functions() const {
  if (!whole_.score) return;
  for (const auto& captured : whole_.score.function()->captured()) {
    TORCH_CHECK_VALUE(!kernels::requires_gradient(captured->tensor), caller_, ": expected the score \"",
                      whole_.score.name(), "\" to capture tensors without a gradient, got one of shape ",
                      shape_string(captured->tensor.sizes()), " that requires it");
  }
}

std::string WholeAttention::text() const {
  const auto& p = whole_;
  const auto number = [](const auto& value) { return value ? fmt::format("{:a}", *value) : "none"; };
  std::string text = fmt::format(
      "q: {}\nk: {}\nv: {}\ndtype: {}\nscale: {}\nsoftcap: {}\nfirst key: {}\nlast key: {}\ndropout_p: "
      "{:a}\n",
      shape_string(p.q.sizes()), shape_string(p.k.sizes()), shape_string(p.v.sizes()), c10::toString(dtype()),
      number(p.scale), number(p.softcap), p.band.lo, p.band.hi, p.dropout_p);
  for (const auto& [name, term] : {std::pair{"keep", p.keep}, std::pair{"bias", p.bias},
                                   std::pair{"key_keep", p.key_keep}, std::pair{"key_lengths", p.key_lengths},
                                   std::pair{"alibi_slopes", p.alibi_slopes}, std::pair{"sinks", p.sinks}}) {
    text +=
        fmt::format("{}: {}\n", name, term.defined() ? shape_string(term.sizes()) + values_of(term) : "none");
  }
  const auto describe_function = [&](const char* kind, const auto& function) {
    text += fmt::format("{}: {}\n", kind, function ? function.name() : "none");
    if (!function) return;
    for (const auto& captured : function.function()->captured()) {
      text += fmt::format("captured: {}{}\n", shape_string(captured->tensor.sizes()),
                          values_of(captured->tensor));
    }
  };
  describe_function("score", p.score);
  describe_function("mask function", p.mask);
  return text;
}

uint64_t WholeAttention::draw_dropout_key() const {
  return kernels::draw_dropout_key(whole_.generator);
}

void WholeAttention::set_dropout_key(uint64_t key) {
  whole_.dropout_key = key;
  whole_.dropout_stream = DropoutStream::Counter;
}

Problem WholeAttention::problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const PartPlace& place) const {
  Problem part = whole_;
  part.q = q;
  part.k = k;
  part.v = v;
  const int64_t L = q.size(2), S = k.size(2), H = q.size(1);
  const auto of_pairs = [&](const at::Tensor& term) {
    return slice(slice(slice(term, 1, place.head, H), 2, place.query, L), 3, place.key, S);
  };
  part.keep = of_pairs(whole_.keep);
  part.bias = of_pairs(whole_.bias);
  if (whole_.key_keep.defined()) part.key_keep = whole_.key_keep.narrow(1, place.key, S);
  if (whole_.key_lengths.defined()) part.key_lengths = (whole_.key_lengths - place.key).clamp(0, S);
  if (whole_.alibi_slopes.defined()) part.alibi_slopes = whole_.alibi_slopes.narrow(1, place.head, H);
  if (whole_.sinks.defined()) part.sinks = whole_.sinks.narrow(0, place.head, H);
  part.band = shifted(whole_.band, place.query - place.key, L, S);
  part.head_offset = place.head;
  part.key_offset = place.key;
  return part;
}

AttentionResult WholeAttention::part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const PartPlace& place, bool with_sinks) const {
  auto problem = problem_of(q, k, v, place);
  if (!with_sinks) problem.sinks.reset();
  return dispatch(caller_, backend_, problem);
}

AttentionResult WholeAttention::part_with_wide_gradients(const at::Tensor& q, const at::Tensor& wide_k,
                                                         const at::Tensor& wide_v,
                                                         const PartPlace& place) const {
  auto call = c10::make_intrusive<DispatchedProblem>();
  call->caller = caller_;
  call->problem = problem_of(q, wide_k, wide_v, place);
  call->backend = backend_;
  const auto results =
      WideGradients::apply(q, wide_k, wide_v, as_optional(call->problem.sinks),
                           as_optional(call->problem.bias), as_optional(call->problem.alibi_slopes), call);
  return {results[0], {}, results[1]};
}

std::array<at::Tensor, 3> WholeAttention::part_gradients(const at::Tensor& q, const at::Tensor& k,
                                                         const at::Tensor& v, const PartPlace& place,
                                                         const ResultGradients& result_gradients) const {
  DispatchedProblem call;
  call.caller = caller_;
  call.backend = backend_;
  call.problem = problem_of(q, k, v, place);
  call.problem.sinks.reset();
  auto gradients = recomputed_gradients(std::move(call), {true, true, true}, result_gradients);
  return {gradients[0], gradients[1], gradients[2]};
}

bool WholeAttention::hides(const PartPlace& place, int64_t queries, int64_t keys) const {
  const auto band = shifted(whole_.band, place.query - place.key, queries, keys);
  return band.key_hi(queries - 1, keys) == 0 || band.key_lo(0, keys) == keys;
}

std::vector<at::Tensor> first_derivative_of_parts(const std::vector<at::Tensor>& inputs,
                                                  const std::function<std::vector<at::Tensor>()>& compute) {
  return kernels::first_derivative(
      "context_attention: a call over several processes has no second derivative; differentiate twice in one "
      "process, through Backend::Reference",
      inputs, compute);
}

}  // namespace attentive
