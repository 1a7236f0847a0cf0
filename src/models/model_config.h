#pragma once

// config.json of `transformers` and the options of our models, in both directions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/files/file_value.h>
#include <attentive/modules/feed_forward.h>

namespace attentive {

/// The fields of a config.json. An absent field has the default that the family's class has in Python; null
/// counts as absent unless a function says otherwise. Every refusal is a c10::ValueError
/// "<who>: field \"<name>\": expected ..., got ...".
class ModelConfig {
 public:
  /// `config` outlives this. `path` names the object that holds the fields: "rope_parameters.".
  ModelConfig(std::string who, const FileValue& config, std::string path = {});

  const FileValue* find(std::string_view field) const;  ///< null if absent or null
  bool is_null(std::string_view field) const;           ///< there, and null

  int64_t size(std::string_view field) const;  ///< required, in [1, 2^31)
  int64_t size(std::string_view field, int64_t fallback) const;
  int64_t layers(std::string_view field) const;  ///< required, in [1, 2^20], as models have them
  int64_t integer(std::string_view field, int64_t fallback) const;
  std::optional<double> number(std::string_view field) const;
  double number(std::string_view field, double fallback) const;
  bool flag(std::string_view field, bool fallback) const;
  std::string word(std::string_view field, std::string_view fallback) const;
  std::vector<std::string> words(std::string_view field) const;  ///< empty if absent
  std::optional<ModelConfig> object(std::string_view field) const;
  Activation activation(std::string_view field, std::string_view fallback) const;
  /// One dropout probability, of which all these fields must agree; `chosen` goes before them.
  double dropout(std::initializer_list<std::string_view> fields, double fallback,
                 std::optional<double> chosen) const;

  /// Refused unless the field is absent, null or this value.
  void must_be(std::string_view field, bool value) const;
  void must_be(std::string_view field, int64_t value) const;
  void must_be(std::string_view field, const char* value) const;

  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const;

 private:
  std::string who_;
  const FileValue* config_;
  std::string path_;
};

/// Fields that no family here supports: quantized weights, encoder-decoders, cross-attention.
void check_common_fields(const ModelConfig& config);

/// The name of an activation in config.json.
std::string_view activation_word(Activation value);

/// How many labels a classifier has: those of id2label, or num_labels.
int64_t read_labels(const ModelConfig& config);
/// Writes so many labels. Their names are kept if there are as many.
void write_labels(FileValue::Dict& config, int64_t count);

/// Sets a field of a dict.
void set_field(FileValue::Dict& config, std::string_view field, FileValue value);

}  // namespace attentive
