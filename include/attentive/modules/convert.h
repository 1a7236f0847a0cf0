#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <attentive/core/module_state.h>

/// Exact conversions between the state dicts of attention classes, C++ or Python, and of fused projections.
///
/// "Exact" means that the module which loads the result computes the same function of its input, up to
/// rounding. A function of a state dict takes tensors under their Python state-dict names and returns new,
/// detached tensors of the same dtype and device that share no memory with the arguments. Throws
/// c10::ValueError, prefixed with the function's name, for a key that is missing, unexpected or misshapen,
/// for tensors of different dtypes or devices, and for weights that the target cannot express. Nothing is
/// dropped silently, except the causal `mask` buffer of the chapter-3 classes where the target has none.
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

/// The order of the output features of one linear layer that computes queries, keys and values. The slowest
/// index comes first; d are the features of a head.
///   PerHead   [head][q, k, v][d]                    GPT-NeoX, Bloom; Falcon and GPTBigCode with as many key
///                                                   heads as query heads
///   Thirds    [q, k, v][head][d]                    GPT-2 (transposed), MPT, timm
///   Blocks    [q heads, k heads, v heads][d]        Phi-3, LitGPT; Falcon and GPTBigCode with one key head
///   PerGroup  [key head][its q heads, k, v][d]      Falcon with new_decoder_architecture
///   Parts     [part][q, v, k][head of the part][d]  CodeGen; v comes before k
enum class FusedOrder { PerHead, Thirds, Blocks, PerGroup, Parts };
std::string_view to_string(FusedOrder value);

/// The sizes of a fused projection.
struct FusedOptions {
  int64_t heads = 0;     ///< query heads
  int64_t kv_heads = 0;  ///< key and value heads; 0: as many as query heads
  int64_t head_dim = 0;  ///< features of a head; 0: as the weight has
  int64_t parts = 4;     ///< of `Parts`
  /// Whether weights are (in, out), as those of GPT-2's Conv1D; biases are the same either way.
  bool transposed = false;
};

/// The weight (out, in) or bias (out) of a fused projection -> those of q, k and v, in the layout of
/// nn::Linear and with the heads in the order in which `attention` groups them: query head h reads key head
/// h / (heads / kv_heads). Differentiable. A result is a view where its rows are neighbours, otherwise a
/// copy.
/// Throws c10::ValueError, with the order and the sizes, if these do not divide or do not fit the tensor.
///
///   using namespace attentive;
///   auto [q, k, v] = convert::split_fused(state.at("attn.c_attn.weight"), convert::FusedOrder::Thirds,
///                                         {.heads = 12, .transposed = true});
std::array<at::Tensor, 3> split_fused(const at::Tensor& fused, FusedOrder order, const FusedOptions& options);

/// The inverse of `split_fused`, bit for bit: weights or biases of q, k and v -> that of the fused layer.
/// Differentiable; errors as above.
///
///   auto weight = convert::join_fused({q, k, v}, convert::FusedOrder::PerHead, {.heads = 12});
at::Tensor join_fused(const std::array<at::Tensor, 3>& qkv, FusedOrder order, const FusedOptions& options);

/// Reorders query heads that read key head h % kv_heads, as in x-transformers, so that head h reads key head
/// h / (heads / kv_heads), as `attention` has it. Dimension `dim` holds the heads, each as equally many
/// neighbours: 0 of the weight or bias of q's projection, 1 of the weight of the output projection and of q
/// itself, (B, H, L, D). Differentiable; a view if kv_heads is 1 or `heads`, otherwise a copy.
/// `regroup_heads(x, heads, heads / kv_heads, dim)` undoes it.
/// Throws c10::ValueError if kv_heads does not divide the heads, or these the size of the dimension.
///
///   auto q = attentive::convert::regroup_heads(to_q, /*heads=*/8, /*kv_heads=*/2);
///   auto out = attentive::convert::regroup_heads(to_out, 8, 2, /*dim=*/1);
at::Tensor regroup_heads(const at::Tensor& x, int64_t heads, int64_t kv_heads, int64_t dim = 0);

}  // namespace attentive::convert
