#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <attentive/files/state_dict.h>

namespace attentive {

/// What DataParallel and torch.compile put before every key, or empty.
std::string wrapper_prefix(const StateDict& state);

/// A state dict from one file, which is no index.
StateDictFile read_state_file(const std::filesystem::path& path, const ReadStateOptions& options);

/// The state dict of the shards that an index beside them lists.
StateDictFile read_sharded_state(const std::filesystem::path& index, const ReadStateOptions& options);

/// Throws c10::ValueError: "read_state_dict: <path>: <reason>".
[[noreturn]] void refuse_state(const std::filesystem::path& path, std::string_view reason);

}  // namespace attentive
