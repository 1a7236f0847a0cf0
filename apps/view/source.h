#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <attentive/functional/recorded_attention.h>
#include <attentive/viz/attention_view.h>

// What is looked at, whatever it came from.
struct Source {
  std::vector<attentive::RecordedAttention> calls = {};  // all of the model's, if `image` is set
  std::set<std::string> chosen = {};     // paths; what else there is only counts for the rollout
  std::vector<std::string> tokens = {};  // empty: the positions are shown
  std::optional<attentive::PatchImage> image = std::nullopt;
  std::string title = {};
};

struct TextInput {
  std::string text = {};
  std::vector<int64_t> ids = {};  // in place of the text, if there are any
  int64_t most_tokens = 0;        // 0: all
};

// Each throws c10::ValueError for what cannot be read or run. `layers` is a pattern of AttentionRecorder.
Source text_source(const std::filesystem::path& model, const TextInput& input, const std::string& layers);
Source image_source(const std::filesystem::path& model, const std::filesystem::path& image,
                    const std::string& layers);
Source case_source(const std::filesystem::path& path, const std::string& layers);
