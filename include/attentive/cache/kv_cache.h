#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The sizes of a key-value cache. Each of the `layers` attention layers holds keys and values of shape
/// (batch, num_kv_heads, tokens, head_dim).
struct KVCacheOptions {
  int64_t layers = 1;
  int64_t batch = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  /// If set, values are the first `values_in_keys` features of the keys and take no memory: the cache of
  /// `LatentAttention`, whose keys are latents.
  int64_t values_in_keys = 0;
};

/// The keys and values of the tokens that a model has already seen, kept outside the model.
///
/// A forward pass appends the new tokens' keys and values to layer 0, then to layer 1, and so on; a pass that
/// skips a layer or visits one twice is refused. The cache works without gradients. The tokens of a sequence
/// are counted from 0 and never renumbered, even when old ones are dropped: `position` is what position
/// encodings need. After any error the cache is unchanged.
///
/// Sequences of different lengths end together: `set_padding` says how many tokens before the first one of
/// each are none. They count in `position`, `stored` and the capacity, and no query sees their keys.
///
/// Under autocast, a cache may have autocast's dtype, to which keys and values are then cast as attention
/// casts them, or a dtype that represents every number of that dtype exactly, such as float32. Either way the
/// results are those of a pass without a cache.
///
///   attentive::DenseKVCache cache({.layers = 12, .num_kv_heads = 12, .head_dim = 64}, /*capacity=*/1024);
///   logits = model->forward_cached(prompt, cache);      // (1, 9, vocab): prefill, in one or several chunks
///   logits = model->forward_cached(next_token, cache);  // (1, 1, vocab)
class KVCache {
 public:
  virtual ~KVCache() = default;
  KVCache(const KVCache&) = delete;
  KVCache& operator=(const KVCache&) = delete;

  /// Appends the T newest tokens of a layer and returns all keys and values that its queries may need: views
  /// of shape (B, Hkv, S, d), oldest first, the new tokens last. They are valid until the next call that
  /// changes the cache. A cache with values_in_keys takes no v. Throws c10::ValueError or c10::TypeError for
  /// another shape, dtype (but see above) or device, for a layer out of order, for keys that require
  /// gradients, and if there is no room (with the name of the subclass).
  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& k, const at::Tensor& v = {});

  /// The position of the token that this layer will append next, which is the number of tokens it has seen.
  /// Throws c10::ValueError for a layer outside [0, layers).
  int64_t position(int64_t layer = 0) const;
  /// The number of tokens whose keys and values a layer still holds. Throws as `position` does.
  int64_t stored(int64_t layer = 0) const;
  /// The largest number of tokens that one `append` can take now.
  virtual int64_t room() const = 0;

  /// The first padding[b] tokens that sequence b will append are padding: `TransformerAttention` hides their
  /// keys, and the position of a token is `position` less padding[b]. padding: (B) integers, on any device.
  /// Throws c10::ValueError for a cache with tokens, another shape or a negative number.
  void set_padding(const at::Tensor& padding);
  /// (B) int64 on the cache's device; undefined if there is none in any sequence.
  const at::Tensor& padding() const { return padding_; }
  /// The padding of the longest sequence: it has seen `position` less this many tokens.
  int64_t least_padding() const { return least_padding_; }

  /// Drops all tokens and the padding; with `batch`, the cache holds that many sequences afterwards. Throws
  /// c10::ValueError unless batch > 0, and c10::OutOfMemoryError. Memory: the old and the new batch until the
  /// call returns.
  void reset();
  void reset(int64_t batch);
  /// Sequence i continues the former sequence rows[i], for beam search or for one prompt copied to many
  /// sequences. The batch becomes rows.size(0). rows: (B') integers. Throws c10::ValueError for a row outside
  /// the batch or in the middle of a forward pass, and c10::OutOfMemoryError. Memory: one layer, or the new
  /// batch if its size differs. Tokens that are padding of every sequence left are no longer stored.
  void reorder(const at::Tensor& rows);
  /// Removes the newest tokens, so that `length` tokens have been seen. Throws c10::ValueError for a length
  /// beyond the tokens seen, if old tokens have already been dropped, or in the middle of a forward pass.
  void truncate(int64_t length);

  /// The stored tokens of all layers and the padding as named tensors, which `save_safetensors` writes. They
  /// are views, valid until the next call that changes the cache.
  std::map<std::string, at::Tensor> tensors() const;
  /// Takes a copy of what `tensors` returned, between two forward passes, for a cache of the same options but
  /// for the batch and the capacity. Throws c10::ValueError or c10::TypeError that names a tensor that is
  /// missing, unknown, too long or of another shape or dtype, and c10::OutOfMemoryError.
  void load(const std::map<std::string, at::Tensor>& tensors);

  const KVCacheOptions& options() const { return options_; }
  /// The number of tokens for which memory is reserved.
  int64_t slots() const { return slots_; }
  /// The number of bytes reserved: 2 * layers * batch * num_kv_heads * slots * head_dim * bytes of one
  /// number, without the factor 2 if values are in the keys.
  size_t bytes() const;

 protected:
  KVCache(KVCacheOptions options, int64_t slots);

  struct Layer {
    at::Tensor k, v;    // (B, Hkv, slots, d); v is undefined if values are in the keys
    int64_t begin = 0;  // slots begin .. end - 1 hold tokens
    int64_t end = 0;
    int64_t position = 0;  // tokens seen
  };
  /// Makes `tokens` free slots at layer.end, or throws.
  virtual void make_room(Layer& layer, int64_t tokens) = 0;
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  // Allocates every layer, without tokens.
  std::vector<Layer> empty_layers(int64_t batch) const;
  const Layer& checked_layer(int64_t layer) const;
  void check_new(int64_t layer, const at::Tensor& k, const at::Tensor& v) const;
  void check_between_passes(const char* what) const;

  KVCacheOptions options_;
  int64_t slots_;
  std::vector<Layer> layers_;
  at::Tensor padding_;
  int64_t least_padding_ = 0;
};

/// A cache that keeps every token, in memory that is reserved at once for `capacity` tokens.
class DenseKVCache final : public KVCache {
 public:
  /// Throws c10::ValueError unless every size is positive, and c10::OutOfMemoryError if there is not enough
  /// memory.
  DenseKVCache(KVCacheOptions options, int64_t capacity);

  int64_t room() const override;

 protected:
  void make_room(Layer& layer, int64_t tokens) override;
};

/// A cache for a causal sliding window: besides the new tokens it keeps the last `window` - 1, for attention
/// with `Window{window - 1, 0}`, and it can run forever.
///
/// Keys stay in order: they move to the front of the memory whenever it is full, which costs one copy of the
/// window per `chunk` tokens. Memory: window - 1 + chunk slots.
class RingKVCache final : public KVCache {
 public:
  /// `chunk`: the largest number of tokens that one `append` takes; 0 means as many as the window. Throws
  /// c10::ValueError unless every size is positive, and c10::OutOfMemoryError if there is not enough memory.
  RingKVCache(KVCacheOptions options, int64_t window, int64_t chunk = 0);

  int64_t room() const override { return chunk_; }
  int64_t window() const { return window_; }

 protected:
  void make_room(Layer& layer, int64_t tokens) override;

 private:
  int64_t window_;
  int64_t chunk_;
};

}  // namespace attentive
