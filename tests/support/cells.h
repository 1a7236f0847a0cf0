#pragma once

// All combinations of a backend (Auto included), a dtype and a device that compute attention.

#include <array>
#include <ostream>
#include <string>
#include <vector>

#include <attentive/functional/explain.h>

#include "support/compare.h"

namespace attentive::test {

struct Cell {
  Backend backend;
  at::ScalarType type;
  at::Device device;

  /// Returns why the backend cannot compute the call; empty if it can. Auto can compute every call.
  std::string refusal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      AttentionOptions options = {}, const AttentionExtras& extras = {}) const;
};

std::ostream& operator<<(std::ostream& out, const Cell& cell);

inline constexpr std::array kAllBackends = {Backend::Auto, Backend::Reference, Backend::Torch,
                                            Backend::Native};
/// The backends that a call can ask for by name.
inline constexpr std::array kNamedBackends = {Backend::Reference, Backend::Torch, Backend::Native};
inline constexpr std::array kAllTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};
/// The dtypes of the native kernel.
inline constexpr std::array kNativeTypes = {at::kFloat, at::kBFloat16, at::kHalf};

/// Whether the backend can compute the call; Auto can compute every call.
bool takes(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
           const AttentionOptions& options = {}, const AttentionExtras& extras = {});

/// All cells, for GENERATE(from_range(cells())).
const std::vector<Cell>& cells();

}  // namespace attentive::test
