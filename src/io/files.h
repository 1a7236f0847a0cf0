#pragma once

// File operations of folders. Not std::filesystem's directory iterators: libtorch_cpu.so exports
// those of an older libstdc++, and a program that uses its own ones crashes.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/read_file.h"

namespace attentive {

// The names in a folder, sorted, without "." and "..". Throws std::system_error.
std::vector<std::string> names_in(const std::filesystem::path& folder);
// Removes a folder and everything in it. What cannot be removed stays: it is only clean-up.
void remove_tree(const std::filesystem::path& folder);
// Throws std::system_error.
void write_file(const std::filesystem::path& path, std::string_view text);
void sync_folder(const std::filesystem::path& folder);
void make_folder(const std::filesystem::path& folder);
bool is_folder(const std::filesystem::path& path);
// Whether there is a file or folder, links followed.
bool is_there(const std::filesystem::path& path);

}  // namespace attentive
