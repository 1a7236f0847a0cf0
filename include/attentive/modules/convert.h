#pragma once

#include <cstdint>

#include <attentive/core/module_state.h>

/// Exact conversions between the state dicts of attention classes, C++ or Python.
///
/// "Exact" means that the module which loads the result computes the same function of its input, up to
/// rounding. Every function takes tensors under their Python state-dict names and returns new, detached
/// tensors of the same dtype and device that share no memory with the arguments. Throws c10::ValueError,
/// prefixed with the function's name, for a key that is missing, unexpected or misshapen, for tensors of
/// different dtypes or devices, and for weights that the target cannot express. Nothing is dropped silently,
/// except the causal `mask` buffer of the chapter-3 classes where the target has none.
///
///   auto state = attentive::read_state_dict("nn_multihead_attention.safetensors");
///   attentive::load_state_dict(*mha, attentive::convert::torch_to_multi_head(state));
namespace attentive::convert {

/// `MultiHeadAttentionWrapper` (heads.N.W_query.weight …) -> `MultiHeadAttention` with as many heads and
/// d_out = heads * d_out of one head. The wrapper has no output projection: out_proj becomes the identity
/// with a bias of zeros. `mask` is kept.
StateDict wrapper_to_multi_head(const StateDict& state);

/// `MultiHeadAttention` -> `MultiHeadAttentionWrapper` with num_heads heads. Refused unless out_proj is the
/// identity and its bias zero (both may be absent). `mask` is kept, once per head.
StateDict multi_head_to_wrapper(const StateDict& state, int64_t num_heads);

/// `FusedSelfAttention` (qkv.weight (3E, E), qkv.bias, proj.weight, proj.bias) -> `MultiHeadAttention` with
/// d_in = d_out = E and the same number of heads. FusedSelfAttention is not causal, so build the target with
/// `.attention({.causal = Causal::None})`. qkv_bias = false leaves the biases of W_query, W_key and W_value
/// out, and is refused unless they are zero.
StateDict fused_to_multi_head(const StateDict& state, bool qkv_bias = true);

/// `MultiHeadAttention` with d_in = d_out -> `FusedSelfAttention`; absent biases become zeros. `mask` is
/// dropped, so the result computes what a module without causal masking computes.
StateDict multi_head_to_fused(const StateDict& state);

/// `torch.nn.MultiheadAttention` / `compat::MultiheadAttention` -> `MultiHeadAttention` with d_in = d_out =
/// embed_dim. Takes in_proj_weight, or q_proj_weight, k_proj_weight and v_proj_weight of kdim = vdim =
/// embed_dim. bias_k and bias_v are refused: the target has no such keys. An absent out_proj.bias becomes
/// zeros. qkv_bias as above.
StateDict torch_to_multi_head(const StateDict& state, bool qkv_bias = true);

/// `MultiHeadAttention` with d_in = d_out -> `torch.nn.MultiheadAttention` / `compat::MultiheadAttention`
/// (in_proj_weight …). `mask` is dropped: give the call a causal attn_mask. Absent biases become zeros;
/// bias = false leaves every bias out, and is refused unless all are zero.
StateDict multi_head_to_torch(const StateDict& state, bool bias = true);

/// `MultiHeadAttention` -> `GroupedQueryAttention`: the key and value heads that will be shared become their
/// mean, as in the GQA paper. Exact only if these heads are equal. Build the target with
/// `.out_bias(true)` if there is an out_proj.bias. `sinks` is kept, `mask` is dropped.
/// Source: Ainslie et al. 2023, section 2.1.
StateDict multi_head_to_grouped(const StateDict& state, int64_t num_heads, int64_t num_kv_heads);

/// `GroupedQueryAttention` -> `MultiHeadAttention`: each key and value head is copied once per query head
/// that shares it. An absent out_proj.bias becomes zeros.
StateDict grouped_to_multi_head(const StateDict& state, int64_t num_heads, int64_t num_kv_heads);

}  // namespace attentive::convert
