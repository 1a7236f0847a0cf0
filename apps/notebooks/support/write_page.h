#pragma once

#include <filesystem>
#include <string_view>

namespace notebooks {

/// Makes a folder and its parents if necessary. Throws std::system_error if it cannot be made or written to.
void make_page_folder(const std::filesystem::path& folder);

/// Writes a file that appears at `path` complete or not at all. Throws std::system_error.
void write_page(const std::filesystem::path& path, std::string_view text);

}  // namespace notebooks
