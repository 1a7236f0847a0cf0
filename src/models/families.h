#pragma once

// The families of models whose folders load here: everything by which one differs from the others, as data.
// No other code asks for a family by its name.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/models/model_folder.h>

namespace attentive {

enum NameFlags : unsigned {
  kTransposed = 1,  // Python stores matrices as (in, out)
  /// Python has a convolution's weight (out, channels, side, side), we have (out, channels * side * side).
  kFlattened = 2,
  kHead = 4,   // never behind the family's prefix
  kAlias = 8,  // a name from other versions of transformers; read, never written
  kCopy = 16,  // a second copy of a tensor; read and compared, not written
};

/// The names of tensors in Python and in this package. A rule such as
///
///   {"h.#.attn.c_attn.{weight,bias}", "trf_blocks.#.att.[W_query,W_key,W_value].{weight,bias}", kTransposed}
///
/// stands for several pairs of names: `#` is the number of a layer; braces hold alternatives that correspond
/// one by one; brackets (on one side only) list the parts that make up the other side's tensor, in order
/// along its first dimension (after the transposition).
struct NameRule {
  std::string_view python_name, our_name;
  unsigned flags = 0;
};

struct NameRules {
  std::string_view prefix;                       // before every name except those of heads; files may omit it
  std::vector<std::span<const NameRule>> rules;  // if several rules match, the first is used for writing
  std::vector<std::string_view> ignored;         // buffers, and heads that no model here has
};

/// The layers that have a window if config.json has no layer_types.
enum class WindowRule {
  None,           // and layer_types is not read
  All,            // and layer_types may not say otherwise
  FromLayer,      // from max_window_layers on, if use_sliding_window
  EveryOther,     // the first, the third, ...
  AllButEveryNth  // where N is sliding_window_pattern
};

/// The traits of a family that `Llama` reads. Values of fields are the defaults of transformers' class.
struct DecoderTraits {
  int64_t kv_heads = 0;      // num_key_value_heads; 0: num_attention_heads
  int64_t head_dim = 0;      // head_dim; 0: hidden_size / num_attention_heads
  int64_t context = 131072;  // max_position_embeddings
  bool tied = false;         // tie_word_embeddings
  std::string_view activation_field = "hidden_act", activation = "silu";
  bool attention_bias_field = true, mlp_bias_field = false;
  bool qkv_bias = false;  // q, k and v have biases, whatever the fields say
  bool qk_norm = false, norm_after = false;
  /// Norms multiply by 1 + weight, embeddings are scaled, and query_pre_attn_scalar replaces head_dim in the
  /// scale of scores. A window must be a number, even if no layer has one.
  bool gemma = false;
  std::optional<double> softcap = {};        // attn_logit_softcapping; none: the field is not read
  std::optional<double> logit_softcap = {};  // final_logit_softcapping, which only `gemma` reads
  WindowRule windows = WindowRule::None;
  double theta = 1e4;                      // rope_theta
  std::optional<double> local_theta = {};  // rope_local_base_freq; none: one rotation for all layers
};

/// The traits of a family that `Bert` reads.
struct EncoderTraits {
  std::string_view activation = "gelu";  // hidden_act
  double dropout = 0.1;                  // hidden_dropout_prob, attention_probs_dropout_prob
  std::string_view head_dropout_field = "classifier_dropout";
  std::optional<double> head_dropout = {};  // its default; none: hidden_dropout_prob
  bool padding_positions = false;  // positions count from pad_token_id, and texts are classified by a token
  bool shared_layers = false;      // one block for all layers, factored embeddings
};

/// A `model_type` of transformers.
struct Family {
  std::string_view name;
  std::string_view model;         // the kName of the class here that reads its folders
  std::string_view python_class;  // how the names of Python's classes begin: "Gemma2" of Gemma2ForCausalLM
  NameRules rules;
  std::vector<std::string_view> peft_targets = {};  // the layers that peft adapts if it is not told which
  DecoderTraits decoder = {};
  EncoderTraits encoder = {};
  bool distillation_token = false;                      // of a `ViT`
  std::string_view layers_field = "num_hidden_layers";  // empty if the number of layers bounds no tensors
};

/// Returns null for an unknown family.
const Family* find_family(std::string_view name);
/// The names of the families that a class reads.
std::vector<std::string_view> families_of_model(std::string_view model);
/// The families that know all of these names.
std::vector<std::string_view> families_of_names(const StateDict& state);

/// The first family whose traits these options have.
const Family& natural_family(const GPTOptions& options);
const Family& natural_family(const LlamaOptions& options);
const Family& natural_family(const BertOptions& options);
const Family& natural_family(const ViTOptions& options);
/// Null if the module is no model of this package.
const Family* natural_family(const torch::nn::Module& model);

/// Whether a layer has a window.
bool has_windows(const LlamaOptions& options);

}  // namespace attentive
