#include "kernels/native_cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "core/memory.h"
#include "kernels/attention/passes.h"
#include "kernels/attention/user_functions.h"
#include "kernels/native_cpu/term_gradients.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::native_cpu {
namespace {

using attentive::detail::BlockClasses;

// Allocates (B, H, L, D) in the memory layout (B, L, H, D), so that merging the heads afterwards is a view.
// The tensor is not itself a view, because autograd would forbid changing a view in place.
at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim) {
  return advise_huge_pages(at::empty_strided({like.size(0), heads, rows, dim},
                                             {rows * heads * dim, dim, heads * dim, 1}, like.options()));
}

// Allocates a gradient with the strides of its tensor if that has no gaps, so that a leaf can keep it without
// a copy.
at::Tensor gradient_of(const at::Tensor& x) {
  const auto gradient = at::empty_like(x);
  return gradient.stride(3) == 1 || x.size(3) == 1 ? advise_huge_pages(gradient)
                                                   : heads_inside(x, x.size(1), x.size(2), x.size(3));
}

// Whether the pass for few queries is faster, which reads K and V once, in parts that threads share. From
// nine queries on, the tiled pass is faster unless there are many keys or several query heads share them.
bool has_few_queries(const Call& call) {
  const bool few = call.L <= 8 || (call.L <= 16 && (call.group > 1 || call.S > 1024));
  return few && call.L * call.group <= 64;
}

cpu::RowStatistics row_statistics(const at::Tensor& x, int64_t first_row) {
  if (!x.defined()) return {};
  auto* maxima = x.mutable_data_ptr<float>();
  return {maxima + first_row, maxima + x.stride(0) + first_row};
}

// A tensor's rows from `first` of an item on, contiguous, as the kernel reads and writes them.
template <class T>
Strided<const T> read(const at::Tensor& x, int64_t item = 0, int64_t first = 0) {
  return rows_of<const T>(x).part(item, first);
}
template <class T>
Strided<T> write(const at::Tensor& x, int64_t item = 0, int64_t first = 0) {
  return rows_of<T>(x).part(item, first);
}

// A tensor (B, H, L, S) of any strides; an undefined one has no data.
template <class T>
Strided<const T> read_pairs(const at::Tensor& x) {
  if (!x.defined()) return {};
  auto view = read<T>(x);
  view.col = x.stride(3);
  return view;
}

// The n-th number of an array that may be absent.
template <class T>
T* from(T* data, int64_t n) {
  return data ? data + n : nullptr;
}

// Memory for weights, in which those of no sequence are 0.
at::Tensor fresh_weights(const Call& call, const CallTensors& in) {
  const std::array<int64_t, 4> sizes = {call.B, call.H, call.L, call.S};
  return call.sequences ? at::zeros(sizes, in.q.options())
                        : advise_huge_pages(at::empty(sizes, in.q.options()));
}

// Sets the rows (B, H, rows, X) of no sequence to zero, if the sequences are the batch items.
at::Tensor cleared(const Call& call, at::Tensor x, int64_t Sequence::*first, int64_t Sequence::*count) {
  if (call.sequence_count != call.B) return x;
  for (int64_t b = 0; b < call.B; ++b) {
    const int64_t from = call.sequences[b].*first, end = from + call.sequences[b].*count;
    if (from > 0) x.select(0, b).narrow(1, 0, from).zero_();
    if (end < x.size(2)) x.select(0, b).narrow(1, end, x.size(2) - end).zero_();
  }
  return x;
}

// The classes of the tiles of the n-th sequence, which is that of a batch item.
Strided<const uint8_t> classes_of_tiles(const CallTensors& tensors, size_t n, int64_t item) {
  if (n >= tensors.blocks.size() || !tensors.blocks[n]) return {};
  const auto& blocks = *tensors.blocks[n];
  const auto& classes = blocks.classes;
  return Strided<const uint8_t>{classes.const_data_ptr<uint8_t>(), blocks.batch == 1 ? 0 : classes.stride(0),
                                blocks.heads == 1 ? 0 : classes.stride(1), classes.stride(2)}
      .part(item, 0);
}

