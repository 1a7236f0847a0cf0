#include <algorithm>
#include <array>
#include <span>
#include <system_error>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/pipeline.h"

namespace attentive {
namespace {

using tokenizers::Detail;

constexpr const char* kPretrainedTokenizer = "PretrainedTokenizer";
constexpr size_t kLargestFile = size_t{1} << 29;

// Returns the call's result; a Refusal becomes a c10::ValueError.
template <class Call>
auto named(Call call) {
  try {
    return call();
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, kPretrainedTokenizer, ": ", refusal.what());
  }
}

// Passes the text that `read` returns to `parse`; every error names `caller` and the path.
template <class Read, class Parse>
auto load_by(const char* caller, const std::filesystem::path& path, const Read& read, const Parse& parse) {
  std::string text;
  try {
    text = read(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, caller, ": ", error.what());
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, caller, ": ", path.string(), ": ", refusal.what());
  }
  try {
    return parse(text);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, caller, ": ", path.string(), ": ", error.what_without_backtrace());
  }
}

// Reads a tokenizer.json file, or the document that its class makes of a folder's files.
template <class Parse>
auto load_path(const char* caller, const std::filesystem::path& path, const Parse& parse) {
  const auto read = [](const std::filesystem::path& file) { return read_file(file, kLargestFile); };
  if (!is_folder(path)) return load_by(caller, path, read, parse);
  const auto convert = [&](const std::filesystem::path&) { return tokenizers::convert_folder(path); };
  return load_by(caller, is_there(path / "tokenizer.json") ? path / "tokenizer.json" : path, convert, parse);
}

// Returns the options as tokenizer_config.json states them.
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
  tokenizers::SettingTexts texts;
  texts.tokenizer_config = config.dump();
  return tokenizers::TokenizerSettings(texts);
}

class PipelineDecoder final : public StreamingDecoder {
 public:
  PipelineDecoder(std::shared_ptr<const tokenizers::Pipeline> pipeline, bool skip_special_tokens)
      : pipeline_(std::move(pipeline)), stream_(pipeline_->decoder_stream()), skips_(skip_special_tokens) {}

 private:
  std::string next_text(int64_t id) override {
    const auto token = named([&] { return pipeline_->token_to_decode(id, skips_); });
    return token ? joined([&](auto& parts) { stream_->push(std::string(*token), parts); }) : std::string();
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

// Reads a document up to its member "model", which is followed by the vocabulary, and builds nothing.
class ModelSearch final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool found() const { return found_; }

  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    found_ = depth_ == 1 && name == "model";
    return !found_;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  bool found_ = false;
};

// Hugging Face's format has a member "model"; that of `save_tokenizer` has "type" instead.
bool is_pretrained(std::string_view json) {
  ModelSearch search;
  nlohmann::json::sax_parse(json, &search);
  return search.found();
}

}  // namespace

struct PretrainedTokenizer::Parts {
  std::string text;
  tokenizers::Pipeline pipeline;
};

// The limits of lengths: those of the file until a caller replaces them.
struct PretrainedTokenizer::Limits {
  tokenizers::LengthLimits lengths;
  bool truncation_is_new = false, padding_is_new = false;
};

PretrainedTokenizer::PretrainedTokenizer(std::shared_ptr<const Parts> parts,
                                         std::shared_ptr<const Limits> limits)
    : parts_(std::move(parts)), limits_(std::move(limits)) {}

