#pragma once

#include <string>

#include <attentive/parity/case.h>

namespace attentive {

/// One row of a report: passes if the shapes agree and max|got - want| <= tolerance.
TensorComparison compare_tensors(std::string name, const at::Tensor& got, const at::Tensor& want,
                                 double tolerance);

/// Where `want` holds NaN for a query without keys, puts what our conventions say in its place.
///   want (..., L, X), empty (..., L) bool: the query has no key, convention: broadcasts to want
/// `rows` is the number of rows replaced.
at::Tensor replace_empty_rows(const at::Tensor& want, const at::Tensor& empty, const at::Tensor& convention,
                              int64_t& rows);

/// Who is further from float64 arithmetic, and by which factor; `scale` is max|want| over the tensors that
/// share a tolerance. More than a hundred tolerances of `dtype` are no rounding: the two may mean different
/// things, and the float64 means what we do.
std::string whose_error(const ExactDistances& exact, at::ScalarType dtype, bool gradient, double scale);

}  // namespace attentive
