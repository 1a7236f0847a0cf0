#pragma once

// Everything of attentive::operators: the attention function as operators of PyTorch's dispatcher.

namespace attentive {

/// Loads the library that registers the operators `attentive::attention`, `attention_varlen`, their backward
/// operators, `draw_dropout_key`, `explain`, and the switch of `accelerate.h`. They are registered when the
/// library is loaded, before `main` in a program that calls this function; the call itself does nothing, and
/// may be repeated. A program needs them to run a TorchScript file, an exported program or an AOTInductor
/// package that was made in Python with `torch.ops.attentive`. Python loads the same library by itself.
///
/// The operators take plain tensors and numbers. The library has its own copy of the kernels and shows no
/// symbol but this function, so a program may link attentive::attention as well.
///
///     attentive::load_operators();
///     auto module = torch::jit::load("model.pt");
void load_operators();

}  // namespace attentive
