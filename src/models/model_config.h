#pragma once

// Conversions between config.json of `transformers` and the options of this package's models, and the
// comparison of its sizes with the folder's weights, before anything is built from them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/files/file_value.h>
#include <attentive/models/model_folder.h>
#include <attentive/modules/transformer_blocks.h>

#include "models/families.h"

namespace attentive {

/// Reads the fields of a config.json. An absent field has the default of the family's class in Python; null
/// counts as absent unless a function says otherwise. A refusal is a c10::ValueError "<caller>: field
/// \"<name>\": expected ..., got ...".
class ModelConfig {
 public:
  /// `config` must outlive this object. `path` names the object that holds the fields: "rope_parameters.".
  ModelConfig(std::string caller, const FileValue& config, std::string path = {});

  const FileValue* find(std::string_view field) const;  ///< null if absent or null
  bool is_null(std::string_view field) const;           ///< present, and null

  int64_t size(std::string_view field) const;  ///< required, in [1, 2^31)
  int64_t size(std::string_view field, int64_t fallback) const;
  int64_t layers(std::string_view field) const;  ///< required, in [1, 2^20], which exceeds any real model
  int64_t integer(std::string_view field, int64_t fallback) const;
  std::optional<double> number(std::string_view field) const;
  double number(std::string_view field, double fallback) const;
  bool flag(std::string_view field, bool fallback) const;
  std::string word(std::string_view field, std::string_view fallback) const;
  std::vector<std::string> words(std::string_view field) const;  ///< empty if absent
  std::optional<ModelConfig> object(std::string_view field) const;
  Activation activation(std::string_view field, std::string_view fallback) const;
  /// The dropout probability, which must be equal in all these fields; `chosen` takes precedence over them.
  double dropout(std::initializer_list<std::string_view> fields, double fallback,
                 std::optional<double> chosen) const;

  /// Refuses the field unless it is absent, null or equal to `value`.
  void must_be(std::string_view field, bool value) const;
  void must_be(std::string_view field, int64_t value) const;
  void must_be(std::string_view field, const char* value) const;

  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const;

 private:
  std::string caller_;
  const FileValue* config_;
  std::string path_;
};

/// Refuses features that no family here supports: quantized weights, encoder-decoders, cross-attention.
void check_common_fields(const ModelConfig& config);

/// The name that config.json uses for an activation.
std::string_view activation_word(Activation value);

/// The number of a classifier's labels: the size of id2label, or num_labels.
int64_t read_labels(const ModelConfig& config);
/// Writes the number of labels. Existing label names are kept if their number matches.
void write_labels(FileValue::Dict& config, int64_t count);

/// The features between the layers of a feed-forward network, where 0 stands for 4 * emb_dim.
template <class Options>
int64_t hidden_dim_of(const Options& options) {
  return options.hidden_dim() > 0 ? options.hidden_dim() : 4 * options.emb_dim();
}

/// Sets a field of a dict, whether or not it exists.
void set_field(FileValue::Dict& config, std::string_view field, FileValue value);

/// The optional parts that a Bert has.
struct BertParts {
  bool pooler = true, masked_lm = false;
  BertHead head = BertHead::None;
};

GPTOptions read_gpt_options(const std::string& caller, const FileValue& config,
                            const PretrainedOptions& options);
LlamaOptions read_llama_options(const std::string& caller, const Family& family, const FileValue& config,
                                const PretrainedOptions& options);
BertOptions read_bert_options(const std::string& caller, const Family& family, const FileValue& config,
                              const BertParts& parts, const PretrainedOptions& options);
ViTOptions read_vit_options(const std::string& caller, const Family& family, const FileValue& config,
                            bool classifier, const PretrainedOptions& options);

void write_options(const Family& family, const GPTOptions& options, FileValue::Dict& config);
void write_options(const Family& family, const LlamaOptions& options, FileValue::Dict& config);
void write_options(const Family& family, const BertOptions& options, FileValue::Dict& config);
void write_options(const Family& family, const ViTOptions& options, FileValue::Dict& config);

/// A lower bound of a model's parameters, as a product of fields of config.json.
struct MinimumSize {
  struct Factor {
    std::string_view field;
    int64_t value;
  };
  std::vector<Factor> factors;
};

std::vector<MinimumSize> minimum_sizes_of(const GPTOptions& options);
std::vector<MinimumSize> minimum_sizes_of(const LlamaOptions& options);
std::vector<MinimumSize> minimum_sizes_of(const BertOptions& options);
std::vector<MinimumSize> minimum_sizes_of(const ViTOptions& options);

/// Throws c10::ValueError "<caller>: fields ...: expected ..., got ..." if a demand exceeds the number of
/// elements in all tensors together. A product that overflows exceeds every number.
void check_demands(const std::string& caller, const std::vector<MinimumSize>& demands,
                   const StateDict& weights);

/// Throws if the number of layers exceeds the number of tensors, provided that weights were read.
void check_layers(const ModelConfig& config, std::string_view field, const StateDict& weights);

}  // namespace attentive
