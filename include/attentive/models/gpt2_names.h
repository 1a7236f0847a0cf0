#pragma once

#include <attentive/io/state_dict.h>
#include <attentive/models/gpt.h>

namespace attentive {

/// A state dict of Hugging Face's GPT-2 under the names of `GPT`: what `load_state_dict` takes.
///
///   h.N.attn.c_attn.weight (C, 3 C)  ->  trf_blocks.N.att.{W_query, W_key, W_value}.weight (C, C)
///
/// and likewise wte, wpe, h.N.{ln_1, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj}, ln_f and lm_head. Every name
/// may begin with "transformer.".
///
/// The projections are transposed (GPT-2 stores (in, out)) and split; values do not change. The buffers
/// attn.bias and attn.masked_bias are ignored. A missing lm_head means that it is tied to wte; with
/// `options.tied()` an lm_head that differs from wte is refused.
/// Throws c10::ValueError that names a key that is missing, unknown or misshapen. Memory: views, no copies.
///
///   attentive::load_state_dict(*model, attentive::from_gpt2(read_state_dict("model.safetensors"),
///                                                           model->options));
StateDict from_gpt2(const StateDict& state, const GPTOptions& options);

/// Inverse of `from_gpt2`: the weights of a model under GPT-2's names, prefixed with "transformer.", lm_head
/// included. Throws c10::ValueError for a model that GPT-2's names cannot hold: rotary positions, grouped
/// queries or a window. Memory: the transposed projections.
///
///   attentive::save_safetensors("model.safetensors", attentive::to_gpt2(*model));
StateDict to_gpt2(const GPTImpl& model);

}  // namespace attentive
