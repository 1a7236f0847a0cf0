#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/adamw.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "files/state_fit.h"
#include "train/agreement.h"
#include "train/run_state.h"

namespace attentive {

DecayGroups decay_groups(const torch::nn::Module& module) {
  DecayGroups groups;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& parameter = item.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const bool decays = parameter.dim() >= 2;
    (decays ? groups.decayed_names : groups.plain_names).push_back(item.key());
    (decays ? groups.decayed : groups.plain).push_back(parameter);
  }
  return groups;
}

AdamWBase::AdamWBase(const char* caller, const torch::nn::Module& module, AdamWOptions options_)
    : options(options_), caller_(caller) {
  check_options();
  const NormalTensorsGuard kept;
  const auto add = [&](const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                       bool decays) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto& tensor = tensors[i];
      TORCH_CHECK_TYPE(tensor.layout() == at::kStrided && at::isFloatingType(tensor.scalar_type()), caller_,
                       ": expected dense floating parameters, got \"", names[i], "\", a ", describe(tensor));
      TORCH_CHECK_TYPE(tensor.is_non_overlapping_and_dense(), caller_, ": expected dense parameters, got \"",
                       names[i], "\", a ", describe(tensor), " with strides ", shape_string(tensor.strides()),
                       ", a part of a larger tensor");
      const auto like = at::zeros({}, tensor.options().requires_grad(false)).expand(tensor.sizes());
      parameters_.push_back({names[i], tensor, decays, like, tensor.strides().vec()});
    }
  };
  const auto found = decay_groups(module);
  add(found.decayed_names, found.decayed, true);
  add(found.plain_names, found.plain, false);
  TORCH_CHECK_VALUE(!parameters_.empty(), caller_, ": expected a module with trainable parameters, got none");
  step_ = at::zeros({}, parameters_[0].like.options().dtype(at::kFloat));
}

std::vector<AdamWBase::Stretch> AdamWBase::whole_parameters() const {
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < parameters_.size(); ++i) stretches.push_back({i, 0, parameters_[i].like.numel()});
  return stretches;
}

void AdamWBase::keep(const std::vector<Stretch>& stretches) {
  const NormalTensorsGuard kept;
  with_allocation_errors(caller_, "its state", [&] {
    for (const auto& stretch : stretches) {
      const auto part = part_of(parameters_[stretch.parameter].tensor, stretch);
      pieces_.push_back({stretch, at::zeros_like(part, at::MemoryFormat::Preserve),
                         at::zeros_like(part, at::MemoryFormat::Preserve)});
    }
  });
}

at::Tensor AdamWBase::part_of(const at::Tensor& tensor, const Stretch& stretch) {
  const bool whole = stretch.begin == 0 && stretch.end == tensor.numel();
  return whole ? tensor : stretch_of(tensor, stretch.begin, stretch.end);
}

void AdamWBase::check_options() const {
  const auto at_least_zero = [&](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0.0, caller_, ": expected ", name, " >= 0, got ",
                      value);
  };
  at_least_zero("learning_rate", options.learning_rate);
  at_least_zero("eps", options.eps);
  at_least_zero("weight_decay", options.weight_decay);
  TORCH_CHECK_VALUE(
      options.beta1 >= 0.0 && options.beta1 < 1.0 && options.beta2 >= 0.0 && options.beta2 < 1.0, caller_,
      ": expected beta1 and beta2 in [0, 1), got ", options.beta1, " and ", options.beta2);
}

