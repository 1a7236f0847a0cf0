#pragma once

// Every place that computes attention: a backend, Auto among them, in a dtype on a device.

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

  // Why the backend cannot compute the call; empty if it can. Auto takes every call.
  std::string refusal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      AttentionOptions options = {}, const AttentionExtras& extras = {}) const;
};

std::ostream& operator<<(std::ostream& out, const Cell& cell);

inline constexpr std::array kAllBackends = {Backend::Auto, Backend::Reference, Backend::Torch,
                                            Backend::Native};
inline constexpr std::array kAllTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};

// All of them, for GENERATE(from_range(cells())).
const std::vector<Cell>& cells();

}  // namespace attentive::test
