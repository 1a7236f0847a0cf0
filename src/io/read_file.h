#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>

namespace attentive {

/// The bytes of a regular file, at most `most` of them. A folder, pipe, socket or device is refused: opening
/// or reading one may wait for ever. Throws std::system_error with the path.
std::string read_file(const std::filesystem::path& path, size_t most = std::numeric_limits<size_t>::max());

}  // namespace attentive
