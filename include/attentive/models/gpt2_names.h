#pragma once

#include <attentive/files/state_dict.h>
#include <attentive/models/gpt.h>

namespace attentive {

/// Converts a state dict of Hugging Face's GPT-2 to the names of `GPT`, ready for `load_state_dict`.
///
///   h.N.attn.c_attn.weight (C, 3 C)  ->  trf_blocks.N.att.{W_query, W_key, W_value}.weight (C, C)
///
/// The following names are converted as well; every name may begin with "transformer.".
///
///   wte, wpe, ln_f, lm_head
///   h.N.{ln_1, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj}
///
/// The projections are transposed, because GPT-2 stores them as (in, out), and c_attn is split into three;
/// values do not change. The buffers attn.bias and attn.masked_bias are ignored. A missing lm_head means that
/// it is tied to wte. With `options.tied()`, an lm_head that differs from wte is refused.
///
/// Throws c10::ValueError naming the key that is missing, unknown or of the wrong shape. Memory: views, no
/// copies.
///
///   const auto state = attentive::read_state_dict("model.safetensors");
///   attentive::load_state_dict(*model, attentive::from_gpt2(state, model->options));
StateDict from_gpt2(const StateDict& state, const GPTOptions& options);

/// Converts a model's weights to GPT-2's names, the inverse of `from_gpt2`. Names get the prefix
/// "transformer.", and lm_head is included. Throws c10::ValueError for a model that GPT-2's names cannot
/// describe: one with rotary positions, grouped queries or a window. Memory: the transposed projections.
///
///   attentive::save_safetensors("model.safetensors", attentive::to_gpt2(*model));
StateDict to_gpt2(const GPTImpl& model);

}  // namespace attentive
