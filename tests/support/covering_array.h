#pragma once

// Covering arrays: fewer runs than all combinations of the factors of a test, by a rule that says what meets.

#include <cstddef>
#include <vector>

namespace attentive::test {

/// Returns rows of levels, one number below `levels[f]` for every factor f, such that any `strength` factors
/// meet in every combination of their levels. With a strength of all factors, these are all combinations. The
/// same arguments give the same rows.
std::vector<std::vector<size_t>> covering_array(const std::vector<size_t>& levels, size_t strength);

/// Whether this run is limited to fewer instructions than the processor has, or to the wide vectors, as in
/// the runs of kernels_test that CTest makes beside the first.
bool limited_instructions();

/// The rows for a test of the kernels: on the processor's own instructions any three factors meet in every
/// combination of their levels, and any two where the instructions are limited.
std::vector<std::vector<size_t>> rows_for_kernels(const std::vector<size_t>& levels);

}  // namespace attentive::test
