#pragma once

#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/case.h>

namespace attentive {

/// Returns the attention calls of a case: builds its C++ module with the file's weights and records its
/// calls, without dropout and gradients. Paths are those inside the module, "" for the module itself; for a
/// case without a module (a function), they are "call 0", "call 1" and so on. The default CPU generator is
/// left unchanged.
///
/// Throws CaseError with the reason if the case cannot be run or the recorder refuses `options`.
/// Memory: two copies of the case's tensors, and what the recorder keeps.
///
///   auto calls = attentive::case_attention(attentive::read_case("mha.safetensors"));
std::vector<RecordedAttention> case_attention(const Case& test_case,
                                              const AttentionRecorderOptions& options = {},
                                              const CaseSettings& settings = {});

}  // namespace attentive
