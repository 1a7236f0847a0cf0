#include "functional/problem_builder.h"

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <attentive/core/options.h>

#include "core/autocast_modes.h"
#include "core/check.h"

namespace attentive {
namespace {

using kernels::Problem;

void check_tensors(const char* caller, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_floating(caller, "q", q);
  check_floating(caller, "k", k);
  check_floating(caller, "v", v);
  TORCH_CHECK_TYPE(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), caller,
                   ": expected q, k and v of one dtype, got q ", q.scalar_type(), ", k ", k.scalar_type(),
                   ", v ", v.scalar_type());
  TORCH_CHECK_VALUE(k.device() == q.device() && v.device() == q.device(), caller,
                    ": expected q, k and v on one device, got q on ", q.device(), ", k on ", k.device(),
                    ", v on ", v.device());
  TORCH_CHECK_VALUE(q.dim() >= 2, caller, ": expected q of shape (L, D), (B, L, D) or (B, H, L, D), got ",
                    shape_string(q.sizes()));
  TORCH_CHECK_VALUE(k.dim() == q.dim() && v.dim() == q.dim(), caller, ": expected k and v of the rank of q, ",
                    q.dim(), ", got k ", shape_string(k.sizes()), ", v ", shape_string(v.sizes()));
  TORCH_CHECK_VALUE(q.size(-1) > 0, caller, ": expected head_dim > 0, got q of shape ",
                    shape_string(q.sizes()));
  TORCH_CHECK_VALUE(k.size(-1) == q.size(-1), caller, ": expected k of head_dim ", q.size(-1),
                    " like q, got k of shape ", shape_string(k.sizes()));
  TORCH_CHECK_VALUE(v.size(-2) == k.size(-2), caller, ": expected v of ", k.size(-2),
                    " rows like k, got v of shape ", shape_string(v.sizes()));
  // The head dimension (rank 4 and more) may differ between q and k by a factor; everything before it must
  // agree.
  const int64_t heads_dim = q.dim() >= 4 ? q.dim() - 3 : q.dim() - 2;
  for (int64_t d = 0; d < heads_dim; ++d) {
    TORCH_CHECK_VALUE(k.size(d) == q.size(d) && v.size(d) == q.size(d), caller,
                      ": expected equal batch sizes, got q ", shape_string(q.sizes()), ", k ",
                      shape_string(k.sizes()), ", v ", shape_string(v.sizes()));
  }
  if (q.dim() >= 4) {
    TORCH_CHECK_VALUE(k.size(-3) == v.size(-3), caller, ": expected k and v of as many heads, got k ",
                      shape_string(k.sizes()), ", v ", shape_string(v.sizes()));
    TORCH_CHECK_VALUE(k.size(-3) > 0 ? q.size(-3) % k.size(-3) == 0 : q.size(-3) == 0, caller,
                      ": expected the heads of q to be a multiple of the heads of k, got ", q.size(-3),
                      " and ", k.size(-3));
    TORCH_CHECK_VALUE(q.size(-3) > 0, caller, ": expected at least one head, got q of shape ",
                      shape_string(q.sizes()));
  }
}

// Under autocast every backend computes from inputs of the autocast dtype, as PyTorch's SDPA does.
at::Tensor autocast(const at::Tensor& x) {
  if (!x.defined() || !is_autocast(x.device())) return x;
  const auto device = x.device().type();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

at::Tensor as_rank_4(const at::Tensor& x) {
  if (x.dim() == 4) return x;
  if (x.dim() == 2) return x.unsqueeze(0).unsqueeze(0);
  if (x.dim() == 3) return x.unsqueeze(1);
  int64_t batch = 1;
  for (int64_t d = 0; d < x.dim() - 3; ++d) batch *= x.size(d);
  return x.reshape({batch, x.size(-3), x.size(-2), x.size(-1)});
}

// Converts a (…, L, S) mask term to rank 4. `q` is the caller's q, before its conversion to rank 4.
at::Tensor mask_term(const char* caller, const char* name, const at::Tensor& term, const at::Tensor& q,
                     const Problem& p) {
  TORCH_CHECK_VALUE(term.device() == q.device(), caller, ": expected ", name, " on ", q.device(),
                    " like q, got it on ", term.device());
  TORCH_CHECK_VALUE(!(term.dim() == 3 && q.dim() == 4), caller, ": a ", name, " of shape ",
                    shape_string(term.sizes()),
                    " with a 4-D q could be per batch or per head; say Mask::per_batch or Mask::per_head");
  TORCH_CHECK_VALUE(term.dim() == 2 || term.dim() == q.dim() || (term.dim() == 4 && q.dim() <= 4), caller,
                    ": expected ", name, " of shape (L, S) or of rank ", q.dim(), ", got ",
                    shape_string(term.sizes()));
  // Leading sizes must broadcast to those of the caller's q.
  auto result = term;
  if (term.dim() == 2) {
    result = term.unsqueeze(0).unsqueeze(0);
  } else if (term.dim() == 3) {
    result = term.unsqueeze(1);
  } else if (term.dim() > 4) {
    at::DimVector sizes(q.sizes().slice(0, q.dim() - 2));
    for (int64_t d = 0; d < q.dim() - 2; ++d) {
      TORCH_CHECK_VALUE(term.size(d) == 1 || term.size(d) == sizes[d], caller, ": expected ", name,
                        " to broadcast to the leading sizes of q ", shape_string(q.sizes()), ", got ",
                        shape_string(term.sizes()));
    }
    sizes.push_back(term.size(-2));
    sizes.push_back(term.size(-1));
    result = as_rank_4(term.expand(sizes));
  }
  const std::array<int64_t, 4> target = {p.batch(), p.heads(), p.queries(), p.keys()};
  const bool of_keys = term.sizes() == at::IntArrayRef({p.batch(), p.keys()});
  for (size_t d = 0; d < target.size(); ++d) {
    const auto size = result.size(static_cast<int64_t>(d));
    TORCH_CHECK_VALUE(size == 1 || size == target[d], caller, ": expected ", name, " to broadcast to ",
                      shape_string(target), " (B, H, L, S), got ", shape_string(term.sizes()),
                      of_keys ? "; a mask of keys, of shape (B, S), is Mask::key_keep" : "");
  }
  return result;
}

// The smallest of the lengths of each item, as int64 on the device of q; undefined without terms. They are
// checked if they are on the host, or if `read`: a mere check must not wait for a GPU.
at::Tensor lengths_of(const char* caller, const char* name, const std::vector<at::Tensor>& terms,
                      int64_t longest, const Problem& p, bool read) {
  at::Tensor least;
  const auto device = p.q.device();
  for (const auto& term : terms) {
    TORCH_CHECK_VALUE(term.is_cpu() || term.device() == device, caller, ": expected ", name, " on cpu",
                      device.is_cpu() ? "" : " or on " + device.str(), ", got it on ", term.device());
    TORCH_CHECK_VALUE(term.size(0) == p.batch(), caller, ": expected ", name, " of shape (", p.batch(),
                      ",) (B), got ", shape_string(term.sizes()));
    const auto wide = term.to(at::kLong), seen = read && !term.is_meta() ? wide.cpu() : wide;
    if (seen.is_cpu() && seen.numel() > 0) {
      const auto low = seen.min().item<int64_t>();
      const auto high = seen.max().item<int64_t>();
      const auto bad = low < 0 ? low : high;
      TORCH_CHECK_VALUE(low >= 0 && high <= longest, caller, ": expected ", name, " in [0, ", longest,
                        "], got ",
                        term.scalar_type() == at::kUInt64 ? std::to_string(static_cast<uint64_t>(bad))
                                                          : std::to_string(bad));
    }
    const auto lengths = wide.to(device);
    least = least.defined() ? at::minimum(least, lengths) : lengths;
  }
  return least;
}

void take_mask(const char* caller, const Mask& mask, const at::Tensor& q, bool by_lengths, Problem& p) {
  for (const auto& term : mask.keep_terms()) {
    const auto keep = mask_term(caller, "mask", term, q, p);
    p.keep = p.keep.defined() ? at::bitwise_and(p.keep, keep) : keep;
  }
  // Several biases are added in the precision of q or a wider one.
  const bool several = mask.bias_terms().size() > 1;
  for (const auto& term : mask.bias_terms()) {
    auto bias = mask_term(caller, "bias", term, q, p);
    if (several) bias = bias.to(c10::promoteTypes(bias.scalar_type(), q.scalar_type()));
    p.bias = p.bias.defined() ? p.bias + bias : bias;
  }
  for (const auto& term : mask.key_keep_terms()) {
    TORCH_CHECK_VALUE(term.device() == q.device(), caller, ": expected key_keep on ", q.device(),
                      " like q, got it on ", term.device());
    TORCH_CHECK_VALUE(term.size(0) == p.batch() && term.size(1) == p.keys(), caller,
                      ": expected key_keep of shape (", p.batch(), ", ", p.keys(), ") (B, S), got ",
                      shape_string(term.sizes()));
    p.key_keep = p.key_keep.defined() ? at::bitwise_and(p.key_keep, term) : term;
  }
  p.query_lengths = lengths_of(caller, "query_lengths", mask.query_length_terms(), p.queries(), p, true);
  p.key_lengths = lengths_of(caller, "key_lengths", mask.key_length_terms(), p.keys(), p,
                             by_lengths || p.query_lengths.defined());
  TORCH_CHECK_VALUE(!by_lengths || p.key_lengths.defined(), caller,
                    ": expected key_lengths (Mask::key_lengths) with Align::Lengths, got none");
}

// The batch items of a call as sequences, where their lengths or positions are not those of the whole call;
// otherwise null.
std::shared_ptr<const std::vector<kernels::Sequence>> items_of(const AttentionOptions& options,
                                                               const Problem& p) {
  const bool by_lengths = options.align == Align::Lengths;
  if (!(by_lengths || p.query_lengths.defined()) || p.q.is_meta()) return nullptr;
  const auto on_host = [](const at::Tensor& x) { return x.defined() ? x.cpu() : x; };
  const auto of_queries = on_host(p.query_lengths), of_keys = on_host(p.key_lengths);
  const auto length = [](const at::Tensor& lengths, int64_t b, int64_t whole) {
    return lengths.defined() ? lengths[b].item<int64_t>() : whole;
  };
  const int64_t L = p.queries(), S = p.keys();
  bool whole = true;
  std::vector<kernels::Sequence> items;
  for (int64_t b = 0; b < p.batch(); ++b) {
    const int64_t queries = length(of_queries, b, L), keys = length(of_keys, b, S);
    // Queries before the first key are no part of the sequence.
    const int64_t before = by_lengths ? std::max<int64_t>(queries - keys, 0) : 0, count = queries - before;
    const auto band = by_lengths ? kernels::band_of(options, queries, keys) : p.band;
    items.push_back({before, count, 0, keys, kernels::shifted(band, before, count, keys), b,
                     by_lengths ? queries : L, by_lengths ? keys : S});
    whole = whole && count == L && (keys == S || !by_lengths);
  }
  return whole ? nullptr : std::make_shared<const std::vector<kernels::Sequence>>(std::move(items));
}

void take_extras(const char* caller, const AttentionOptions& options, const AttentionExtras& extras,
                 Problem& p) {
  if (extras.alibi_slopes.defined()) {
    const auto& slopes = extras.alibi_slopes;
    check_floating(caller, "alibi_slopes", slopes);
    TORCH_CHECK_VALUE(slopes.device() == p.q.device(), caller, ": expected alibi_slopes on ", p.q.device(),
                      " like q, got them on ", slopes.device());
    const bool per_head = slopes.dim() == 1 && slopes.size(0) == p.heads();
    const bool per_batch = slopes.dim() == 2 && slopes.size(0) == p.batch() && slopes.size(1) == p.heads();
    TORCH_CHECK_VALUE(per_head || per_batch, caller, ": expected alibi_slopes of shape (", p.heads(),
                      ",) (H) or (", p.batch(), ", ", p.heads(), ") (B, H), got ",
                      shape_string(slopes.sizes()));
    p.alibi_slopes = per_head ? slopes.unsqueeze(0) : slopes;
  }
  if (extras.sinks.defined()) {
    check_floating(caller, "sinks", extras.sinks);
    TORCH_CHECK_VALUE(extras.sinks.device() == p.q.device(), caller, ": expected sinks on ", p.q.device(),
                      " like q, got them on ", extras.sinks.device());
    TORCH_CHECK_VALUE(extras.sinks.dim() == 1 && extras.sinks.size(0) == p.heads(), caller,
                      ": expected sinks of shape (", p.heads(), ",) (H), got ",
                      shape_string(extras.sinks.sizes()));
    TORCH_CHECK_VALUE(!options.softmax_plus_one, caller, ": expected sinks or softmax_plus_one, got both");
    p.sinks = extras.sinks;
  }
  if (extras.generator) {
    check_defined(caller, "generator", *extras.generator);
    TORCH_CHECK_VALUE(
        extras.generator->device().is_cpu(), caller,
        ": expected a CPU generator (the Counter stream is the same on every device), got one on ",
        extras.generator->device());
    p.generator = extras.generator;
  }
}

// Checks kept tiles against the call they are used in.
void check_blocks(const char* caller, const BlockMask& mask, bool by_lengths, const Problem& p) {
  const auto& blocks = mask.classes();
  if (!blocks) return;
  const auto agree = [](int64_t kept, int64_t given, bool varies) {
    return kept == given || (kept == 1 && !varies);
  };
  const auto& function = *mask.mask().function();
  TORCH_CHECK_VALUE(p.band.origin == p.keys() - p.queries() && !by_lengths, caller,
                    ": expected a mask function as block_mask, got the tiles of BlockMask::kept, whose "
                    "queries stand at i + S - L, not as this align says");
  const bool same = agree(blocks->batch, p.batch(), function.by_batch()) &&
                    agree(blocks->heads, p.heads(), function.by_head()) && blocks->queries == p.queries() &&
                    blocks->keys == p.keys();
  TORCH_CHECK_VALUE(same, caller, ": expected a block_mask kept for (B, H, L, S) = (", p.batch(), ", ",
                    p.heads(), ", ", p.queries(), ", ", p.keys(), "), got one for (", blocks->batch, ", ",
                    blocks->heads, ", ", blocks->queries, ", ", blocks->keys, ")");
  size_t n = 0;
  for (const auto& captured : function.captured()) {
    if (captured->tensor.is_inference()) continue;
    TORCH_CHECK_VALUE(
        captured->tensor._version() == blocks->versions[n++], caller,
        ": a tensor that the block_mask captured was changed after BlockMask::kept; keep its tiles again");
  }
}

void take_functions(const char* caller, const AttentionOptions& options, const AttentionExtras& extras,
                    Problem& p) {
  p.score = extras.score;
  p.mask = extras.block_mask.mask();
  p.blocks = extras.block_mask.classes();
  for (const auto* function : {p.score.function().get(), p.mask.function().get()}) {
    if (function) static_cast<void>(function->captured());  // checks its lookups
  }
  check_blocks(caller, extras.block_mask, options.align == Align::Lengths, p);
  p.normalise = extras.normalise == Normalise::Softmax;
  if (p.normalise) return;
  TORCH_CHECK_VALUE(!extras.sinks.defined() && !options.softmax_plus_one && !extras.logsumexp, caller,
                    ": expected no ",
                    extras.sinks.defined()     ? "sinks"
                    : options.softmax_plus_one ? "softmax_plus_one"
                                               : "logsumexp",
                    " with Normalise::None, which computes no softmax");
}

}  // namespace

void check_options(const char* caller, const AttentionOptions& options) {
  if (options.scale) {
    TORCH_CHECK_VALUE(std::isfinite(*options.scale) && *options.scale != 0.0, caller,
                      ": expected scale to be finite and not 0, got ", *options.scale);
  }
  if (options.softcap) {
    TORCH_CHECK_VALUE(std::isfinite(*options.softcap) && *options.softcap > 0.0, caller,
                      ": expected softcap to be positive and finite, got ", *options.softcap);
  }
  TORCH_CHECK_VALUE(options.window.left >= -1 && options.window.right >= -1, caller,
                    ": expected window bounds of -1 (none) or more, got left ", options.window.left,
                    ", right ", options.window.right);
  check_probability(caller, "dropout_p", options.dropout_p);
}

void check_module_options(const char* caller, const AttentionOptions& options, int64_t context_length) {
  check_options(caller, options);
  TORCH_CHECK_VALUE(options.dropout_p == 0.0, caller,
                    ": expected attention().dropout_p to stay 0 (set dropout; training mode decides), got ",
                    options.dropout_p);
  TORCH_CHECK_VALUE(context_length >= 0, caller, ": expected context_length >= 0 (0: no limit), got ",
                    context_length);
}

void take_options(const AttentionOptions& options, Problem& p) {
  p.scale = options.scale;
  p.softcap = options.softcap;
  p.band = kernels::band_of(options, p.queries(), p.keys());
  p.sequences = items_of(options, p);
  p.by_item = p.sequences != nullptr;
}

NormalizedCall normalize(const char* caller, const at::Tensor& given_q, const at::Tensor& given_k,
                         const at::Tensor& given_v, const AttentionOptions& options,
                         const AttentionExtras& extras) {
  const auto q = autocast(given_q), k = autocast(given_k), v = autocast(given_v);
  check_tensors(caller, q, k, v);
  check_options(caller, options);
  NormalizedCall call;
  call.leading = at::DimVector(q.sizes().slice(0, q.dim() - 2));
  Problem& p = call.problem;
  p.q = as_rank_4(q);
  p.k = as_rank_4(k);
  p.v = as_rank_4(v);
  p.dropout_p = options.dropout_p;
  p.dropout_stream =
      options.dropout_stream == DropoutStream::Any ? DropoutStreamGuard::current() : options.dropout_stream;
  p.weights = extras.weights;
  p.logsumexp = extras.logsumexp;
  take_mask(caller, extras.mask, q, options.align == Align::Lengths, p);
  take_options(options, p);
  take_extras(caller, options, extras, p);
  take_functions(caller, options, extras, p);
  if (options.softmax_plus_one) p.sinks = at::zeros({p.heads()}, p.q.options());
  // Pending sign changes are applied here, before anything reads memory.
  for (const auto tensor : kernels::kTensors) {
    if ((p.*tensor).defined() && (p.*tensor).is_neg()) p.*tensor = (p.*tensor).resolve_neg();
  }
  return call;
}

}  // namespace attentive
