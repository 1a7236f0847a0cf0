#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <attentive/files/state_dict.h>

namespace attentive {

/// The prefix that DataParallel or torch.compile put before every key; empty if there is none.
std::string wrapper_prefix(const StateDict& state);

/// Reads a state dict from one file that is not an index.
StateDictFile read_state_file(const std::filesystem::path& path, const ReadStateOptions& options);

/// Reads a state dict from the shards listed by an index in the same folder.
StateDictFile read_sharded_state(const std::filesystem::path& index, const ReadStateOptions& options);

/// Throws c10::ValueError: "read_state_dict: <path>: <reason>".
[[noreturn]] void refuse_state(const std::filesystem::path& path, std::string_view reason);

}  // namespace attentive
