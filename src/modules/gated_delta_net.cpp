#include <algorithm>
#include <array>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/functional/gated_delta_rule.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/gated_delta_net.h>

#include "functional/linear.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr double kNormalizeEps = 1e-6;  // transformers' and FLA's, whatever the eps of the norm

// The sums over `kernel` tokens of each channel of x (B, N, C), which `padding` tokens of zeros precede and
// follow: (B, N + 2 padding - kernel + 1, C). As a picture one token high, x is read as it lies; a
// convolution of one dimension would transpose it twice, which takes forty times as long.
at::Tensor sums_of_channels(const at::Tensor& x, const at::Tensor& weight, int64_t padding) {
  const bool widens = x.is_cpu() && c10::isReducedFloatingType(x.scalar_type());
  const auto type = widens ? at::kFloat : x.scalar_type();
  const auto picture = x.to(type).transpose(1, 2).unsqueeze(2);
  const std::array<int64_t, 2> one = {1, 1}, beside = {0, padding};
  const auto sums = at::conv2d(picture, weight.to(type).unsqueeze(2), std::optional<at::Tensor>(), one,
                               beside, one, x.size(2));
  return sums.squeeze(2).transpose(1, 2).to(x.scalar_type());
}

// The convolution of x (B, T, C) after zeros. The gradient by x is the convolution in the other direction,
// and that by the weight `kernel` sums of products, both of which take less than ATen's backward pass.
class CausalConvolution : public torch::autograd::Function<CausalConvolution> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return sums_of_channels(x, weight, weight.size(2) - 1).narrow(1, 0, x.size(1));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &grad = grads[0];
    const auto T = x.size(1), kernel = weight.size(2);
    torch::autograd::variable_list result(2);
    if (ctx->needs_input_grad(0))
      result[0] = sums_of_channels(grad, weight.flip(2), kernel - 1).narrow(1, kernel - 1, T);
    if (ctx->needs_input_grad(1)) {
      std::vector<at::Tensor> sums;
      for (int64_t back = kernel - 1; back >= 0; --back) {
        const auto seen = std::max<int64_t>(T - back, 0);
        const auto products = grad.narrow(1, T - seen, seen) * x.narrow(1, 0, seen);
        sums.push_back(products.sum(at::IntArrayRef{0, 1}));
      }
      result[1] = at::stack(sums, 1).unsqueeze(1);
    }
    return result;
  }
};

// The convolution of x (1, T, C), of which `offsets` separates packed sequences.
at::Tensor convolved_apart(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& offsets) {
  const auto T = x.size(1), kernel = weight.size(2);
  const auto sequence = at::bucketize(at::arange(T, offsets.options()), offsets, false, /*right=*/true);
  at::Tensor total;
  for (int64_t back = 0; back < std::min(kernel, T); ++back) {
    const auto other = sequence.narrow(0, 0, T - back).ne(sequence.narrow(0, back, T - back));
    const auto earlier = x.narrow(1, 0, T - back).masked_fill(other.to(x.device()).unsqueeze(1), 0);
    const auto term = at::constant_pad_nd(earlier, {0, 0, back, 0}) * weight.select(2, kernel - 1 - back).t();
    total = back == 0 ? term : total + term;
  }
  return total;
}

}  // namespace

void GatedDeltaNetImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  check_count(kName, "num_heads", options.num_heads());
  check_heads(kName, "num_heads", options.num_heads(), num_key_heads(), "num_key_heads");
  check_count(kName, "key_dim", options.key_dim());
  check_count(kName, "value_dim", options.value_dim());
  check_count(kName, "kernel", options.kernel());
  check_eps(kName, options.eps());

  const auto heads = options.num_heads(), keys = num_key_heads() * options.key_dim(),
             values = heads * options.value_dim();
  // In the order in which Python draws.
  conv1d = register_module("conv1d", causal_convolution_layer(2 * keys + values, options.kernel()));
  in_proj_qkvz =
      register_module("in_proj_qkvz", linear_layer(options.emb_dim(), 2 * keys + 2 * values, /*bias=*/false));
  in_proj_ba = register_module("in_proj_ba", linear_layer(options.emb_dim(), 2 * heads, /*bias=*/false));
  dt_bias = register_parameter("dt_bias", at::ones({heads}));
  auto decay = at::empty({heads});
  if (draws_first_weights()) decay.uniform_(0.01, 16).log_();
  A_log = register_parameter("A_log", decay);
  norm = register_module("norm", RMSNorm(RMSNormOptions(options.value_dim()).eps(options.eps())));
  out_proj = register_module("out_proj", linear_layer(values, options.emb_dim(), /*bias=*/false));
}

DeltaCacheOptions GatedDeltaNetImpl::cache_options(int64_t layers, int64_t batch) const {
  return {.layers = layers,
          .batch = batch,
          .conv_dim = conv1d->weight.size(0),
          .kernel = options.kernel(),
          .num_heads = options.num_heads(),
          .key_dim = options.key_dim(),
          .value_dim = options.value_dim(),
          .dtype = out_proj->weight.scalar_type(),
          .device = out_proj->weight.device()};
}

at::Tensor GatedDeltaNetImpl::forward(const at::Tensor& x, const at::Tensor& keep) {
  check_sequence(kName, "x", x, options.emb_dim(), out_proj->weight);
  if (keep.defined()) {
    TORCH_CHECK_VALUE(keep.sizes() == x.sizes().slice(0, x.dim() - 1) && keep.device() == x.device(), kName,
                      ": expected keep of shape ", shape_string(x.sizes().slice(0, x.dim() - 1)), " on ",
                      x.device(), ", got ", describe(keep), " on ", keep.device());
    TORCH_CHECK_TYPE(keep.scalar_type() == at::kBool, kName, ": expected keep of dtype Bool, got ",
                     keep.scalar_type());
  }
  return run(x, keep, {}, nullptr);
}

at::Tensor GatedDeltaNetImpl::forward_packed(const at::Tensor& x, const at::Tensor& offsets) {
  check_sequence(kName, "x", x, options.emb_dim(), out_proj->weight);
  TORCH_CHECK_VALUE(x.dim() == 2, kName, ": expected packed x of shape (T, ", options.emb_dim(), "), got ",
                    shape_string(x.sizes()));
  check_defined(kName, "offsets", offsets);
  TORCH_CHECK_VALUE(offsets.dim() == 1 && offsets.is_cpu() && offsets.scalar_type() == at::kLong, kName,
                    ": expected offsets of shape (N + 1,) and dtype Long on the CPU, got ", describe(offsets),
                    " on ", offsets.device());
  return run(x, {}, offsets, nullptr);
}

at::Tensor GatedDeltaNetImpl::forward_cached(const at::Tensor& x, DeltaCache& cache, int64_t layer) {
  check_sequence(kName, "x", x, options.emb_dim(), out_proj->weight);
  const auto sizes = [](const DeltaCacheOptions& o) {
    return std::array{o.batch, o.conv_dim, o.kernel, o.num_heads, o.key_dim, o.value_dim};
  };
  const auto& given = cache.options();
  const auto wanted = cache_options(given.layers, x.dim() == 2 ? 1 : x.size(0));
  TORCH_CHECK_VALUE(sizes(given) == sizes(wanted) && given.device == wanted.device, kName,
                    ": expected a cache of its cache_options(): batch, conv_dim, kernel, num_heads, key_dim, "
                    "value_dim = ",
                    shape_string(sizes(wanted)), " on ", wanted.device, ", got ", shape_string(sizes(given)),
                    " on ", given.device, "; reset(batch) starts with another batch");
  TORCH_CHECK_TYPE(given.dtype == wanted.dtype, kName, ": expected a cache of dtype ", wanted.dtype, ", got ",
                   given.dtype);
  auto& state = cache.layer(layer);
  at::Tensor keep;
  if (cache.padding().defined()) {
    const auto token = at::arange(state.position, state.position + x.size(-2), cache.padding().options());
    keep = token.ge(cache.padding().unsqueeze(1));
  }
  const at::NoGradGuard no_grad;
  return run(x, keep, {}, &state);
}

