#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/files/file_value.h>

namespace attentive {

/// Reads a JSON file: null, bool, int64_t, double, string, list or dict. `what` names the file in messages,
/// for instance "index". Throws Refusal with the reason for a file of more than 100,000,000 bytes, one that
/// is not UTF-8 or not JSON, an object that holds a key twice, and nesting deeper than 16.
FileValue read_json(const std::filesystem::path& path, std::string_view what);

/// The text of such a file. Throws Refusal if it is longer than that.
std::string read_json_text(const std::filesystem::path& path, std::string_view what);

/// The keys of an object that is a field of the text's, in the order of the text, which `parse_json` drops.
std::vector<std::string> keys_in_order(const std::string& text, std::string_view field);

/// Parses a JSON text as `read_json` parses a file.
FileValue parse_json(const std::string& text, std::string_view what);

/// Writes such a value as indented JSON text. Throws Refusal for a number that is not finite.
std::string json_text(const FileValue& value);

}  // namespace attentive