// Calls run(call, place) for a call, or for each sequence of a packed one: for a sequence that would keep a
// thread busy longer than the others by all threads, then for the others beside each other. Neither changes
// the results. `in_order`: the sequences add to the same sums, one after the other.
template <class Run>
void for_each_sequence(const Call& call, const CallTensors& tensors, bool in_order, const Run& run) {
  if (!call.sequences) return run(call, Sequence{});
  const auto pairs_of = [&](int64_t n) { return call.sequences[n].queries * call.sequences[n].keys; };
  const auto run_one = [&](int64_t n) {
    Call one = call.of_sequence(call.sequences[n], n);
    one.user.blocks = classes_of_tiles(tensors, static_cast<size_t>(n), call.sequences[n].item);
    run(one, call.sequences[n]);
  };
  int64_t pairs = 0;
  for (int64_t n = 0; n < call.sequence_count; ++n) pairs += pairs_of(n);
  const int64_t threads = at::get_num_threads();
  const auto alone = [&](int64_t n) { return in_order || pairs_of(n) * threads > pairs; };
  for (int64_t n = 0; n < call.sequence_count; ++n) {
    if (alone(n)) run_one(n);
  }
  const bool parallel = pairs * call.H * (call.D + call.Dv) > (int64_t{1} << 18);
  cpu::for_each_item(call.sequence_count, parallel, [&](int64_t n) {
    if (!alone(n)) run_one(n);
  });
}

// A tensor of pairs from the first one of a sequence on, and the place of its first weight.
template <class T>
Strided<T> pairs_of(const Strided<T>& pairs, const Sequence& place) {
  return pairs.part(place.item, place.first_query, place.first_key);
}
int64_t first_weight(const Call& call, const Sequence& place) {
  return call.row_index(place.item, 0, place.first_query) * call.keys_of_head + place.first_key;
}

// Whether the backward pass reads the weights instead of computing them again. Softcaps and scores of the
// program need the scores, and dropout the weights before it; classes of tiles save more than reading does.
bool reads_weights(const Call& call, const Incoming& incoming) {
  return incoming.weights.defined() && call.element == Element::Float32 && !call.rule.caps() &&
         !call.user.score && !call.user.blocks && !(call.dropout && incoming.of_dropped);
}

// The weights that have an incoming gradient, as the backward pass reads them: those of the forward pass, or
// computed again. Undefined for a half type, whose weights are rounded.
at::Tensor weights_to_read(const Call& call, const CallTensors& in, const Computed& out,
                           const Incoming& incoming) {
  if (!incoming.weights.defined() || call.element != Element::Float32) return {};
  if (out.weights.defined()) return out.weights;
  auto weights = fresh_weights(call, in);
  for_each_sequence(call, in, /*in_order=*/false, [&](const Call& one, const Sequence& place) {
    cpu::weights(one, cpu::WeightsTensors<float>{read<float>(in.q, place.item, place.first_query),
                                                 read<float>(in.k, place.item, place.first_key),
                                                 data_of<float>(weights) + first_weight(call, place),
                                                 incoming.of_dropped});
  });
  return weights;
}

// The dot products of the rows of weights with their incoming gradients, (B, H, L), where the backward pass
// does not read the weights.
at::Tensor weight_dots(const Call& call, const CallTensors& in, const at::Tensor& weights,
                       const Incoming& incoming) {
  if (!incoming.weights.defined()) return {};
  const auto dots = at::empty({call.B, call.H, call.L}, in.q.options().dtype(at::kFloat));
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    for_each_sequence(call, in, /*in_order=*/false, [&](const Call& one, const Sequence& place) {
      if (reads_weights(one, incoming)) return;
      cpu::weight_dots(
          one, cpu::WeightDotsTensors<T>{
                   read<T>(in.q, place.item, place.first_query), read<T>(in.k, place.item, place.first_key),
                   pairs_of(read_pairs<T>(incoming.weights), place),
                   data_of<float>(dots) + call.row_index(place.item, 0, place.first_query),
                   incoming.of_dropped, from(data_of<const float>(weights), first_weight(call, place))});
    });
  });
  return dots;
}

