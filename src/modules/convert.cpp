#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>

#include <attentive/modules/convert.h>

#include "modules/checks.h"

namespace attentive::convert {
namespace {

// Reads a state dict key by key and remembers which keys have been read.
class Source {
 public:
  Source(const char* caller, const StateDict& state) : caller_(caller), state_(state) {
    TORCH_CHECK_VALUE(!state.empty(), caller_, ": expected a state dict, got an empty one");
    const auto& first = *state.begin();
    for (const auto& [key, tensor] : state) {
      TORCH_CHECK_VALUE(tensor.defined(), caller_, ": expected a tensor at ", key, ", got an undefined one");
      TORCH_CHECK_VALUE(is_mask(key) || is_mask(first.first) ||
                            (tensor.scalar_type() == first.second.scalar_type() &&
                             tensor.device() == first.second.device()),
                        caller_, ": expected tensors of one dtype and device, got ", first.first, " ",
                        first.second.scalar_type(), " on ", first.second.device(), " and ", key, " ",
                        tensor.scalar_type(), " on ", tensor.device());
    }
  }

  const char* caller() const { return caller_; }
  bool has(const std::string& key) const { return state_.count(key) > 0; }

  // The tensor of a key, detached; undefined if the key is absent.
  at::Tensor optional(const std::string& key) {
    const auto found = state_.find(key);
    if (found == state_.end()) return {};
    used_.insert(key);
    return found->second.detach();
  }

  at::Tensor need(const std::string& key) {
    TORCH_CHECK_VALUE(has(key), caller_, ": missing key ", key);
    return optional(key);
  }

  at::Tensor need(const std::string& key, at::IntArrayRef sizes) { return check(key, need(key), sizes); }

  at::Tensor optional(const std::string& key, at::IntArrayRef sizes) {
    return check(key, optional(key), sizes);
  }

  void finish() const {
    for (const auto& [key, tensor] : state_) {
      TORCH_CHECK_VALUE(used_.count(key) > 0, caller_, ": unexpected key ", key);
    }
  }

 private:
  // Python's causal mask is float32 whatever the dtype of the weights.
  static bool is_mask(const std::string& key) {
    return key == "mask" || (key.size() > 5 && key.compare(key.size() - 5, 5, ".mask") == 0);
  }

  at::Tensor check(const std::string& key, const at::Tensor& tensor, at::IntArrayRef sizes) const {
    TORCH_CHECK_VALUE(!tensor.defined() || tensor.sizes() == sizes, caller_, ": expected ", key, " of shape ",
                      shape_string(sizes), ", got ", shape_string(tensor.sizes()));
    return tensor;
  }

  const char* caller_;
  const StateDict& state_;
  std::set<std::string> used_;
};

// A linear layer's weight (out, in) and its bias (out), which is undefined if there is none.
struct Linear {
  at::Tensor weight, bias;
};

constexpr std::array<const char*, 3> kProjections = {"W_query", "W_key", "W_value"};

// The parameters of every multi-head class.
struct Heads {
  std::array<Linear, 3> qkv;
  Linear out;
  at::Tensor mask, sinks;

