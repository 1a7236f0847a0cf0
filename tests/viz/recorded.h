#pragma once

// Recorded calls for the tests.

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>

namespace attentive::test {

// Records one call of `attention`.
inline RecordedAttention recorded(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionOptions& options = {}, const Mask& mask = {}) {
  AttentionRecorder recorder;
  attention(q, k, k, options, mask);
  return recorder.calls().at(0);
}

}  // namespace attentive::test