void AdamWBase::zero_grad() {
  for (const auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  scale_.reset();
}

at::Tensor AdamWBase::clip(double max_norm, double loss_scale) {
  TORCH_CHECK_VALUE(max_norm >= 0.0, caller_, ": expected max_norm >= 0, got ", max_norm);
  TORCH_CHECK_VALUE(loss_scale > 0.0 && loss_scale <= static_cast<double>(std::numeric_limits<float>::max()),
                    caller_, ": expected loss_scale to be a positive number of float32, got ", loss_scale);
  check_gradients();
  const NormalTensorsGuard kept;  // the next step may run under another mode (InferenceMode)
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters_) {
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad().resolve_neg());
  }
  if (gradients.empty()) return at::zeros({}, step_.options());
  // Squares are summed in float32 or wider, because a norm of float16 gradients may exceed that type's range.
  const bool wide = std::any_of(gradients.begin(), gradients.end(),
                                [](const auto& gradient) { return gradient.scalar_type() == at::kDouble; });
  const auto norm_in = [&](at::ScalarType type) {
    return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2, type)), 2).to(at::kFloat);
  };
  auto norm = norm_in(wide ? at::kDouble : at::kFloat);
  // Nor do the squares of finite numbers above 1e19 fit float32. A GPU does not wait for this question.
  if (!wide && norm.is_cpu() && std::isinf(norm.item<float>())) norm = norm_in(at::kDouble);
  if (max_norm > 0.0) {
    scale_ = (norm / max_norm).clamp_min_(loss_scale);
  } else {
    scale_ = loss_scale == 1.0 ? at::Tensor() : at::full({}, loss_scale, norm.options());
  }
  return norm / loss_scale;
}

void AdamWBase::check_gradients() const {
  for (const auto& parameter : parameters_) check_gradient(parameter);
}

// Refuses, by name and before any parameter changes, everything that the fused kernel would refuse.
void AdamWBase::check_gradient(const Parameter& built) const {
  const auto& [name, parameter, decays, like, strides] = built;
  TORCH_CHECK_VALUE(parameter.scalar_type() == like.scalar_type() && parameter.device() == like.device(),
                    caller_, ": expected \"", name, "\" as ", like.scalar_type(), " on ", like.device(),
                    " as when it was built, got ", parameter.scalar_type(), " on ", parameter.device(),
                    "; build it after to(device, dtype)");
  TORCH_CHECK_VALUE(parameter.sizes() == like.sizes() && parameter.strides() == at::IntArrayRef(strides),
                    caller_, ": expected \"", name, "\" of shape ", shape_string(like.sizes()),
                    " and strides ", shape_string(strides), " as when it was built, got ",
                    shape_string(parameter.sizes()), " and ", shape_string(parameter.strides()));
  const auto& gradient = parameter.grad();
  if (!gradient.defined()) return;
  TORCH_CHECK_VALUE(gradient.layout() == at::kStrided, caller_, ": expected a dense gradient of \"", name,
                    "\", got a sparse one");
  TORCH_CHECK_VALUE(gradient.sizes() == parameter.sizes() && gradient.device() == parameter.device() &&
                        gradient.scalar_type() == parameter.scalar_type(),
                    caller_, ": expected a gradient of \"", name, "\" like the parameter, ",
                    describe(parameter), ", got ", describe(gradient));
}

void AdamWBase::step() {
  check_options();
  check_gradients();
  const at::NoGradGuard no_grad;
  step_.add_(1);
  for (const bool decays : {true, false}) update(decays);
  scale_.reset();
}

void AdamWBase::update(bool decays) {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  for (const auto& piece : pieces_) {
    const auto& parameter = parameters_[piece.parameter];
    if (parameter.decays != decays || !parameter.tensor.grad().defined()) continue;
    const auto gradient = with_strides(parameter.tensor.grad().resolve_neg(), parameter.strides);
    parameters.push_back(part_of(parameter.tensor, piece));
    gradients.push_back(part_of(gradient, piece));
    exp_avgs.push_back(piece.exp_avg);
    exp_avg_sqs.push_back(piece.exp_avg_sq);
  }
  if (parameters.empty()) return;
  const std::vector<at::Tensor> steps(parameters.size(), step_);
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    options.learning_rate, options.beta1, options.beta2, decays ? options.weight_decay : 0.0,
                    options.eps, /*amsgrad=*/false,
                    /*maximize=*/false, as_optional(scale_));
}

StateDict AdamWBase::state(bool wanted) const {
  return state_if(wanted);
}

StateDict AdamWBase::state_if(bool wanted) const {
  if (!wanted) return {};
  StateDict state{{"step", step_}};
  for (const auto& piece : pieces_) {
    for (const auto& [prefix, member] : kMoments)
      state[prefix + parameters_[piece.parameter].name] = piece.*member;
  }
  return state;
}