at::Tensor GatedDeltaNetImpl::run(const at::Tensor& given, const at::Tensor& given_keep,
                                  const at::Tensor& offsets, DeltaCache::Layer* state) {
  const auto groups = num_key_heads(), in_group = options.num_heads() / groups;
  const auto key = options.key_dim(), value = options.value_dim(), kernel = options.kernel();
  auto x = batched(given);
  const auto B = x.size(0), T = x.size(1);
  const auto keep = given_keep.defined() ? given_keep.view({B, T, 1}) : given_keep;
  if (keep.defined()) x = x.masked_fill(keep.logical_not(), 0);

  const auto projected = linears(x, {{in_proj_qkvz->weight, {}}, {in_proj_ba->weight, {}}});
  // Side by side for each key head: its query, its key, the values and the gates z of its value heads.
  const auto qkvz = projected[0].view({B, T, groups, 2 * key + 2 * in_group * value});
  const auto part = [&](int64_t first, int64_t width) { return qkvz.narrow(3, first, width).flatten(2); };
  const auto mixed = at::cat({part(0, key), part(key, key), part(2 * key, in_group * value)}, 2);
  const auto z = part(2 * key + in_group * value, in_group * value).view({B, T, options.num_heads(), value});
  const auto ba = projected[1].view({B, T, groups, 2, in_group});

  const auto wide = c10::promoteTypes(mixed.scalar_type(), at::kFloat);
  auto beta = ba.select(3, 0).flatten(2).sigmoid();
  auto gate = at::softplus(ba.select(3, 1).flatten(2).to(wide) + dt_bias) * -A_log.to(wide).exp();
  if (keep.defined()) {
    beta = beta.masked_fill(keep.logical_not(), 0);
    gate = gate.masked_fill(keep.logical_not(), 0);
  }

  // The convolution reads the last inputs of the tokens before, or zeros.
  const auto& weight = conv1d->weight;
  const auto inputs = state ? at::cat({state->conv.transpose(1, 2), mixed}, 1) : mixed;
  at::Tensor sums = mixed;
  if (mixed.numel() > 0) {
    sums = state               ? sums_of_channels(inputs.narrow(1, 1, kernel - 1 + T), weight, 0)
           : offsets.defined() ? convolved_apart(mixed, weight, offsets)
                               : CausalConvolution::apply(mixed, weight);
  }
  const auto qkv = at::silu(sums).contiguous();
  const auto heads = [&](int64_t first, int64_t count, int64_t features) {
    return split_heads(qkv.narrow(2, first, count * features), count);
  };
  const auto q = heads(0, groups, key), k = heads(groups * key, groups, key),
             v = heads(2 * groups * key, options.num_heads(), value);
  const GatedDeltaRuleCall call{.normalize_eps = kNormalizeEps, .sequence_offsets = offsets};
  const auto gates = gate.transpose(1, 2), betas = beta.transpose(1, 2);
  const auto output = state ? gated_delta_rule_(state->recurrent, q, k, v, gates, betas, call)
                            : gated_delta_rule(q, k, v, gates, betas, call).output;
  if (state) {
    state->conv.copy_(inputs.narrow(1, T, kernel).transpose(1, 2));
    state->position += T;
  }

  const auto normed = norm->forward(output.transpose(1, 2).contiguous());
  const auto gated = (normed * at::silu(z.to(wide))).to(normed.scalar_type()).flatten(2);
  return unbatched_like(given, project(out_proj, gated), {}).first;
}

}  // namespace attentive