template <class T>
void forward(const Call& call, const cpu::ForwardTensors<T>& tensors) {
  if (call.L == 0) return;
  if (call.S == 0) return cpu::rows_without_keys(call, tensors);
  const bool few = has_few_queries(call) && !tensors.statistics.maximum;
  few ? cpu::few_queries(call, tensors) : cpu::forward(call, tensors);
}

template <class T>
void backward(const Call& call, const cpu::BackwardTensors<T>& tensors, bool from_weights) {
  if (call.L == 0 || call.S == 0) return cpu::gradients_without_pairs(call, tensors);
  if constexpr (std::is_same_v<T, float>) {
    if (from_weights) return cpu::backward_from_weights(call, tensors);
  }
  cpu::backward(call, tensors);
}

// Whether float32 can represent the factor, its inverse and products with it.
bool is_moderate(const std::optional<double>& factor) {
  return !factor || (std::abs(*factor) >= 1e-30 && std::abs(*factor) <= 1e30);
}

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!problem.q.is_cpu()) return Verdict::no("it runs only on the CPU");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    return Verdict::no("it accepts only float32, bfloat16 and float16");
  if (problem.is_empty()) return Verdict::no("it does not accept empty inputs");
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    return Verdict::no("the Aten dropout stream cannot be drawn tile by tile");
  }
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (!is_moderate(problem.scale)) return Verdict::no("it needs a scale between 1e-30 and 1e30");
  if (!is_moderate(problem.softcap)) return Verdict::no("it needs a softcap between 1e-30 and 1e30");
  for (const auto* function : {problem.score.function().get(), problem.mask.function().get()}) {
    if (!function) continue;
    for (const auto& captured : function->captured()) {
      if (!captured->in_place && captured->tensor.numel() > std::numeric_limits<int32_t>::max())
        return Verdict::no("it reads captured tensors of less than 2^31 numbers");
    }
  }
  return {};
}

std::shared_ptr<const BlockClasses> blocks_of(const Problem& problem) {
  constexpr int64_t kWorthClasses = 2 * BlockClasses::kSize;
  const bool worth = problem.mask && problem.queries() >= kWorthClasses && problem.keys() >= kWorthClasses;
  return worth && !problem.blocks ? classify(problem) : problem.blocks;
}

std::shared_ptr<const BlockClasses> classify(const Problem& problem) {
  const auto& mask = *problem.mask.function();
  auto result = std::make_shared<BlockClasses>();
  result->batch = mask.by_batch() ? problem.batch() : 1;
  result->heads = mask.by_head() ? problem.heads() : 1;
  result->queries = problem.queries();
  result->keys = problem.keys();
  for (const auto& captured : mask.captured()) {
    if (!captured->tensor.is_inference()) result->versions.push_back(captured->tensor._version());
  }
  const auto blocks = [](int64_t n) { return cpu::round_up(n, BlockClasses::kSize) / BlockClasses::kSize; };
  result->classes =
      at::empty({result->batch, result->heads, blocks(result->queries), blocks(result->keys)}, at::kByte);

  CallTensors tensors;
  tensors.captured = captured_inputs(problem);
  Call call;
  static_cast<Places&>(call) = problem;
  call.B = result->batch;
  call.H = call.Hkv = result->heads;
  call.L = result->queries;
  call.S = result->keys;
  call.band = problem.band;
  call.user.mask = cpu::function_here(mask);
  point_to(call, tensors);
  cpu::classify_blocks(call, mask, result->classes.mutable_data_ptr<uint8_t>());
  return result;
}

