#pragma once

// Converts each family's config.json to options and back. Errors begin with `caller`.

#include <string>
#include <string_view>

#include <attentive/models/pretrained.h>

namespace attentive {

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

void write_gpt_options(const Family& family, const GPTOptions& options, FileValue::Dict& config);
void write_llama_options(const Family& family, const LlamaOptions& options, FileValue::Dict& config);
void write_bert_options(const Family& family, const BertOptions& options, FileValue::Dict& config);
void write_vit_options(const Family& family, const ViTOptions& options, FileValue::Dict& config);

}  // namespace attentive
