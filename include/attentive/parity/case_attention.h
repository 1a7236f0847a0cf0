#pragma once

#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/case.h>

namespace attentive {

/// The attention calls of a case: builds its C++ module with the file's weights and records what the call
/// does, without dropout and gradients. Their paths are those inside the module, "" for the module itself; of
/// a case without a module (a function), "call 0" and on. The default CPU generator is left unchanged.
///
/// Throws CaseError with the reason if the case cannot be run or the recorder refuses `options`.
/// Memory: two copies of the case's tensors, and what the recorder keeps.
///
///   auto calls = attentive::case_attention(attentive::read_case("mha.safetensors"));
std::vector<RecordedAttention> case_attention(const Case& test_case,
                                              const AttentionRecorderOptions& options = {},
                                              const CaseSettings& settings = {});

}  // namespace attentive
