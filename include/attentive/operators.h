#pragma once

// Everything of attentive::operators: the attention function as operators of PyTorch's dispatcher.

namespace attentive {

/// Loads the library that registers the operators `attentive::attention`, `attention_varlen`, their backward
/// operators, `draw_dropout_key`, `draw_dropout_state`, `explain`, and the switch of `accelerate.h`. They are
/// registered when the library is loaded, before `main` in a program that calls this function; the call
/// itself does nothing, and may be repeated. A program needs them to run a TorchScript file, an exported
/// program or an AOTInductor package that was made in Python with `torch.ops.attentive`. Python loads the
/// same library by itself.
///
/// The operators take plain tensors and numbers. Only the two that draw read a generator: dropout needs the
/// key `draw_dropout_key(torch.randperm(0))`, or for the Aten stream
/// `draw_dropout_state(torch.randperm(0), dropout_p, sizes)` with the sizes of the weights.
///
/// The library has its own copy of the kernels and shows no symbol but this function, so a program may link
/// attentive::attention as well.
///
///     attentive::load_operators();
///     auto module = torch::jit::load("model.pt");
void load_operators();

}  // namespace attentive
