#include "hints.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "settings.h"

namespace {

// With letters and digits, the characters that a shell does not interpret.
constexpr std::string_view kPlain = "%+,-./:=@_";
constexpr size_t kPrompt = 12;

bool is_word(unsigned char c) {
  return c > ' ' && c != 127;
}

// Quotes a text as one word of a shell command.
std::string quoted(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + '\'';
}

// The first word of the text (which the tokenizer can spell), or the beginning of the word, in whole
// characters.
std::string first_word(std::string_view text, size_t longest) {
  const auto begin = std::ranges::find_if(text, is_word);
  // One byte more than the prompt tells that the word is longer; the rest of a long text is not read.
  const auto left = static_cast<size_t>(text.end() - begin);
  const auto end =
      std::find_if_not(begin, begin + static_cast<std::ptrdiff_t>(std::min(left, longest + 1)), is_word);
  auto size = static_cast<size_t>(end - begin);
  if (size <= longest) return {begin, end};
  const auto continues = [&](size_t offset) {
    return (static_cast<unsigned char>(begin[static_cast<std::ptrdiff_t>(offset)]) & 0xc0) == 0x80;
  };
  for (size = longest; size > 0 && continues(size);) --size;
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

std::string first_prompt(std::string_view text, int64_t context) {
  return first_word(text, context > 0 ? std::min(kPrompt, static_cast<size_t>(context)) : kPrompt);
}

std::string generate_command(const std::string& program, const std::string& run, std::string_view text,
                             int64_t context) {
  const auto path = std::filesystem::path(program).replace_filename("attentive-generate");
  // A name without a folder was found in PATH, so its neighbour will be, too.
  if (path.has_parent_path() && ::access(path.c_str(), X_OK) != 0) return {};
  const auto prompt = first_prompt(text, context);
  return quoted(path.string()) + " --model " + quoted(run) +
         (prompt.empty() ? std::string() : " --prompt " + quoted(prompt));
}

std::string resume_command(const std::string& program, const Settings& settings) {
  auto command =
      fmt::format("{} --text {} --out {}", quoted(program), quoted(settings.text), quoted(settings.out));
  const Settings usual;
  if (!settings.tokens.empty()) command += " --tokens " + quoted(settings.tokens);
  if (settings.device != usual.device) command += " --device " + settings.device;
  if (settings.threads != usual.threads) command += fmt::format(" --threads {}", settings.threads);
  if (settings.timeout != usual.timeout) command += fmt::format(" --timeout {}", settings.timeout);
  if (settings.log_format != usual.log_format) command += " --log-format " + settings.log_format;
  if (settings.sample_every > 0) {
    command +=
        fmt::format(" --sample-every {} --sample-tokens {}", settings.sample_every, settings.sample_tokens);
    if (settings.sample_prompt) command += " --sample-prompt " + quoted(*settings.sample_prompt);
  }
  return command + " --resume";
}
