#include <algorithm>
#include <cmath>
#include <fnmatch.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/functional/attention_recorder.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "functional/dispatch.h"
#include "functional/mask_check.h"
#include "functional/problem_builder.h"
#include "functional/recording.h"
#include "kernels/problem.h"
#include "kernels/reference/backend.h"
#include "kernels/reference/visibility.h"

namespace attentive::recording {

struct Listeners {
  std::vector<std::shared_ptr<Recording>> recordings;
  ~Listeners() { listeners = nullptr; }
};

constinit thread_local Listeners* listeners = nullptr;

namespace {

void drop_closed(Listeners& all) {
  std::erase_if(all.recordings, [](const auto& recording) { return !recording->open(); });
  if (all.recordings.empty()) listeners = nullptr;
}

// Makes copies normal tensors without history or tangent, whatever mode the call runs in.
class Copying {
  NormalTensorsGuard kept_;
  c10::AutoFwGradMode no_tangents_{false};
};

at::Tensor copy(const at::Tensor& x) {
  return x.defined() ? x.clone(at::MemoryFormat::Contiguous) : x;
}

// Copies a term of a mask with size 1 in every dimension that repeats the same memory.
at::Tensor copy_once(const at::Tensor& term) {
  return term.defined() ? copy(without_repeats(term)) : term;
}

RecordedAttention copy_masks(const kernels::Problem& problem) {
  RecordedAttention call;
  call.keep = copy_once(problem.keep);
  call.bias = copy_once(problem.bias);
  call.key_keep = copy(problem.key_keep);
  call.key_lengths = copy(problem.key_lengths);
  call.query_lengths = copy(problem.query_lengths);
  call.alibi_slopes = copy(problem.alibi_slopes);
  call.sinks = copy(problem.sinks);
  return call;
}

// Keeps the functions of a call, and copies what they captured.
void take_functions(const kernels::Problem& problem, RecordedAttention& call) {
  call.score = problem.score;
  call.mask_mod = problem.mask;
  call.normalise = problem.normalise ? Normalise::Softmax : Normalise::None;
  for (const auto* function : {problem.score.function().get(), problem.mask.function().get()}) {
    if (!function) continue;
    for (const auto& captured : function->captured())
      call.captured.emplace_back(captured.get(), copy(captured->tensor));
  }
}

// Offers a call to all recorders. They share one copy, which is made when the first of them wants it.
void show(const torch::nn::Module* caller, const std::function<RecordedAttention()>& make) {
  drop_closed(*listeners);
  if (!listeners) return;
  std::optional<RecordedAttention> call;
  const auto shared = [&]() -> const RecordedAttention& {
    if (!call) {
      const Copying guard;
      call = with_allocation_errors("AttentionRecorder", "the copy of a call", make);
    }
    return *call;
  };
  for (const auto& recording : listeners->recordings) recording->take(caller, shared);
}

}  // namespace

void listen(std::shared_ptr<Recording> recording) {
  thread_local Listeners of_this_thread;
  of_this_thread.recordings.push_back(std::move(recording));
  listeners = &of_this_thread;
}

void forget(const std::shared_ptr<Recording>& recording) {
  recording->close();
  // If this is not the recorder's thread, that thread drops the recording at its next call.
  if (listeners) drop_closed(*listeners);
}

void attention(const torch::nn::Module* caller, const kernels::Problem& problem,
               const AttentionOptions& options, std::optional<int64_t> sequence) {
  // Asked before `Copying` changes the modes, on which it may depend.
  const auto backend = explain_dispatch(options.backend, problem).chosen;
  show(caller, [&] {
    auto call = copy_masks(problem);
    call.sequence = sequence;
    call.options = options;
    call.backend = backend;
    take_functions(problem, call);
    call.q = copy(problem.q);
    call.k = copy(problem.k);
    return call;
  });
}

void linear_attention(const torch::nn::Module* caller, const kernels::Problem& problem,
                      const LinearAttentionCall& options, const at::Tensor& query_features,
                      const at::Tensor& key_features) {
  show(caller, [&] {
    auto call = copy_masks(problem);
    call.linear = true;
    call.options.causal = options.causal;
    call.eps = options.eps;
    call.q = copy(query_features);
    call.k = at::zeros({problem.batch(), problem.kv_heads(), problem.keys(), key_features.size(3)},
                       key_features.options());
    call.k.slice(2, 0, key_features.size(2)).copy_(key_features);
    return call;
  });
}

}  // namespace attentive::recording

