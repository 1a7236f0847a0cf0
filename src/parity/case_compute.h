#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/case.h>

#include "parity/case_modules.h"

namespace attentive {

/// Under which arithmetic a case is computed.
struct CaseArithmetic {
  at::ScalarType dtype = at::kFloat;  ///< of the state and the inputs; float64: of masks too
  std::optional<at::ScalarType> autocast = std::nullopt;  ///< the inputs then keep the dtypes they have
  Backend backend = Backend::Auto;
  at::Device device = at::kCPU;
};

/// A case that is understood: its entry of the registry and its arguments.
struct CasePlan {
  explicit CasePlan(const Case& test_case);

  const Case& test_case;
  CaseArguments options, call;
  const CaseModule& entry;
};

/// What a case asks for. `gradients` are named as in the file.
struct CaseResults {
  std::map<std::string, at::Tensor> initial = {};  ///< the weights drawn from `init_seed`
  std::vector<std::string> normal = {};            ///< those of them that are normally distributed
  CaseOutput output = {};
  std::map<std::string, at::Tensor> gradients = {};
  at::Tensor empty_output;      ///< what an output row without keys equals: a zero or the output bias
  bool sequence_first = false;  ///< a batched output is (L, N, E)
};

/// The dtype of a case's arithmetic: of its state, else of its inputs. Throws CaseError if they differ.
at::ScalarType dtype_of(const Case& test_case);

/// Builds the module, runs the call and, unless the case says otherwise, its backward.
CaseResults compute_case(const CasePlan& plan, const CaseArithmetic& arithmetic);

/// Weights by head of a run that draws nothing, to see which queries have keys; undefined if there are none.
at::Tensor clean_weights(const CasePlan& plan, CaseArithmetic arithmetic);

/// The attention calls of a run that draws nothing.
std::vector<RecordedAttention> clean_calls(const CasePlan& plan, const CaseArithmetic& arithmetic,
                                           const AttentionRecorderOptions& options);

}  // namespace attentive
