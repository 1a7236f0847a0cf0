#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <attentive/files/file_value.h>

namespace attentive {

/// The content of a JSON file: null, bool, int64_t, double, string, list and dict. `what` names it in
/// messages: "index". Refused with the reason: a file of more than 100,000,000 bytes, one that is not UTF-8
/// or not JSON, an object that holds a key twice, nesting deeper than 16. Throws Refusal.
FileValue read_json(const std::filesystem::path& path, std::string_view what);

/// The same for the text itself.
FileValue parse_json(const std::string& text, std::string_view what);

/// The text of such a value, indented; a number that is not finite is refused. Throws Refusal.
std::string json_text(const FileValue& value);

}  // namespace attentive