namespace attentive {
namespace recording {
namespace {

constexpr const char* kAttentionRecorder = "AttentionRecorder";

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace

Recording::Recording(const torch::nn::Module* root, AttentionRecorderOptions options)
    : options_(std::move(options)), rooted_(root != nullptr) {
  TORCH_CHECK_VALUE(options_.most_calls >= 0, kAttentionRecorder, ": expected most_calls >= 0, got ",
                    options_.most_calls);
  if (root) name_modules(*root);
}

void Recording::name_modules(const torch::nn::Module& root) {
  const auto owner = root.weak_from_this();
  names_[&root] = {"", owner.expired() ? std::nullopt : std::optional(owner)};
  bool any = chosen("");
  std::string some;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    names_.try_emplace(item.value().get(),
                       Name{item.key(), std::weak_ptr<const torch::nn::Module>(item.value())});
    any = any || chosen(item.key());
    if (some.size() < 60) some += (some.empty() ? "\"" : ", \"") + item.key() + "\"";
  }
  TORCH_CHECK_VALUE(any, kAttentionRecorder, ": expected layers to choose a module, got \"", options_.layers,
                    "\"; the modules are ", some.empty() ? "the root alone, \"\"" : some);
}

std::optional<std::string> Recording::path_of(const torch::nn::Module* caller) const {
  if (!rooted_ || !caller) return "call " + std::to_string(seen_);
  const auto found = names_.find(caller);
  if (found == names_.end()) return std::nullopt;
  const auto& [path, module] = found->second;
  if (module && module->expired()) return std::nullopt;
  return path;
}

// Whether the pattern matches the path or the path of a module that contains it.
bool Recording::chosen(const std::string& path) const {
  for (auto end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
    if (matches(options_.layers, path.substr(0, end))) return true;
  }
  return matches(options_.layers, path);
}

void Recording::take(const torch::nn::Module* caller, const std::function<const RecordedAttention&()>& copy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!open_) return;
  const auto path = path_of(caller);
  if (!path) return;
  if (chosen(*path) && static_cast<int64_t>(calls_.size()) < options_.most_calls) {
    auto call = copy();
    call.path = *path;
    call.number = seen_;
    calls_.push_back(std::move(call));
  }
  ++seen_;
}

void Recording::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
}

bool Recording::open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_;
}

void Recording::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.clear();
  seen_ = 0;
}

}  // namespace recording

AttentionRecorder::AttentionRecorder() : AttentionRecorder(AttentionRecorderOptions{}) {}

AttentionRecorder::AttentionRecorder(AttentionRecorderOptions options)
    : recording_(std::make_shared<recording::Recording>(nullptr, std::move(options))) {
  recording::listen(recording_);
}

AttentionRecorder::AttentionRecorder(const torch::nn::Module& root, AttentionRecorderOptions options)
    : recording_(std::make_shared<recording::Recording>(&root, std::move(options))) {
  recording::listen(recording_);
}

AttentionRecorder::~AttentionRecorder() {
  recording::forget(recording_);
}

const std::vector<RecordedAttention>& AttentionRecorder::calls() const {
  return recording_->calls();
}

int64_t AttentionRecorder::seen() const {
  return recording_->seen();
}

void AttentionRecorder::clear() {
  recording_->clear();
}

