#include "functional/recording.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "core/kept_tensors.h"
#include "functional/dispatch.h"
#include "functional/mask_check.h"

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
  KeptTensors kept_;
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
      call = reserving("AttentionRecorder", "the copy of a call", make);
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
