#pragma once

// Calls of the operators by their names, as a program without their C++ signatures makes them.

#include <map>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "support/compare.h"
#include "support/option_cases.h"

namespace attentive::test {

/// The tolerance of results that must have the same bits.
inline constexpr Tolerance kEqual{0.0, 0.0};

using Named = std::map<std::string, at::IValue>;

/// Calls an operator of the namespace `attentive` with the arguments that are given, by position and by name;
/// the others have the defaults of the schema. Returns its results.
std::vector<at::IValue> call_operator(const std::string& name, const std::vector<at::IValue>& positional,
                                      const Named& named = {});

/// The arguments of `attention` but q, k and v, by name.
Named arguments_of(const AttentionOptions& options, const AttentionExtras& extras);

/// The arguments with the dropout key that a call with them needs, drawn from the default generator.
/// `sizes`: of the weights, or the number of heads of packed sequences, whose ends follow.
Named with_key(Named named, at::IntArrayRef sizes, const at::Tensor& ends_q = {},
               const at::Tensor& ends_k = {});

/// Computes a call by the operator `attention`.
AttentionResult by_operator(const OptionCall& call);

/// The tensor, or an undefined one if the operator returned an empty one in its place.
at::Tensor if_asked(bool asked, const at::IValue& result);

}  // namespace attentive::test
