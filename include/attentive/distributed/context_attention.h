#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/distributed/group.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/attention_context.h>

namespace attentive {

/// How the processes of a group compute attention over one sequence.
///   Gather  every process gets all keys and values. Any number of heads. Memory O(T) for keys and values.
///   Heads   every process gets the whole sequence for some of the heads, and gives its results back (Jacobs et al. 2023,
///           "DeepSpeed Ulysses"). Sends the least; the heads, those of the keys too, must be a multiple of the processes.
///   Ring    keys and values go round from process to process, and the results are merged (Liu et al. 2023, "Ring
///           Attention"). Memory O(T / processes); what travels is hidden behind what is computed.
enum class ContextMethod { Gather, Heads, Ring };
std::string_view to_string(ContextMethod value);

/// This process's part of a sequence, in zig-zag order: of 2 W equal chunks, rank r of W holds chunk r and chunk
/// 2 W - 1 - r, so that causal attention is the same work for all.
/// whole: any tensor with T tokens along `dim`, T a multiple of 2 W -> the same with T / W tokens.
/// Throws c10::ValueError for another T and a dimension that does not exist.
///
///   auto ids = zigzag_shard(whole_ids, *group, 1);
at::Tensor zigzag_shard(const at::Tensor& whole, const Group& group, int64_t dim);
/// The positions of this process's tokens in a sequence of T tokens, int64 (T / W).
at::Tensor zigzag_positions(int64_t length, const Group& group);
/// The whole sequence in its own order from the parts of all processes, in every process. All processes call it. It has no
/// gradient.
at::Tensor zigzag_gather(const at::Tensor& part, Group& group, int64_t dim);

/// attention() over one sequence that many processes hold, forward and backward.
///
///   q (B, H, T / W, D), k (B, Hkv, T / W, D), v (B, Hkv, T / W, Dv): this process's part by zigzag_shard
///   -> output (B, H, T / W, Dv) and, if requested, logsumexp (B, H, T / W) of its queries
///
/// Options and extras are those of the whole sequence, the same in all processes: a mask of pairs is (…, T, T), key lengths
/// count from the first token, slopes and sinks are of all heads. Tensors are on the CPU or on the group's device. Gradients of q, k and v are complete; those of sinks and of
/// a bias are of this process's part, and their sum over the processes is the whole.
///
/// On the CPU, `Gather` and `Heads` compute the same bits as one process, except that Gather adds up the gradients of k and v in
/// another order (and computes them from float16 and bfloat16 in float32). `Ring` merges parts in float32; its results
/// differ from one process's by rounding. Dropout is Counter's with a key that rank 0 draws: it drops what one process
/// drops.
///
/// All processes make the same calls, backward included, in the same order. With one process it is attention().
/// Throws c10::ValueError, in all processes and before any tensor is sent, for what attention() refuses in one of them, weights,
/// DropoutStream::Aten, Heads with a number of heads that W does not divide, and Ring with dropout or with a bias that requires
/// a gradient; in all processes if their calls differ in shapes, dtypes, options, or a value of a mask, slopes or sinks (on a GPU,
/// values of tensors above 1 MiB are not compared); and PeerError.
///
///   auto y = context_attention(q, k, v, group, {.causal = Causal::BottomRight}, {}, ContextMethod::Ring).output;
AttentionResult context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::shared_ptr<Group>& group, const AttentionOptions& options = {},
                                  const AttentionExtras& extras = {},
                                  ContextMethod method = ContextMethod::Gather);

/// context_attention() for the modules of a model.
///
///   model->set_context(std::make_shared<ContextParallel>(group));
///   auto loss = model->loss(zigzag_shard(ids, *group, 1), zigzag_shard(targets, *group, 1));
class ContextParallel final : public AttentionContext {
 public:
  explicit ContextParallel(std::shared_ptr<Group> group, ContextMethod method = ContextMethod::Gather);

  int64_t size() const override;
  std::vector<Run> runs(int64_t tokens) const override;
  AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, const AttentionExtras& extras) override;

 private:
  std::shared_ptr<Group> group_;
  ContextMethod method_;
};

}  // namespace attentive
