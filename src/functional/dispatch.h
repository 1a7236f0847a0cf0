#pragma once

// The only place that knows which backends exist and which one a call uses.

#include <attentive/functional/explain.h>

#include "kernels/problem.h"

namespace attentive {

/// Runs the problem on the forced, preferred or fastest backend that can express it.
AttentionResult dispatch(const char* caller, Backend forced, const kernels::Problem& problem);

/// Explains what `dispatch` would do.
Explanation explain_dispatch(Backend forced, const kernels::Problem& problem);

}  // namespace attentive
