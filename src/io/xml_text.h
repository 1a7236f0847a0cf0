#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attentive {

/// A text as the content of an XML element or of an attribute in double quotes: markup is escaped, control
/// characters become the pictures that Unicode has for them (U+2400 and on), and U+FFFD stands for bytes that
/// are not UTF-8 and for U+FFFE and U+FFFF, which XML does not have.
std::string xml_text(std::string_view text);

/// The first `most` characters of a text, the last one replaced by "…" if there are more. A byte that is not
/// UTF-8 counts as one character.
std::string shortened(std::string_view text, size_t most);

}  // namespace attentive
