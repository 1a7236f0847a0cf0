#include <array>
#include <system_error>

#include <c10/util/Exception.h>

#include <attentive/text/streaming_decoder.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/convert/folder_document.h"
#include "tokenizers/pipeline.h"

namespace attentive {
namespace {

constexpr const char* kPretrainedTokenizer = "PretrainedTokenizer";
constexpr size_t kLargestFile = size_t{1} << 29;

// The call's result; what a part refuses becomes an error of the public name.
template <class Call>
auto named(Call call) {
  try {
    return call();
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, kPretrainedTokenizer, ": ", refusal.what());
  }
}

// Hands what `read` returns to `parse`; every error carries `who` and the path.
template <class Read, class Parse>
auto load_by(const char* who, const std::filesystem::path& path, const Read& read, const Parse& parse) {
  std::string text;
  try {
    text = read(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, who, ": ", error.what());
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, who, ": ", path.string(), ": ", refusal.what());
  }
  try {
    return parse(text);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, who, ": ", path.string(), ": ", error.what_without_backtrace());
  }
}

// A tokenizer.json, that of a folder, or what a folder without one says.
template <class Parse>
auto load_path(const char* who, const std::filesystem::path& path, const Parse& parse) {
  const auto read = [](const std::filesystem::path& file) { return read_file(file, kLargestFile); };
  if (!is_folder(path)) return load_by(who, path, read, parse);
  if (is_there(path / "tokenizer.json")) return load_by(who, path / "tokenizer.json", read, parse);
  return load_by(who, path, tokenizers::convert_folder, parse);
}

// The options as tokenizer_config.json states them.
tokenizers::TokenizerSettings settings_of(const VocabOptions& options) {
  nlohmann::json config{
      {"do_lower_case", options.lower_case}, {"tokenize_chinese_chars", options.chinese_characters},
      {"unk_token", options.unknown},        {"sep_token", options.separator},
      {"pad_token", options.padding},        {"cls_token", options.classifier},
      {"mask_token", options.mask}};
  for (const auto& [key, value] : config.items()) {
    if (value.is_string() && !is_utf8(value.get_ref<const std::string&>())) {
      refuse("expected {} in UTF-8, got other bytes", key);
    }
  }
  if (options.strip_accents) config["strip_accents"] = *options.strip_accents;
  return tokenizers::TokenizerSettings({.tokenizer_config = config.dump()});
}

class PipelineDecoder final : public StreamingDecoder {
 public:
  PipelineDecoder(std::shared_ptr<const tokenizers::Pipeline> pipeline, bool skip_special_tokens)
      : pipeline_(std::move(pipeline)), stream_(pipeline_->decoder_stream()), skips_(skip_special_tokens) {}

 private:
  std::string next_text(int64_t id) override {
    const auto* token = named([&] { return pipeline_->token_to_decode(id, skips_); });
    return token ? joined([&](auto& parts) { stream_->push(*token, parts); }) : std::string();
  }
  std::string last_text() override {
    return joined([&](auto& parts) { stream_->finish(parts); });
  }
  std::string whole_text(std::span<const int64_t> ids) const override {
    return named([&] { return pipeline_->decode(ids, skips_); });
  }

  template <class Decode>
  static std::string joined(Decode decode) {
    std::vector<std::string> parts;
    decode(parts);
    std::string text;
    for (const auto& part : parts) text += part;
    return text;
  }

  std::shared_ptr<const tokenizers::Pipeline> pipeline_;
  std::unique_ptr<tokenizers::DecoderStream> stream_;
  bool skips_;
};

// Ours states "type", Hugging Face's a "model".
bool is_pretrained(std::string_view json) {
  const auto document = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  return document.is_object() && document.contains("model");
}

}  // namespace

struct PretrainedTokenizer::Parts {
  std::string text;
  tokenizers::Pipeline pipeline;
};

PretrainedTokenizer::PretrainedTokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

PretrainedTokenizer PretrainedTokenizer::parse(std::string_view json) {
  return named([&] {
    const auto document = tokenizers::parse_json(json);
    tokenizers::Pipeline pipeline{tokenizers::JsonView(document)};
    return PretrainedTokenizer(std::make_shared<const Parts>(Parts{std::string(json), std::move(pipeline)}));
  });
}

PretrainedTokenizer PretrainedTokenizer::load(const std::filesystem::path& path) {
  return load_path("PretrainedTokenizer::load", path, parse);
}

PretrainedTokenizer PretrainedTokenizer::from_vocab(const std::filesystem::path& path,
                                                    const VocabOptions& options) {
  const auto convert = [&](const std::filesystem::path& file) {
    return tokenizers::convert_vocab_txt(file, settings_of(options));
  };
  return load_by("PretrainedTokenizer::from_vocab", path, convert, parse);
}

int64_t PretrainedTokenizer::vocab_size() const {
  return parts_->pipeline.vocab_size();
}

std::vector<int64_t> PretrainedTokenizer::encode(std::string_view text) const {
  return named([&] { return parts_->pipeline.encode({text}, /*add_special_tokens=*/false).ids; });
}

std::vector<int64_t> PretrainedTokenizer::encode_whole(std::string_view text) const {
  return named([&] { return parts_->pipeline.encode_whole(text); });
}

std::vector<int64_t> PretrainedTokenizer::encode_with_special_tokens(std::string_view text) const {
  return named([&] { return parts_->pipeline.encode({text}, /*add_special_tokens=*/true).ids; });
}

Encoding PretrainedTokenizer::encode_pair(std::string_view first, std::string_view second) const {
  return named([&] { return parts_->pipeline.encode({first, second}, /*add_special_tokens=*/true); });
}

std::string_view PretrainedTokenizer::bytes(int64_t id) const {
  return named([&] { return parts_->pipeline.bytes(id); });
}

std::string PretrainedTokenizer::decode(std::span<const int64_t> ids) const {
  return decode(ids, /*skip_special_tokens=*/false);
}

std::string PretrainedTokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  return named([&] { return parts_->pipeline.decode(ids, skip_special_tokens); });
}

std::unique_ptr<StreamingDecoder> PretrainedTokenizer::streaming_decoder(bool skip_special_tokens) const {
  return std::make_unique<PipelineDecoder>(
      std::shared_ptr<const tokenizers::Pipeline>(parts_, &parts_->pipeline), skip_special_tokens);
}

std::optional<int64_t> PretrainedTokenizer::token_to_id(std::string_view token) const {
  return parts_->pipeline.token_to_id(token);
}

bool PretrainedTokenizer::is_special(int64_t id) const {
  return parts_->pipeline.is_special(id);
}

std::string PretrainedTokenizer::to_json() const {
  return parts_->text;
}

std::unique_ptr<Tokenizer> parse_any_tokenizer(std::string_view json) {
  if (!is_pretrained(json)) return parse_tokenizer(json);
  return std::make_unique<PretrainedTokenizer>(PretrainedTokenizer::parse(json));
}

std::unique_ptr<Tokenizer> load_any_tokenizer(const std::filesystem::path& path) {
  return load_path("load_any_tokenizer", path, parse_any_tokenizer);
}

}  // namespace attentive
