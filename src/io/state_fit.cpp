#include "io/state_fit.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "core/check.h"

namespace attentive {
namespace {

// Some dtypes are mere bits to the library: it stores them and converts none.
bool converts(const at::Tensor& got, at::ScalarType type) {
  if (got.scalar_type() == type) return true;
  try {
    (void)at::empty({1}, got.options()).to(type);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

std::string refuse_source(const at::Tensor& got) {
  if (layout_name(got) != "dense") return fmt::format("expected a dense tensor, got a {} one", layout_name(got));
  if (got.is_quantized()) {
    return fmt::format("expected plain numbers, got a quantized tensor ({}); dequantize() it first",
                       c10::toString(got.scalar_type()));
  }
  if (got.is_meta()) return "expected a tensor with data, got one on the meta device";
  return {};
}

std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want) {
  const auto reason = refuse_source(got);
  if (!reason.empty()) return reason;
  if (got.sizes() != want.sizes()) {
    return fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  }
  if (want.is_meta()) return "expected a module with data, but it is on the meta device";
  if (got.is_complex() != want.is_complex() || !converts(got, want.scalar_type())) {
    return fmt::format("expected dtype {}, got {}", c10::toString(want.scalar_type()),
                       c10::toString(got.scalar_type()));
  }
  return {};
}

}  // namespace attentive