void AdamWBase::check_state(const StateDict& saved) const {
  StateDict expected{{"step", step_}};
  for (const auto& parameter : parameters_) {
    for (const auto& moment : kMoments) expected[moment.prefix + parameter.name] = parameter.like;
  }
  for (const auto& [name, tensor] : expected) {
    const auto found = saved.find(name);
    TORCH_CHECK_VALUE(found != saved.end(), caller_, ": expected the state \"", name, "\", got none");
    TORCH_CHECK_VALUE(found->second.defined(), caller_, ": expected \"", name,
                      "\" to be a tensor, got an undefined one");
    const auto reason = refuse_tensor(found->second, tensor);
    TORCH_CHECK_VALUE(reason.empty(), caller_, ": \"", name, "\": ", reason);
    TORCH_CHECK_VALUE(found->second.scalar_type() == tensor.scalar_type(), caller_, ": expected \"", name,
                      "\" of dtype ", tensor.scalar_type(), ", got ", found->second.scalar_type());
  }
  for (const auto& item : saved) {
    TORCH_CHECK_VALUE(expected.contains(item.first), caller_, ": expected no state \"", item.first, "\"");
  }
  const auto steps = saved.at("step").item<float>();
  TORCH_CHECK_VALUE(std::isfinite(steps) && steps >= 0, caller_, ": expected step >= 0, got ", steps);
}

void AdamWBase::load_state(const StateDict& saved) {
  check_state(saved);
  const at::NoGradGuard no_grad;
  step_.copy_(saved.at("step"));
  for (const auto& piece : pieces_) {
    const auto& parameter = parameters_[piece.parameter];
    for (const auto& [prefix, member] : kMoments) {
      (piece.*member)
          .copy_(part_of(with_strides(saved.at(prefix + parameter.name), parameter.strides), piece));
    }
  }
}

int64_t AdamWBase::steps() const {
  return static_cast<int64_t>(step_.item<float>());
}

AdamW::AdamW(const torch::nn::Module& module, AdamWOptions options_) : AdamWBase("AdamW", module, options_) {
  keep(whole_parameters());
}

namespace {

constexpr const char* kShardedAdamW = "ShardedAdamW";
// Shares end at multiples of this many elements from the start of a parameter. These are whole vectors of the
// fused kernel in every dtype, so the kernel treats each element as it does in the whole parameter.
constexpr int64_t kCut = 64;
// The most bytes that a process sends at a time, so that received data do not use up the memory saved by
// sharing.
constexpr int64_t kBytesAtATime = int64_t{4} << 20;

// The allowed cut nearest to `wanted` elements in a parameter of `size` elements.
int64_t nearest_cut(int64_t wanted, int64_t size) {
  if (wanted <= 0) return 0;
  if (wanted >= size) return size;
  const auto before = wanted / kCut * kCut, after = std::min(before + kCut, size);
  return wanted - before <= after - wanted ? before : after;
}

// Visits the part of a share between its elements `from` and `to`: calls `visit` with the index of each
// stretch, the range of its elements, and their offset from `from`.
template <class Stretches, class Visit>
void each_part(const Stretches& share, int64_t from, int64_t to, Visit visit) {
  int64_t first = 0;  // index in the share of the stretch's first element
  for (size_t i = 0; i < share.size(); ++i) {
    const auto elements = share[i].end - share[i].begin;
    const auto begin = std::max<int64_t>(from - first, 0), end = std::min(to - first, elements);
    if (begin < end) visit(i, begin, end, first + begin - from);
    first += elements;
  }
}

}  // namespace

ShardedAdamW::ShardedAdamW(const torch::nn::Module& module, std::shared_ptr<TrainingGroup> group,
                           AdamWOptions options_)
    : AdamWBase(kShardedAdamW, module, options_), group_(std::move(group)) {
  TORCH_CHECK_VALUE(group_, kShardedAdamW, ": expected a group, got none");
  if (group_->size() == 1) {
    keep(whole_parameters());
    return;
  }
  check_same();
  std::set<at::ScalarType> dtypes;
  for (const auto& parameter : parameters_) dtypes.insert(parameter.like.scalar_type());
  for (const auto dtype : dtypes) {
    shares_.push_back(shares_of(dtype));
    keep(shares_.back().by_rank[static_cast<size_t>(group_->rank())]);
  }
}

