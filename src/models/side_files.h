#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace attentive {

/// What a folder holds beside config.json and weights that Python needs to run the model: the bytes by name.
/// Throws std::system_error.
std::map<std::string, std::string> side_files_of(const std::filesystem::path& folder);

}  // namespace attentive
