#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <attentive/functional/attention_recorder.h>
#include <attentive/viz/attention_view.h>

// The recorded calls to look at, independent of where they come from.
struct Source {
  std::vector<attentive::RecordedAttention> calls = {};  // all of the model's, if `image` is set
  std::set<std::string> chosen = {};     // their paths; other calls only count for the rollout
  std::vector<std::string> tokens = {};  // empty: the positions are shown
  std::optional<attentive::PatchImage> image = std::nullopt;
  std::string title = {};
};

struct TextInput {
  std::string text = {};
  std::vector<int64_t> ids = {};  // used in place of the text if not empty
  int64_t most_tokens = 0;        // 0: all
};

// Readers of the kinds of sources. Each throws c10::ValueError for input that cannot be read or run. `layers`
// is a pattern of AttentionRecorder.
Source text_source(const std::filesystem::path& model, const TextInput& input, const std::string& layers);
Source image_source(const std::filesystem::path& model, const std::filesystem::path& image,
                    const std::string& layers);
Source case_source(const std::filesystem::path& path, const std::string& layers);
