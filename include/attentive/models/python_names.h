#pragma once

#include <cstdint>
#include <string_view>

#include <attentive/files/state_dict.h>

namespace attentive {

/// Converts a state dict of Hugging Face's `transformers` to the names of this package's model of that
/// family, ready for `load_state_dict`. `load_pretrained` does this for a whole folder.
///
///   gpt2                                                  -> GPT
///   llama, mistral, qwen2, qwen3, gemma2, gemma3_text     -> Llama
///   bert, roberta, xlm-roberta, camembert, albert         -> Bert
///   vit, deit                                             -> ViT
///
/// Every name may have or lack the prefix of its family ("transformer.", "model.", "bert.", ...), and the
/// names of older and newer versions of `transformers` are known. Matrices that Python stores transposed are
/// transposed, fused ones are split and separate ones are joined; values do not change. Buffers (causal
/// masks, position numbers, rotary frequencies) and the heads for next-sentence and sentence-order prediction
/// are ignored. A second copy of a tied tensor must hold equal values.
///
/// Throws c10::ValueError for an unknown family. Throws c10::ValueError that lists, at most ten of each kind,
/// unknown names (with the nearest known name), missing parts, and tensors of a wrong rank. Memory: joined
/// tensors (q, k and v of vision transformers); otherwise views.
///
///   auto state = attentive::from_python_names("llama", attentive::read_state_dict("model.safetensors"));
StateDict from_python_names(std::string_view family, const StateDict& state);

struct PythonNamesOptions {
  bool prefix = true;    ///< whether names get the family's prefix, as in Python's models with a head
  int64_t channels = 3;  ///< channels of a vision transformer's images
};

/// Converts this package's names to those that `save_pretrained` writes; the inverse of `from_python_names`.
///
/// Throws c10::ValueError for an unknown family, for unknown names, listing them, and for tensors of a wrong
/// rank. Memory: the tensors that are transposed or joined.
///
///   auto state = attentive::to_python_names("gpt2", attentive::state_dict(*model));
StateDict to_python_names(std::string_view family, const StateDict& state,
                          const PythonNamesOptions& options = {});

}  // namespace attentive
