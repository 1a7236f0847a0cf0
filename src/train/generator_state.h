#pragma once

#include <mutex>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "core/check.h"

namespace attentive {

inline at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// Throws unless this generator accepts `state`.
inline void check_generator_state(const char* caller, const at::Generator& generator,
                                  const at::Tensor& state) {
  const auto expected = generator_state(generator);
  const auto* kind = generator.device().is_cpu() ? "CPU" : "CUDA";
  const auto like = [&](const at::Tensor& x) {
    return x.defined() && x.sizes() == expected.sizes() && x.scalar_type() == at::kByte && x.is_cpu();
  };
  TORCH_CHECK_VALUE(like(state), caller, ": expected the state of a ", kind, " generator (", expected.numel(),
                    " bytes), got ", describe(state));
  try {
    generator.clone().set_state(state.contiguous());
  } catch (const c10::Error&) {
    TORCH_CHECK_VALUE(false, caller, ": expected the state of a ", kind, " generator, got other bytes");
  }
}

}  // namespace attentive
