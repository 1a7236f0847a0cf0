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
///   bert, roberta, albert                                 -> Bert
///   vit, deit                                             -> ViT
///
/// Every name may have the prefix of its family ("transformer.", "model.", "bert.", ...) or lack it, and names
/// that older and newer versions of `transformers` write are known. Matrices that Python stores transposed are
/// transposed, fused ones split and separate ones joined; values do not change. Buffers (causal masks,
/// position numbers, rotary frequencies) and the heads for next sentences and sentence order are ignored. A
/// second copy of a tied tensor must hold the same numbers.
///
/// Throws c10::ValueError for an unknown family, and one that lists every name that is unknown, every part
/// that is missing and every tensor of a wrong rank, at most ten of each kind, unknown ones with the nearest
/// known name. Memory: what is joined (q, k and v of vision transformers); otherwise views.
///
///   auto state = attentive::from_python_names("llama", attentive::read_state_dict("model.safetensors"));
StateDict from_python_names(std::string_view family, const StateDict& state);

struct PythonNamesOptions {
  bool prefix = true;    ///< whether names get the family's prefix, as in Python's models with a head
  int64_t channels = 3;  ///< of the images of a vision transformer
};

/// The inverse: our names to those that `save_pretrained` writes.
///
/// Throws c10::ValueError for an unknown family, listing the names that it does not know, and for tensors of a
/// wrong rank. Memory: the tensors that are transposed or joined.
///
///   auto state = attentive::to_python_names("gpt2", attentive::state_dict(*model));
StateDict to_python_names(std::string_view family, const StateDict& state,
                          const PythonNamesOptions& options = {});

}  // namespace attentive