namespace {

constexpr const char* kRecordedAttention = "RecordedAttention";

namespace reference = kernels::reference;
using kernels::Problem;

// Makes results normal tensors of full precision, whatever mode the caller is in.
class Computing {
  NormalTensorsGuard kept_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

// The recorded call as a problem in the dtype of its results. Its values are empty, since the weights do not
// depend on them.
Problem problem_of_record(const RecordedAttention& call) {
  check_defined(kRecordedAttention, "q", call.q);
  check_defined(kRecordedAttention, "k", call.k);
  const auto type = call.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Problem problem;
  problem.q = call.q.to(type);
  problem.k = call.k.to(type);
  problem.v = at::empty({problem.batch(), problem.kv_heads(), problem.keys(), 0}, problem.k.options());
  problem.keep = call.keep;
  problem.bias = call.bias;
  problem.key_keep = call.key_keep;
  problem.key_lengths = call.key_lengths;
  problem.query_lengths = call.query_lengths;
  problem.alibi_slopes = call.alibi_slopes;
  problem.sinks = call.sinks;
  take_options(call.options, problem);
  problem.score = call.score;
  problem.mask = call.mask_mod;
  problem.normalise = call.normalise == Normalise::Softmax;
  problem.captured = call.captured;
  problem.batch_offset = call.sequence.value_or(0);
  problem.head_offset = call.first_head;
  return problem;
}

// The call of one query head alone, with the key head of its group.
RecordedAttention only(const RecordedAttention& call, int64_t head) {
  check_defined(kRecordedAttention, "q", call.q);
  TORCH_CHECK_VALUE(head >= 0 && head < call.heads(), kRecordedAttention, ": expected a head in [0, ",
                    call.heads(), "), got ", head);
  const auto of_head = [&](const at::Tensor& x, int64_t dim) {
    return x.defined() && x.size(dim) > 1 ? x.narrow(dim, head, 1) : x;
  };
  auto one = call;
  one.q = call.q.narrow(1, head, 1);
  one.k = call.k.narrow(1, head / (call.heads() / call.k.size(1)), 1);
  one.keep = of_head(call.keep, 1);
  one.bias = of_head(call.bias, 1);
  one.alibi_slopes = of_head(call.alibi_slopes, 1);
  one.sinks = of_head(call.sinks, 0);
  one.first_head = call.first_head + head;
  return one;
}

// The visible pairs: bool, broadcasts to (B, H, L, S); undefined if every pair is visible.
at::Tensor visible_pairs(const Problem& problem) {
  return reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
}

at::Tensor products(const Problem& problem) {
  const auto stacked = kernels::stack_groups(problem.q, problem.kv_heads());
  const auto all = kernels::unstack_groups(at::matmul(stacked, problem.k.transpose(2, 3)), problem.heads());
  const auto visible = visible_pairs(problem);
  return visible.defined() ? all.masked_fill(visible.bitwise_not(), 0.0) : all;
}

at::Tensor shares(const Problem& problem, double eps) {
  const auto shares_of_sum = products(problem);
  const auto sums = shares_of_sum.sum(3, /*keepdim=*/true) + eps;
  const auto empty = sums.eq(0);
  return (shares_of_sum / sums.masked_fill(empty, 1.0)).masked_fill(empty, 0.0);
}

}  // namespace

int64_t RecordedAttention::heads() const {
  return q.size(1);
}

double RecordedAttention::scale() const {
  if (linear) return 1.0;
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

at::Tensor RecordedAttention::weights() const {
  const Computing guard;
  auto problem = problem_of_record(*this);
  if (linear) return shares(problem, eps);
  problem.weights = Weights::Clean;
  return reference::run(problem).weights;
}

at::Tensor RecordedAttention::scores() const {
  const Computing guard;
  const auto problem = problem_of_record(*this);
  return linear ? products(problem) : reference::scores(problem);
}

at::Tensor RecordedAttention::visible() const {
  const Computing guard;
  const auto problem = problem_of_record(*this);
  auto pairs = visible_pairs(problem);
  if (!pairs.defined()) pairs = at::ones({1, 1, 1, 1}, problem.q.options().dtype(at::kBool));
  return pairs.expand({problem.batch(), problem.heads(), problem.queries(), problem.keys()});
}

at::Tensor RecordedAttention::logsumexp() const {
  TORCH_CHECK_VALUE(!linear, kRecordedAttention, ": expected a softmax for logsumexp, got ", path,
                    ", which is linear attention: its weights are shares of a sum of products");
  TORCH_CHECK_VALUE(normalise == Normalise::Softmax, kRecordedAttention,
                    ": expected a softmax for logsumexp, got ", path, " with Normalise::None");
  const Computing guard;
  auto problem = problem_of_record(*this);
  problem.logsumexp = true;
  return reference::run(problem).logsumexp;
}

at::Tensor RecordedAttention::weights(int64_t head) const {
  return only(*this, head).weights().select(1, 0);
}

at::Tensor RecordedAttention::scores(int64_t head) const {
  return only(*this, head).scores().select(1, 0);
}

at::Tensor RecordedAttention::visible(int64_t head) const {
  return only(*this, head).visible().select(1, 0);
}

at::Tensor RecordedAttention::logsumexp(int64_t head) const {
  return only(*this, head).logsumexp().select(1, 0);
}

}  // namespace attentive
