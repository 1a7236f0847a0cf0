#pragma once

// The operators of PyTorch that this package's kernel computes.

namespace attentive::accelerate {

/// Registers them with PyTorch's dispatcher. Until the switch is set, every one of them calls PyTorch's
/// function. Throws c10::NotImplementedError if another library has registered one of them, and registers
/// nothing then.
void open_doors();

}  // namespace attentive::accelerate
