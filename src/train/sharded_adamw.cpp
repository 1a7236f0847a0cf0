#include <algorithm>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/sharded_adamw.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "train/agreement.h"
#include "train/tensor_memory.h"

namespace attentive {
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
  const KeptTensors kept;
  StateDict state;
  if (wanted) state["step"] = step_.clone();
  for (const auto& [prefix, member] : kMoments) {
    std::vector<at::Tensor> local, whole;
    for (const auto& piece : pieces_) local.push_back(stretch_of(piece.*member, 0, piece.end - piece.begin));
    for (size_t i = 0; i < parameters_.size() && wanted; ++i) {
      const auto& parameter = parameters_[i];
      whole.push_back(reserving(kShardedAdamW, "a copy of its state", [&] {
        return at::empty_strided(parameter.like.sizes(), parameter.strides, parameter.like.options());
      }));
      state[prefix + parameter.name] = whole.back();
    }
    exchange(local, whole);
  }
  return state;
}

}  // namespace attentive
