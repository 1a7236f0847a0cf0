#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/case.h>

#include "parity/case_modules.h"

namespace attentive {

/// The arithmetic in which a case is computed.
struct CaseArithmetic {
  at::ScalarType dtype = at::kFloat;  ///< of the state and the inputs; if it is float64, of masks too
  std::optional<at::ScalarType> autocast = std::nullopt;  ///< if set, the inputs keep their dtypes
  Backend backend = Backend::Auto;
  at::Device device = at::kCPU;
};

/// A parsed case: its registry entry and its arguments.
struct CasePlan {
  explicit CasePlan(const Case& test_case);

  const Case& test_case;
  CaseArguments options, call;
  const CaseModule& entry;
};

/// The results that a case requests. `gradients` have the names in the file.
struct CaseResults {
  std::map<std::string, at::Tensor> initial = {};  ///< the weights drawn from `init_seed`
  std::vector<std::string> normal = {};            ///< the names of those that are normally distributed
  CaseOutput output = {};
  std::map<std::string, at::Tensor> gradients = {};
  at::Tensor empty_output;      ///< the value of an output row without keys: zero or the output bias
  bool sequence_first = false;  ///< a batched output is (L, N, E)
};

/// The dtype of a case's arithmetic: that of its state, or else of its inputs. Throws CaseError if they
/// differ.
at::ScalarType dtype_of(const Case& test_case);

/// Builds the module, runs the forward pass and, unless the case disables it, the backward pass.
CaseResults compute_case(const CasePlan& plan, const CaseArithmetic& arithmetic);

/// Attention weights by head of a run without dropout, which show which queries have keys; undefined if the
/// module returns none.
at::Tensor clean_weights(const CasePlan& plan, CaseArithmetic arithmetic);

/// The attention calls of a run without dropout.
std::vector<RecordedAttention> clean_calls(const CasePlan& plan, const CaseArithmetic& arithmetic,
                                           const AttentionRecorderOptions& options);

}  // namespace attentive
