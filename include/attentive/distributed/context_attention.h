#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/distributed/group.h>
#include <attentive/functional/attention.h>

namespace attentive {

/// How the processes of a group compute attention over one sequence.
///   Gather  every process gets all keys and values. Any number of heads. Memory O(T) for keys and values.
///   Heads   every process gets the whole sequence for some of the heads and sends their results back (Jacobs
///           et al. 2023, "DeepSpeed Ulysses"). Sends the least. The number of processes must divide the
///           number of query heads and of key heads.
///   Ring    keys and values travel from process to process in a ring, and the results are merged (Liu et al.
///           2023, "Ring Attention"). Memory O(T / processes); computation overlaps with communication.
enum class ContextMethod { Gather, Heads, Ring };
std::string_view to_string(ContextMethod value);

/// This process's part of a sequence, in zig-zag order. The sequence is cut into 2 W equal chunks, and rank r
/// of W holds chunks r and 2 W - 1 - r, so that causal attention is the same work for every rank.
/// whole: any tensor with T tokens along `dim`, T a multiple of 2 W -> the part, with T / W tokens along
/// `dim`.
/// Throws c10::ValueError if 2 W does not divide T, or if the dimension does not exist.
///
///   auto ids = zigzag_shard(whole_ids, *group, 1);
at::Tensor zigzag_shard(const at::Tensor& whole, const Group& group, int64_t dim);
/// The positions of this process's tokens in a sequence of T tokens, int64 (T / W).
at::Tensor zigzag_positions(int64_t length, const Group& group);
/// Reassembles the whole sequence, in its original order and in every process, from the parts of all
/// processes. All processes must call it. No gradient flows through it.
at::Tensor zigzag_gather(const at::Tensor& part, Group& group, int64_t dim);

/// Computes attention() over one sequence whose tokens are distributed over many processes; differentiable.
///
///   q (B, H, T / W, D), k (B, Hkv, T / W, D), v (B, Hkv, T / W, Dv): this process's part by zigzag_shard
///   -> output (B, H, T / W, Dv) and, if requested, logsumexp (B, H, T / W) of its queries
///
/// Options and extras describe the whole sequence and are the same in all processes: a pair mask is (…, T,
/// T), key lengths count from the first token, slopes and sinks cover all heads. Tensors are on the CPU or on
/// the group's device. Gradients of q, k and v are complete. Gradients of sinks, of slopes
/// and of a bias cover this process's part only; sum them over the processes for the whole.
///
/// On the CPU, `Gather` and `Heads` compute the same bits as one process, except that Gather adds the
/// gradients of k and v in another order (and, for float16 and bfloat16, in float32). `Ring` merges partial
/// results in float32, so its results differ from those of one process by rounding. Dropout uses
/// DropoutStream::Counter with a key that rank 0 draws, and drops the same weights as one process.
///
/// All processes make the same calls, backward passes included, in the same order. With one process it is
/// attention().
/// Throws c10::ValueError in all processes, before any tensor is sent, if one process passes arguments that
/// attention() refuses, query lengths or Align::Lengths that shorten a batch item, requests weights or
/// DropoutStream::Aten, uses Heads with a number of heads that W does not divide, or uses Ring with dropout
/// or with a bias or slopes that require a gradient; or if the calls differ in shapes, dtypes, options, or a
/// value of a mask, slopes or sinks (on a GPU, values of tensors above 1 MiB are not compared).
/// Throws PeerError if another process is missing.
///
///   const AttentionOptions options{.causal = Causal::BottomRight};
///   auto y = context_attention(q, k, v, group, options, {}, ContextMethod::Ring).output;
AttentionResult context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::shared_ptr<Group>& group, const AttentionOptions& options = {},
                                  const AttentionExtras& extras = {},
                                  ContextMethod method = ContextMethod::Gather);

/// Makes the modules of a model use context_attention() (`GPT::set_context`).
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