PretrainedTokenizer PretrainedTokenizer::parse(std::string_view json) {
  return named([&] {
    const auto document = tokenizers::parse_json(json);
    tokenizers::Pipeline pipeline{tokenizers::JsonView(document)};
    auto limits = std::make_shared<const Limits>(Limits{pipeline.limits()});
    return PretrainedTokenizer(std::make_shared<const Parts>(Parts{std::string(json), std::move(pipeline)}),
                               std::move(limits));
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

namespace {

// Pads the encodings of a batch.
void pad(const tokenizers::LengthLimits& limits, std::span<Encoding> batch, Detail detail) {
  if (!limits.padding) return;
  size_t longest = 0;
  for (const auto& encoding : batch) longest = std::max(longest, encoding.ids.size());
  for (auto& encoding : batch) limits.padding->apply(encoding, longest, detail);
}

Detail detail_of(bool offsets) {
  return offsets ? Detail::Offsets : Detail::Masks;
}

std::vector<int64_t> ids_of(const tokenizers::Pipeline& pipeline, const tokenizers::LengthLimits& limits,
                            std::string_view text, bool add_special_tokens) {
  return named([&] {
    auto workspace = pipeline.workspace();
    auto encoding =
        pipeline.encode({&text, 1}, add_special_tokens, Detail::Ids, limits.truncation, workspace);
    pad(limits, {&encoding, 1}, Detail::Ids);
    return std::move(encoding.ids);
  });
}

// Encodes a batch; `texts_of(i)` returns the one text, or the two, of encoding i.
template <class TextsOf>
std::vector<Encoding> encode_many(const tokenizers::Pipeline& pipeline,
                                  const tokenizers::LengthLimits& limits, size_t count,
                                  const BatchOptions& options, const TextsOf& texts_of) {
  return named([&] {
    if (options.threads < 0) refuse("threads: expected 0 or more, got {}", options.threads);
    const auto most = options.threads > 0 ? options.threads : at::get_num_threads();
    const auto threads = std::min(static_cast<size_t>(most), std::max<size_t>(count, 1));
    const auto detail = detail_of(options.offsets);
    std::vector<std::optional<tokenizers::Workspace>> workspaces(threads);
    std::vector<Encoding> batch(count);
    tokenizers::for_each_text(count, threads, [&](size_t thread, size_t i) {
      auto& workspace = workspaces[thread];
      if (!workspace) workspace.emplace(pipeline.workspace());
      batch[i] =
          pipeline.encode(texts_of(i), options.add_special_tokens, detail, limits.truncation, *workspace);
    });
    pad(limits, batch, detail);
    return batch;
  });
}

}  // namespace

std::vector<int64_t> PretrainedTokenizer::encode(std::string_view text) const {
  return ids_of(parts_->pipeline, limits_->lengths, text, /*add_special_tokens=*/false);
}

std::vector<int64_t> PretrainedTokenizer::encode_whole(std::string_view text) const {
  return named([&] { return parts_->pipeline.encode_whole(text); });
}

std::vector<int64_t> PretrainedTokenizer::encode_with_special_tokens(std::string_view text) const {
  return ids_of(parts_->pipeline, limits_->lengths, text, /*add_special_tokens=*/true);
}

Encoding PretrainedTokenizer::encode_texts(std::span<const std::string_view> texts,
                                           const EncodeOptions& options) const {
  return named([&] {
    const auto detail = detail_of(options.offsets);
    auto workspace = parts_->pipeline.workspace();
    auto encoding = parts_->pipeline.encode(texts, options.add_special_tokens, detail,
                                            limits_->lengths.truncation, workspace);
    pad(limits_->lengths, {&encoding, 1}, detail);
    return encoding;
  });
}

Encoding PretrainedTokenizer::encode_text(std::string_view text, const EncodeOptions& options) const {
  return encode_texts({&text, 1}, options);
}

Encoding PretrainedTokenizer::encode_pair(std::string_view first, std::string_view second,
                                          const EncodeOptions& options) const {
  return encode_texts(std::array{first, second}, options);
}

std::vector<Encoding> PretrainedTokenizer::encode_batch(const std::vector<std::string>& texts,
                                                        const BatchOptions& options) const {
  return encode_many(parts_->pipeline, limits_->lengths, texts.size(), options,
                     [&](size_t i) { return std::array<std::string_view, 1>{texts[i]}; });
}

std::vector<Encoding> PretrainedTokenizer::encode_pair_batch(
    const std::vector<std::pair<std::string, std::string>>& pairs, const BatchOptions& options) const {
  return encode_many(parts_->pipeline, limits_->lengths, pairs.size(), options, [&](size_t i) {
    return std::array<std::string_view, 2>{pairs[i].first, pairs[i].second};
  });
}

PretrainedTokenizer PretrainedTokenizer::with_truncation(
    const std::optional<TruncationOptions>& options) const {
  return named([&] {
    auto limits = *limits_;
    limits.lengths.truncation.reset();
    if (options) limits.lengths.truncation.emplace(*options, parts_->pipeline.post_processor());
    limits.truncation_is_new = true;
    return PretrainedTokenizer(parts_, std::make_shared<const Limits>(std::move(limits)));
  });
}

PretrainedTokenizer PretrainedTokenizer::with_padding(const std::optional<PaddingOptions>& options) const {
  return named([&] {
    const auto limits = std::make_shared<Limits>(*limits_);
    limits->lengths.padding.reset();
    if (options) limits->lengths.padding.emplace(*options);
    limits->padding_is_new = true;
    return PretrainedTokenizer(parts_, limits);
  });
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
  if (!limits_->truncation_is_new && !limits_->padding_is_new) return parts_->text;
  auto document = nlohmann::json::parse(parts_->text);
  const auto state = [&](const char* key, bool is_new, const auto& limit) {
    if (is_new) document[key] = limit ? limit->to_json() : nlohmann::json();
  };
  state("truncation", limits_->truncation_is_new, limits_->lengths.truncation);
  state("padding", limits_->padding_is_new, limits_->lengths.padding);
  return document.dump();
}

std::unique_ptr<Tokenizer> parse_any_tokenizer(std::string_view json) {
  if (!is_pretrained(json)) return parse_tokenizer(json);
  return std::make_unique<PretrainedTokenizer>(PretrainedTokenizer::parse(json));
}

std::unique_ptr<Tokenizer> load_any_tokenizer(const std::filesystem::path& path) {
  return load_path("load_any_tokenizer", path, parse_any_tokenizer);
}

}  // namespace attentive
