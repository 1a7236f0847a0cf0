#pragma once

// Text that comes from files or goes into them: UTF-8, hexadecimal digits, patterns, XML.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attentive {

/// The length in bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t utf8_prefix(std::string_view text);

/// True if `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Replaces ill-formed UTF-8: U+FFFD stands for each truncated character (its longest valid prefix) and for
/// each other bad byte.
std::string replace_bad_utf8(std::string text);

/// The number of bytes at the end of `text`, 0 to 3, that begin a character which further bytes may complete.
size_t unfinished_utf8(std::string_view text);

/// Bytes as hexadecimal text, for JSON strings, which cannot hold invalid UTF-8.
std::string to_hex(std::string_view bytes);
/// Throws c10::ValueError prefixed with `caller` unless `hex` is an even number of lower-case hexadecimal
/// digits.
std::string from_hex(const char* caller, std::string_view hex);

/// Whether a text matches a pattern, in which `*` stands for any run of characters.
bool matches(std::string_view pattern, std::string_view text);
bool matches_any(const std::vector<std::string>& patterns, std::string_view text);

/// Escapes a text for the content of an XML element or for an attribute in double quotes. Control characters
/// are replaced by Unicode's pictures of them (U+2400 and following); bytes that are not UTF-8, U+FFFE and
/// U+FFFF, which XML does not allow, are replaced by U+FFFD.
std::string xml_text(std::string_view text);

/// The first `most` characters of a text, the last one replaced by "…" if there are more. A byte that is not
/// UTF-8 counts as one character.
std::string shortened(std::string_view text, size_t most);

}  // namespace attentive
