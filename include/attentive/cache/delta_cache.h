#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The sizes of the states of `layers` gated delta nets (`GatedDeltaNet::cache_options`).
struct DeltaCacheOptions {
  int64_t layers = 1;
  int64_t batch = 1;
  int64_t conv_dim = 1;    ///< channels of the convolution
  int64_t kernel = 4;      ///< tokens that it reads
  int64_t num_heads = 1;   ///< value heads
  int64_t key_dim = 64;    ///< features of a key
  int64_t value_dim = 64;  ///< features of a value
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// What gated delta nets know of the tokens that they have seen: the last inputs of each convolution, and a
/// matrix per head. Its size does not grow with the number of tokens, and nothing is ever dropped.
///
/// A copy has a state of its own. Sequences of different lengths end together, as in a `KVCache`:
/// `set_padding` says how many tokens before the first one of each are none; these do not change its state.
/// After any error the cache is unchanged.
/// Memory: layers * batch * (conv_dim * kernel + num_heads * key_dim * value_dim) numbers; the matrices are
/// float32 (float64 for a float64 dtype).
///
///   attentive::DeltaCache cache(net->cache_options(/*layers=*/1, /*batch=*/1));
///   y = net->forward_cached(prompt, cache, 0);
///   y = net->forward_cached(next_token, cache, 0);
class DeltaCache {
 public:
  /// The state of a layer.
  struct Layer {
    at::Tensor conv;       ///< (B, conv_dim, kernel): the newest inputs of the convolution, the last one last
    at::Tensor recurrent;  ///< (B, num_heads, key_dim, value_dim)
    int64_t position = 0;  ///< tokens seen, padding included
  };

  /// Throws c10::ValueError unless every size is positive, c10::TypeError unless the dtype is floating, and
  /// c10::OutOfMemoryError.
  explicit DeltaCache(DeltaCacheOptions options);
  DeltaCache(const DeltaCache& other);
  DeltaCache(DeltaCache&&) = default;
  DeltaCache& operator=(const DeltaCache& other) { return *this = DeltaCache(other); }
  DeltaCache& operator=(DeltaCache&&) = default;

  /// The state of a layer, which its net reads and updates in place. Throws c10::ValueError for a layer
  /// outside [0, layers).
  Layer& layer(int64_t index);
  const Layer& layer(int64_t index) const;
  /// The position of the token that this layer will see next.
  int64_t position(int64_t index = 0) const { return layer(index).position; }

  /// The first padding[b] tokens of sequence b will be padding. padding: (B) integers, on any device. Throws
  /// c10::ValueError for a cache that has seen tokens, another shape or a negative number.
  void set_padding(const at::Tensor& padding);
  /// (B) int64 on the cache's device; undefined if there is none in any sequence.
  const at::Tensor& padding() const { return padding_; }

  /// Forgets all tokens and the padding; with `batch`, the cache holds that many sequences afterwards.
  void reset();
  void reset(int64_t batch);
  /// Sequence i continues the former sequence rows[i]; the batch becomes rows.size(0). rows: (B') integers.
  /// Throws c10::ValueError for a row outside the batch, and c10::OutOfMemoryError. Memory: the new batch.
  void reorder(const at::Tensor& rows);

  /// The whole state as named tensors, which `save_safetensors` writes: views, which the next token changes.
  std::map<std::string, at::Tensor> tensors() const;
  /// Takes a copy of what `tensors` returned for a cache of the same options but for the batch. Throws
  /// c10::ValueError or c10::TypeError that names a tensor that is missing, unknown or of another shape or
  /// dtype.
  void load(const std::map<std::string, at::Tensor>& tensors);

  const DeltaCacheOptions& options() const { return options_; }
  size_t bytes() const;

 private:
  std::vector<Layer> empty_layers(int64_t batch) const;

  DeltaCacheOptions options_;
  std::vector<Layer> layers_;
  at::Tensor padding_;
};

}  // namespace attentive
