#pragma once

#include <string>

#include <attentive/parity/case.h>

namespace attentive {

/// One row of a report; it passes if the shapes agree and max|got - want| <= tolerance.
TensorComparison compare_tensors(std::string name, const at::Tensor& got, const at::Tensor& want,
                                 double tolerance);

/// Replaces the NaN in `want` for queries without keys by this package's convention.
///   want        (..., L, X)
///   empty       (..., L) bool, true: the query has no key
///   convention  broadcasts to want
///   rows        receives the number of rows replaced
at::Tensor replace_empty_rows(const at::Tensor& want, const at::Tensor& empty, const at::Tensor& convention,
                              int64_t& rows);

/// Describes which side is further from float64 arithmetic, and by which factor. scale: max|want| over the
/// tensors that share a tolerance. A difference of more than a hundred tolerances of `dtype` is not rounding:
/// the two sides may compute different things, and the float64 run computes what this package means.
std::string whose_error(const ExactDistances& exact, at::ScalarType dtype, bool gradient, double scale);

}  // namespace attentive
