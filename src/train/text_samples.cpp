#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "train/token_file_header.h"

namespace attentive {
namespace {

bool is_white(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

// Tokenizers split texts before words, and a line that begins with a word is the safest place: spaces may
// belong to the word that follows, and line ends in a row to each other.
size_t end_of_piece(std::string_view bytes) {
  size_t space = 0;
  for (size_t offset = bytes.size() - 1; offset > 0; --offset) {
    if (is_white(bytes[offset])) continue;
    if (bytes[offset - 1] == '\n') return offset;
    if (space == 0 && offset > 1 && bytes[offset - 1] == ' ' && !is_white(bytes[offset - 2]))
      space = offset - 1;
  }
  return space > 0 ? space : bytes.size() - unfinished_utf8(bytes);
}

TextPieces::TextPieces(const std::filesystem::path& path, size_t most) : source_(path), most_(most) {
  if (source_.size() == 0) refuse("expected a text, got an empty file");
}

std::string_view TextPieces::next() {
  buffer_.erase(0, piece_);
  const auto rest = buffer_.size();
  const auto more = static_cast<size_t>(std::min<uint64_t>(most_ - rest, source_.size() - read_));
  buffer_.resize(rest + more);
  source_.read(read_, buffer_.data() + rest, more);
  read_ += more;
  piece_ = read_ == source_.size() ? buffer_.size() : end_of_piece(buffer_);
  return std::string_view(buffer_).substr(0, piece_);
}

namespace {

constexpr const char* kTextSamples = "TextSamples";
constexpr std::string_view kHead = "step ", kIndent = "    ";

// The step in a heading; nothing for a line of a sample.
std::optional<int64_t> step_of(std::string_view line) {
  if (!line.starts_with(kHead)) return std::nullopt;
  int64_t step = 0;
  const char* end = line.data() + line.size();
  const auto result = std::from_chars(line.data() + kHead.size(), end, step);
  return result.ec == std::errc() && result.ptr == end ? std::optional(step) : std::nullopt;
}

// The beginning of a file, up to the first sample whose step is later than `last`.
std::string up_to(std::string content, int64_t last) {
  for (size_t offset = 0; offset < content.size();) {
    const auto end = std::min(content.find('\n', offset), content.size());
    const auto step = step_of(std::string_view(content).substr(offset, end - offset));
    if (step && *step > last) {
      content.resize(offset);
      break;
    }
    offset = end + 1;
  }
  if (!content.empty() && content.back() != '\n') content += '\n';
  return content;
}

}  // namespace

std::string sample_text(const LanguageModel& language, const TextSampleOptions& options) {
  TORCH_CHECK_VALUE(language.tokenizer,
                    "sample_text: expected a tokenizer, got none: ", language.why_no_tokenizer);
  GenerateOptions generation{.max_new_tokens = options.tokens,
                             .sampling = options.sampling,
                             .seed = options.seed,
                             .slide = true,
                             .stop_tokens = language.stop_tokens};
  const auto& tokenizer = *language.tokenizer;
  const auto prompt = tokenizer.encode_with_special_tokens(options.prompt);
  const auto decoder = tokenizer.streaming_decoder(/*skip_special_tokens=*/true);
  decoder->follow(prompt);
  auto text = options.prompt;
  for (const auto id : generate(language.model, prompt, generation)) text += decoder->push(id);
  text += decoder->finish();
  return replace_bad_utf8(std::move(text));
}

TextSamples::TextSamples(std::filesystem::path path, int64_t from_step) : path_(std::move(path)) {
  try {
    if (is_there(path_)) content_ = up_to(read_file(path_), from_step);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, kTextSamples, ": ", error.what());
  }
}

void TextSamples::add(int64_t step, const std::string& text) {
  std::string entry = fmt::format("{}{}\n{}", kHead, step, kIndent);
  for (const char c : text) {
    entry += c;
    if (c == '\n') entry += kIndent;
  }
  entry += '\n';
  try {
    AtomicFile file(path_);
    file.write(content_.data(), content_.size());
    file.write(entry.data(), entry.size());
    file.commit();
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, kTextSamples, ": ", path_.string(), ": ", error.what());
  }
  content_ += entry;
}

}  // namespace attentive