PreparedCall::PreparedCall(const Problem& problem, uint64_t dropout_key, bool for_backward)
    : tensors(mask_tensors_of(problem, Biases::HalfTypes, for_backward)),
      call(call_of(problem, dropout_key)) {
  const auto for_every_item = [&](const at::Tensor& x) {
    return x.size(0) == problem.batch() ? x : with_unit_stride(x).expand({problem.batch(), -1, -1, -1});
  };
  tensors.q = problem.q;
  tensors.k = for_every_item(problem.k);
  tensors.v = for_every_item(problem.v);
  if (problem.score || problem.mask) tensors.captured = captured_inputs(problem);
  if (problem.score) call.user.score = cpu::function_here(*problem.score.function());
  if (problem.mask) {
    call.user.mask = cpu::function_here(*problem.mask.function());
    if (problem.sequences) {
      for (size_t n = 0; n < problem.sequences->size(); ++n)
        tensors.blocks.push_back(blocks_of(sequence_of(problem, n)));
    } else {
      tensors.blocks.push_back(blocks_of(problem));
      call.user.blocks = classes_of_tiles(tensors, 0, 0);
    }
  }
  point_to(call, tensors);
}

Computed compute(const Call& call, const CallTensors& in, const Results& wanted, const at::Tensor& output) {
  const auto floats = in.q.options().dtype(at::kFloat);
  Computed out{cleared(call, output.defined() ? output : heads_inside(in.q, call.H, call.L, call.Dv),
                       &Sequence::first_query, &Sequence::queries),
               {},
               {}};
  // Sequences leave out the rows that are no part of them.
  const auto rows = [&](at::IntArrayRef sizes, float value) {
    return call.sequences ? at::full(sizes, value, floats) : at::empty(sizes, floats);
  };
  if (wanted.logsumexp) out.logsumexp = rows({call.B, call.H, call.L}, -cpu::kInfinity);
  if (wanted.statistics) out.statistics = rows({2, call.B, call.H, call.L}, 0.0f);
  if (wanted.weights != Weights::None) out.weights = fresh_weights(call, in);
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    for_each_sequence(call, in, /*in_order=*/false, [&](const Call& one, const Sequence& place) {
      const int64_t item = place.item, query = place.first_query, key = place.first_key,
                    row = call.row_index(item, 0, query);
      forward<T>(one, {.q = read<T>(in.q, item, query),
                       .k = read<T>(in.k, item, key),
                       .v = read<T>(in.v, item, key),
                       .output = write<T>(out.output, item, query),
                       .logsumexp = from(data_of<float>(out.logsumexp), row),
                       .statistics = row_statistics(out.statistics, row),
                       .weights = from(data_of<T>(out.weights), first_weight(call, place)),
                       .dropped = wanted.weights == Weights::Dropped});
    });
  });
  return out;
}

Incoming incoming_of(const AttentionResult& gradients, const at::Tensor& output, Weights weights) {
  Incoming incoming;
  incoming.output = gradients.output.defined()
                        ? with_unit_stride(gradients.output.to(output.scalar_type()).resolve_neg())
                        : at::zeros({1}, output.options()).expand(output.sizes()).contiguous();
  if (gradients.logsumexp.defined())
    incoming.logsumexp = gradients.logsumexp.to(at::kFloat).resolve_neg().contiguous();
  if (gradients.weights.defined()) {
    incoming.weights = gradients.weights.to(output.scalar_type()).resolve_neg();
    incoming.of_dropped = weights == Weights::Dropped;
  }
  return incoming;
}