void ShardedAdamW::check_same() const {
  std::string parameters;
  for (const auto& parameter : parameters_) {
    parameters += fmt::format("{} {} {} {}\n", parameter.name, c10::toString(parameter.like.scalar_type()),
                              shape_string(parameter.like.sizes()), shape_string(parameter.strides));
  }
  check_agreement(kShardedAdamW, *group_,
                  {{"parameters", parameters},
                   {"options", fmt::format("{} {} {} {} {}", options.learning_rate, options.beta1,
                                           options.beta2, options.eps, options.weight_decay)}});
}

ShardedAdamW::Shares ShardedAdamW::shares_of(at::ScalarType dtype) const {
  std::vector<size_t> members;
  int64_t total = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].like.scalar_type() != dtype) continue;
    members.push_back(i);
    total += parameters_[i].like.numel();
  }
  Shares shares{dtype, {}, 0};
  const auto size = group_->size();
  for (int64_t rank = 0; rank < size; ++rank) {
    auto& share = shares.by_rank.emplace_back();
    int64_t first = 0;     // the index of the parameter's first element among those of all members
    int64_t elements = 0;  // the number of elements in the share
    for (const auto i : members) {
      const auto numel = parameters_[i].like.numel();
      const auto begin = nearest_cut(total * rank / size - first, numel);
      const auto end = nearest_cut(total * (rank + 1) / size - first, numel);
      if (begin < end) share.push_back({i, begin, end});
      first += numel;
      elements += end - begin;
    }
    shares.longest = std::max(shares.longest, elements);
  }
  return shares;
}

// Collective. Sends `local`, one row of values for each piece of this process, and writes the values of all
// processes into `into`, tensors with the shapes, strides and dtypes of the parameters. If `into` is empty,
// only takes part in the exchange.
void ShardedAdamW::exchange(const std::vector<at::Tensor>& local, const std::vector<at::Tensor>& into) const {
  const at::NoGradGuard no_grad;
  size_t piece = 0;  // index of the first piece of this dtype
  for (const auto& shares : shares_) {
    const auto& local_share = shares.by_rank[static_cast<size_t>(group_->rank())];
    const auto at_a_time = kBytesAtATime / static_cast<int64_t>(c10::elementSize(shares.dtype));
    for (int64_t from = 0; from < shares.longest; from += at_a_time) {
      const auto to = std::min(from + at_a_time, shares.longest);
      const auto sent = at::zeros({to - from}, parameters_[0].like.options().dtype(shares.dtype));
      each_part(local_share, from, to, [&](size_t i, int64_t begin, int64_t end, int64_t place) {
        sent.narrow(0, place, end - begin).copy_(local[piece + i].slice(0, begin, end));
      });
      const auto received = group_->gather(sent);
      for (size_t rank = 0; rank < received.size() && !into.empty(); ++rank) {
        const auto& share = shares.by_rank[rank];
        each_part(share, from, to, [&](size_t i, int64_t begin, int64_t end, int64_t place) {
          stretch_of(into[share[i].parameter], share[i].begin + begin, share[i].begin + end)
              .copy_(received[rank].narrow(0, place, end - begin));
        });
      }
    }
    piece += local_share.size();
  }
}

void ShardedAdamW::step() {
  AdamWBase::step();
  if (shares_.empty()) return;
  std::vector<at::Tensor> local, tensors;
  for (const auto& piece : pieces_) {
    local.push_back(stretch_of(parameters_[piece.parameter].tensor.detach(), piece.begin, piece.end));
  }
  for (const auto& parameter : parameters_) tensors.push_back(parameter.tensor);
  exchange(local, tensors);
}

StateDict ShardedAdamW::state_if(bool wanted) const {
  if (group_->size() == 1) return AdamWBase::state_if(wanted);
  const NormalTensorsGuard kept;
  StateDict state;
  if (wanted) state["step"] = step_.clone();
  for (const auto& [prefix, member] : kMoments) {
    std::vector<at::Tensor> local, whole;
    for (const auto& piece : pieces_) local.push_back(stretch_of(piece.*member, 0, piece.end - piece.begin));
    for (size_t i = 0; i < parameters_.size() && wanted; ++i) {
      const auto& parameter = parameters_[i];
      whole.push_back(with_allocation_errors(kShardedAdamW, "a copy of its state", [&] {
        return at::empty_strided(parameter.like.sizes(), parameter.strides, parameter.like.options());
      }));
      state[prefix + parameter.name] = whole.back();
    }
    exchange(local, whole);
  }
  return state;
}

}  // namespace attentive
