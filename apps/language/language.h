#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include <attentive/models/generate.h>

#include "language/network.h"

// A language model that continues texts.
struct Language : Network {
  std::function<std::vector<int64_t>(const std::vector<int64_t>& prompt,
                                     const attentive::GenerateOptions& options)>
      generate;
  std::vector<int64_t> stop_tokens;

  // What a new token adds to the text; nothing for one that only marks an end.
  std::string_view bytes(int64_t id) const;
};

// Reads a run of attentive-train or a folder that Python wrote. Throws c10::ValueError for a folder that is
// neither, or whose model does not continue texts.
Language load_language(const std::filesystem::path& path, c10::Device device);

// The same for models of every class that Python's folders hold.
Network load_network(const std::filesystem::path& path, c10::Device device);