Gradients compute_gradients(const Call& call, const CallTensors& in, Computed out, const Incoming& incoming,
                            const Wanted& wanted) {
  out.output = with_unit_stride(out.output);
  out.statistics = out.statistics.contiguous();
  const TermGradients terms(call, wanted, in.q.options().dtype(at::kFloat));
  const CapturedGradients captured(call, wanted.captured ? &in : nullptr);
  const auto one_item = [](const at::Tensor& x, bool shared) { return shared ? x.narrow(0, 0, 1) : x; };
  Gradients result{
      cleared(call, gradient_of(in.q), &Sequence::first_query, &Sequence::queries),
      cleared(call, gradient_of(one_item(in.k, wanted.shared_k)), &Sequence::first_key, &Sequence::keys),
      cleared(call, gradient_of(one_item(in.v, wanted.shared_v)), &Sequence::first_key, &Sequence::keys),
      {},
      {},
      {}};
  // The sums of the gradients of shared keys and values: of a float32 call, the results themselves.
  const auto sums = [](const at::Tensor& x, bool shared) {
    return shared ? x.to(at::kFloat).zero_() : at::Tensor();
  };
  const auto k_sums = sums(result.k, wanted.shared_k), v_sums = sums(result.v, wanted.shared_v);
  const auto weights = weights_to_read(call, in, out, incoming);
  const auto dots = weight_dots(call, in, weights, incoming);
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    const bool in_order = wanted.captured || terms.shared_by_sequences();
    for_each_sequence(call, in, in_order, [&](const Call& one, const Sequence& place) {
      const int64_t item = place.item, query = place.first_query, key = place.first_key,
                    row = call.row_index(item, 0, query);
      auto logits = terms.logits<T>();
      logits.pairs = pairs_of(logits.pairs, place);
      logits.pair_sums = pairs_of(logits.pair_sums, place);
      logits.by_query = from(logits.by_query, row);
      logits.by_key = from(logits.by_key, call.key_index(item, 0, key));
      logits.slopes = from(logits.slopes, call.key_index(item, 0, key));
      backward<T>(one,
                  {.q = read<T>(in.q, item, query),
                   .k = read<T>(in.k, item, key),
                   .v = read<T>(in.v, item, key),
                   .output = read<T>(out.output, item, query),
                   .grad_output = read<T>(incoming.output, item, query),
                   .statistics = row_statistics(out.statistics, row),
                   .grad_logsumexp = from(data_of<const float>(incoming.logsumexp), row),
                   .grad_q = write<T>(result.q, item, query),
                   .grad_k = write<T>(result.k, item, key),
                   .grad_v = write<T>(result.v, item, key),
                   .shared_grad_k = write<float>(k_sums),
                   .shared_grad_v = write<float>(v_sums),
                   .sink_terms = from(terms.sinks(), row),
                   .logits = logits,
                   .grad_weights = pairs_of(read_pairs<T>(incoming.weights), place),
                   .of_dropped = incoming.of_dropped,
                   .weight_dots = from(data_of<const float>(dots), row),
                   .weights = from(data_of<const float>(weights), first_weight(call, place)),
                   .captured_lanes = captured.lanes()},
                  reads_weights(one, incoming));
    });
  });
  if (wanted.shared_k) result.k.copy_(k_sums);
  if (wanted.shared_v) result.v.copy_(v_sums);
  terms.finish(result);
  result.captured = captured.finish();
  return result;
}

AttentionResult run(const Problem& given) {
  Problem problem = given;
  // Without softmax, the gradients of a row's logits do not add up to that of the logsumexp, so that each
  // pair of a bias needs one.
  if (!problem.normalise && problem.bias.defined() && problem.bias.size(3) == 1)
    problem.bias = problem.bias.expand({-1, -1, -1, problem.keys()});
  auto learned = learned_captures(problem);
  const bool differentiated = requires_gradient(problem) || !learned.empty();
  PreparedCall prepared(problem, /*dropout_key=*/0, differentiated);
  problem.dropout_key = prepared.call.dropout_key = dropout_key_of(problem);
  if (differentiated) return run_with_autograd(problem, std::move(prepared), std::move(learned));
  auto computed =
      compute(prepared.call, prepared.tensors, {.logsumexp = problem.logsumexp, .weights = problem.weights});
  return {std::move(computed.output), std::move(computed.weights), std::move(computed.logsumexp)};
}

}  // namespace attentive::kernels::native_cpu