  int64_t inputs() const { return qkv[0].weight.size(1); }
  int64_t outputs() const { return qkv[0].weight.size(0); }
};

at::Tensor zeros_like_rows(const at::Tensor& weight) {
  return at::zeros({weight.size(0)}, weight.options());
}

bool is_zero(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.eq(0).all().item<bool>();
}

void fill_biases(std::array<Linear, 3>& layers) {
  for (auto& layer : layers) {
    if (!layer.bias.defined()) layer.bias = zeros_like_rows(layer.weight);
  }
}

void drop_biases(const char* caller, const char* option, std::array<Linear, 3>& layers) {
  for (size_t n = 0; n < layers.size(); ++n) {
    TORCH_CHECK_VALUE(is_zero(layers[n].bias), caller, ": expected the bias of ", kProjections[n],
                      " to be zero, because ", option, " = false leaves it out");
    layers[n].bias = at::Tensor();
  }
}

// Reads W_query, W_key and W_value under a prefix. Keys and values have `kv_rows` rows; -1: as many as
// queries.
std::array<Linear, 3> read_projections(Source& source, const std::string& prefix, int64_t kv_rows = -1) {
  std::array<Linear, 3> result;
  const auto query = source.need(prefix + "W_query.weight");
  TORCH_CHECK_VALUE(query.dim() == 2, source.caller(), ": expected ", prefix,
                    "W_query.weight of rank 2, got ", shape_string(query.sizes()));
  const bool biased = source.has(prefix + "W_query.bias");
  for (size_t n = 0; n < 3; ++n) {
    const int64_t rows = n == 0 || kv_rows < 0 ? query.size(0) : kv_rows;
    const auto name = prefix + kProjections[n];
    result[n].weight = source.need(name + ".weight", {rows, query.size(1)});
    if (biased) result[n].bias = source.need(name + ".bias", {rows});
  }
  return result;
}

Linear read_square(Source& source, const std::string& name, int64_t features) {
  return {source.need(name + ".weight", {features, features}), source.optional(name + ".bias", {features})};
}

Heads read_multi_head(Source& source, int64_t kv_rows = -1) {
  Heads heads;
  heads.qkv = read_projections(source, "", kv_rows);
  heads.out = read_square(source, "out_proj", heads.outputs());
  heads.mask = source.optional("mask");
  heads.sinks = source.optional("sinks");
  source.finish();
  return heads;
}

void put(StateDict& state, const std::string& key, const at::Tensor& tensor) {
  if (tensor.defined()) state[key] = tensor.clone(at::MemoryFormat::Contiguous);
}

void put(StateDict& state, const std::string& name, const Linear& layer) {
  put(state, name + ".weight", layer.weight);
  put(state, name + ".bias", layer.bias);
}

StateDict write_multi_head(Heads heads) {
  StateDict state;
  for (size_t n = 0; n < 3; ++n) put(state, kProjections[n], heads.qkv[n]);
  if (!heads.out.bias.defined()) heads.out.bias = zeros_like_rows(heads.out.weight);
  put(state, "out_proj", heads.out);
  put(state, "mask", heads.mask);
  put(state, "sinks", heads.sinks);
  return state;
}

// Concatenates the rows of several layers, and their biases if there are any.
Linear stack(const std::vector<Linear>& layers) {
  std::vector<at::Tensor> weights, biases;
  for (const auto& layer : layers) {
    weights.push_back(layer.weight);
    if (layer.bias.defined()) biases.push_back(layer.bias);
  }
  return {at::cat(weights), biases.empty() ? at::Tensor() : at::cat(biases)};
}

// The n-th of `count` equal parts of a layer's rows.
Linear rows(const Linear& layer, int64_t n, int64_t count) {
  const int64_t size = layer.weight.size(0) / count;
  return {layer.weight.narrow(0, n * size, size),
          layer.bias.defined() ? layer.bias.narrow(0, n * size, size) : at::Tensor()};
}

std::array<Linear, 3> split_packed(const Linear& packed) {
  return {rows(packed, 0, 3), rows(packed, 1, 3), rows(packed, 2, 3)};
}

void check_square(const char* caller, const Heads& heads) {
  TORCH_CHECK_VALUE(heads.inputs() == heads.outputs(), caller,
                    ": expected d_in = d_out, which the target's packed projection needs, got d_in ",
                    heads.inputs(), ", d_out ", heads.outputs());
  TORCH_CHECK_VALUE(!heads.sinks.defined(), caller, ": unexpected key sinks, which the target does not have");
}

void check_groups(const char* caller, int64_t num_heads, int64_t num_kv_heads) {
  check_positive(caller, "num_heads", num_heads);
  check_heads(caller, "num_heads", num_heads, num_kv_heads, "num_kv_heads");
}

// The rows of a fused projection: equal units, of each of which some rows are of q, some of k, some of v.
struct FusedRows {
  int64_t units;
  std::array<int64_t, 3> sizes;
};

FusedRows fused_rows(const char* caller, FusedOrder order, const FusedOptions& options, int64_t rows) {
  const int64_t heads = options.heads, kv_heads = options.kv_heads == 0 ? heads : options.kv_heads;
  const bool alike = order == FusedOrder::PerHead || order == FusedOrder::Thirds;  // heads of q, k and v
  const int64_t units = order == FusedOrder::PerHead    ? heads
                        : order == FusedOrder::PerGroup ? kv_heads
                        : order == FusedOrder::Parts    ? options.parts
                                                        : 1;
  check_positive(caller, "heads", heads);
  const bool divide = kv_heads > 0 && heads % kv_heads == 0 && (!alike || heads == kv_heads) && units > 0 &&
                      kv_heads % units == 0;
  TORCH_CHECK_VALUE(divide, caller, ": expected heads to be a multiple of kv_heads",
                    alike                        ? ", as many as these,"
                    : order == FusedOrder::Parts ? ", and these of parts,"
                                                 : "",
                    " in the order ", to_string(order), ", got heads ", heads, ", kv_heads ", kv_heads,
                    ", parts ", options.parts);
  const int64_t all = heads + 2 * kv_heads, head_dim = options.head_dim == 0 ? rows / all : options.head_dim;
  TORCH_CHECK_VALUE(head_dim > 0 && rows % all == 0 && rows / all == head_dim, caller, ": expected ", all,
                    " * ", options.head_dim == 0 ? "head_dim" : std::to_string(head_dim),
                    " output features in the order ", to_string(order), " of heads ", heads, ", kv_heads ",
                    kv_heads, ", got ", rows);
  const int64_t q = heads / units * head_dim, kv = kv_heads / units * head_dim;
  return {units, {q, kv, kv}};
}

// Checks a weight or a bias.
void check_layer(const char* caller, const char* name, const at::Tensor& x) {
  check_defined(caller, name, x);
  TORCH_CHECK_VALUE(x.dim() == 1 || x.dim() == 2, caller, ": expected ", name,
                    " to be a weight or a bias, got shape ", shape_string(x.sizes()));
}

}  // namespace

StateDict wrapper_to_multi_head(const StateDict& state) {
  Source source("wrapper_to_multi_head", state);
  std::array<std::vector<Linear>, 3> parts;
  at::Tensor mask;
  for (int64_t n = 0; n == 0 || source.has("heads." + std::to_string(n) + ".W_query.weight"); ++n) {
    const auto prefix = "heads." + std::to_string(n) + ".";
    const auto head = read_projections(source, prefix);
    for (size_t p = 0; p < 3; ++p) {
      parts[p].push_back(head[p]);
      const auto &first = parts[0].front(), &current = head[p];
      TORCH_CHECK_VALUE(
          current.weight.sizes() == first.weight.sizes() && current.bias.defined() == first.bias.defined(),
          source.caller(), ": expected every head to look like head 0, ", shape_string(first.weight.sizes()),
          ", got head ", n, " with ", shape_string(current.weight.sizes()));
    }
    const auto head_mask = source.optional(prefix + "mask");
    if (n == 0) mask = head_mask;
  }
  source.finish();
  Heads heads;
  for (size_t p = 0; p < 3; ++p) heads.qkv[p] = stack(parts[p]);
  heads.out.weight = at::eye(heads.outputs(), heads.qkv[0].weight.options());
  heads.mask = mask;
  return write_multi_head(heads);
}

StateDict multi_head_to_wrapper(const StateDict& state, int64_t num_heads) {
  Source source("multi_head_to_wrapper", state);
  const auto projections = read_projections(source, "");
  const auto& weight = projections[0].weight;
  check_heads(source.caller(), "d_out", weight.size(0), num_heads);
  const auto out = source.optional("out_proj.weight", {weight.size(0), weight.size(0)});
  TORCH_CHECK_VALUE(!out.defined() || out.equal(at::eye(out.size(0), out.options())), source.caller(),
                    ": expected out_proj.weight to be the identity, because the wrapper has no out_proj");
  TORCH_CHECK_VALUE(is_zero(source.optional("out_proj.bias")), source.caller(),
                    ": expected out_proj.bias to be zero, because the wrapper has no out_proj");
  const auto mask = source.optional("mask");
  source.finish();
  StateDict result;
  for (int64_t n = 0; n < num_heads; ++n) {
    const auto prefix = "heads." + std::to_string(n) + ".";
    for (size_t p = 0; p < 3; ++p) put(result, prefix + kProjections[p], rows(projections[p], n, num_heads));
    put(result, prefix + "mask", mask);
  }
  return result;
}

StateDict fused_to_multi_head(const StateDict& state, bool qkv_bias) {
  Source source("fused_to_multi_head", state);
  const auto out = source.need("proj.weight");
  TORCH_CHECK_VALUE(out.dim() == 2, source.caller(), ": expected proj.weight of rank 2, got ",
                    shape_string(out.sizes()));
  const int64_t features = out.size(0);
  Heads heads;
  heads.out = read_square(source, "proj", features);
  heads.qkv = split_packed(
      {source.need("qkv.weight", {3 * features, features}), source.optional("qkv.bias", {3 * features})});
  source.finish();
  if (qkv_bias)
    fill_biases(heads.qkv);
  else
    drop_biases(source.caller(), "qkv_bias", heads.qkv);
  return write_multi_head(heads);
}

StateDict multi_head_to_fused(const StateDict& state) {
  Source source("multi_head_to_fused", state);
  auto heads = read_multi_head(source);
  check_square(source.caller(), heads);
  fill_biases(heads.qkv);
  if (!heads.out.bias.defined()) heads.out.bias = zeros_like_rows(heads.out.weight);
  StateDict result;
  put(result, "qkv", stack({heads.qkv.begin(), heads.qkv.end()}));
  put(result, "proj", heads.out);
  return result;
}

StateDict torch_to_multi_head(const StateDict& state, bool qkv_bias) {
  Source source("torch_to_multi_head", state);
  TORCH_CHECK_VALUE(
      !source.has("bias_k") && !source.has("bias_v"), source.caller(),
      ": unexpected key bias_k or bias_v (add_bias_kv), which MultiHeadAttention does not have");
  const auto out = source.need("out_proj.weight");
  TORCH_CHECK_VALUE(out.dim() == 2, source.caller(), ": expected out_proj.weight of rank 2, got ",
                    shape_string(out.sizes()));
  const int64_t features = out.size(0);
  Heads heads;
  heads.out = read_square(source, "out_proj", features);
  Linear packed;
  if (source.has("in_proj_weight") || !source.has("q_proj_weight")) {
    packed.weight = source.need("in_proj_weight", {3 * features, features});
  } else {
    // PyTorch writes separate weights only for another kdim or vdim, whose shapes are refused here; other
    // tools always do.
    const at::DimVector square = {features, features};
    packed.weight = at::cat({source.need("q_proj_weight", square), source.need("k_proj_weight", square),
                             source.need("v_proj_weight", square)});
  }
  packed.bias = source.optional("in_proj_bias", {3 * features});
  source.finish();
  heads.qkv = split_packed(packed);
  if (qkv_bias)
    fill_biases(heads.qkv);
  else
    drop_biases(source.caller(), "qkv_bias", heads.qkv);
  return write_multi_head(heads);
}

StateDict multi_head_to_torch(const StateDict& state, bool bias) {
  Source source("multi_head_to_torch", state);
  auto heads = read_multi_head(source);
  check_square(source.caller(), heads);
  if (bias) {
    fill_biases(heads.qkv);
    if (!heads.out.bias.defined()) heads.out.bias = zeros_like_rows(heads.out.weight);
  } else {
    drop_biases(source.caller(), "bias", heads.qkv);
    TORCH_CHECK_VALUE(is_zero(heads.out.bias), source.caller(),
                      ": expected out_proj.bias to be zero, because bias = false leaves it out");
    heads.out.bias = at::Tensor();
  }
  const auto packed = stack({heads.qkv.begin(), heads.qkv.end()});
  StateDict result;
  put(result, "in_proj_weight", packed.weight);
  put(result, "in_proj_bias", packed.bias);
  put(result, "out_proj", heads.out);
  return result;
}

StateDict multi_head_to_grouped(const StateDict& state, int64_t num_heads, int64_t num_kv_heads) {
  Source source("multi_head_to_grouped", state);
  check_groups(source.caller(), num_heads, num_kv_heads);
  auto heads = read_multi_head(source);
  check_heads(source.caller(), "d_out", heads.outputs(), num_heads);
  const auto pool = [&](const at::Tensor& x) {
    if (!x.defined()) return x;
    return x.unflatten(0, {num_kv_heads, num_heads / num_kv_heads, x.size(0) / num_heads})
        .mean(1)
        .flatten(0, 1);
  };
  StateDict result;
  put(result, "W_query", heads.qkv[0]);
  for (size_t n = 1; n < 3; ++n) {
    put(result, kProjections[n], Linear{pool(heads.qkv[n].weight), pool(heads.qkv[n].bias)});
  }
  put(result, "out_proj", heads.out);
  put(result, "sinks", heads.sinks);
  return result;
}

StateDict grouped_to_multi_head(const StateDict& state, int64_t num_heads, int64_t num_kv_heads) {
  Source source("grouped_to_multi_head", state);
  check_groups(source.caller(), num_heads, num_kv_heads);
  const auto query = source.need("W_query.weight");
  check_heads(source.caller(), "d_out", query.dim() == 2 ? query.size(0) : 0, num_heads);
  auto heads = read_multi_head(source, query.size(0) / num_heads * num_kv_heads);
  const auto repeat = [&](const at::Tensor& x) {
    if (!x.defined()) return x;
    return x.unflatten(0, {num_kv_heads, x.size(0) / num_kv_heads})
        .repeat_interleave(num_heads / num_kv_heads, 0)
        .flatten(0, 1);
  };
  for (size_t n = 1; n < 3; ++n) heads.qkv[n] = {repeat(heads.qkv[n].weight), repeat(heads.qkv[n].bias)};
  return write_multi_head(heads);
}

std::string_view to_string(FusedOrder value) {
  return enum_name(value, {"per-head", "thirds", "blocks", "per-group", "parts"});
}

std::array<at::Tensor, 3> split_fused(const at::Tensor& fused, FusedOrder order,
                                      const FusedOptions& options) {
  check_layer("split_fused", "fused", fused);
  const auto x = options.transposed && fused.dim() == 2 ? fused.t() : fused;
  const auto rows = fused_rows("split_fused", order, options, x.size(0));
  auto blocks = x.unflatten(0, {rows.units, x.size(0) / rows.units}).split_with_sizes(rows.sizes, 1);
  if (order == FusedOrder::Parts) std::swap(blocks[1], blocks[2]);
  return {blocks[0].flatten(0, 1), blocks[1].flatten(0, 1), blocks[2].flatten(0, 1)};
}

at::Tensor join_fused(const std::array<at::Tensor, 3>& qkv, FusedOrder order, const FusedOptions& options) {
  constexpr const char *kCaller = "join_fused", *kNames[] = {"q", "k", "v"};
  int64_t features = 0;
  for (size_t n = 0; n < 3; ++n) {
    check_layer(kCaller, kNames[n], qkv[n]);
    features += qkv[n].size(0);
  }
  const auto rows = fused_rows(kCaller, order, options, features);
  std::vector<at::Tensor> blocks;
  for (size_t n = 0; n < 3; ++n) {
    auto sizes = at::DimVector(qkv[0].sizes());
    sizes[0] = rows.units * rows.sizes[n];
    TORCH_CHECK_VALUE(qkv[n].sizes() == sizes && qkv[n].scalar_type() == qkv[0].scalar_type() &&
                          qkv[n].device() == qkv[0].device(),
                      kCaller, ": expected ", kNames[n], " of shape ", shape_string(sizes), ", ",
                      qkv[0].scalar_type(), " on ", qkv[0].device(), " in the order ", to_string(order),
                      ", got ", shape_string(qkv[n].sizes()), ", ", qkv[n].scalar_type(), " on ",
                      qkv[n].device());
    blocks.push_back(qkv[n].unflatten(0, {rows.units, rows.sizes[n]}));
  }
  if (order == FusedOrder::Parts) std::swap(blocks[1], blocks[2]);
  const auto fused = at::cat(blocks, 1).flatten(0, 1);
  return options.transposed && fused.dim() == 2 ? fused.t() : fused;
}

at::Tensor regroup_heads(const at::Tensor& x, int64_t heads, int64_t kv_heads, int64_t dim) {
  check_defined("regroup_heads", "x", x);
  TORCH_CHECK_VALUE(dim >= 0 && dim < x.dim(), "regroup_heads: expected dim in [0, ", x.dim(), "), got ",
                    dim);
  TORCH_CHECK_VALUE(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && x.size(dim) % heads == 0,
                    "regroup_heads: expected kv_heads to divide heads and these the size of dimension ", dim,
                    ", got heads ", heads, ", kv_heads ", kv_heads, ", x ", shape_string(x.sizes()));
  return x.unflatten(dim, {heads / kv_heads, kv_heads, x.size(dim) / heads})
      .transpose(dim, dim + 1)
      .flatten(dim, dim + 2);
}

}  // namespace attentive::convert
