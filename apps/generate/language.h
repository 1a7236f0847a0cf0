#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <attentive/models/generate.h>
#include <attentive/text/tokenizer.h>

// A language model that continues texts, from a run of attentive-train or from a folder that Python wrote.
struct Language {
  int64_t context_length = 0;  // 0: no limit
  std::function<std::vector<int64_t>(const std::vector<int64_t>& prompt,
                                     const attentive::GenerateOptions& options)>
      generate;
  std::vector<int64_t> stop_tokens;
  std::unique_ptr<attentive::Tokenizer> tokenizer;  // null: the prompt must be ids
  std::string why_no_tokenizer;

  // A prompt's ids, with the tokens that the model expects in front of a text. Throws c10::ValueError without
  // a tokenizer.
  std::vector<int64_t> encode(std::string_view text) const;
  // What a new token adds to the text; nothing for one that only marks an end.
  std::string_view bytes(int64_t id) const;
};

// Throws c10::ValueError for a folder that is neither, or whose model does not continue texts.
Language load_language(const std::filesystem::path& path, c10::Device device);
