#pragma once

// The pages: README.md, docs/ and the READMEs of apps/, as far as the tests of this folder understand
// Markdown.

#include <cstddef>
#include <string>
#include <vector>

#include "support/files.h"

namespace attentive::test {

// The folder of the sources, with a slash behind it.
inline const std::string kRoot = source_folder() + "/";

// Reads a file. Throws std::runtime_error if it is empty or missing.
std::string read_page_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// Paths of all pages relative to the root of the sources, sorted.
std::vector<std::string> page_paths();

// A fenced block, with the lines between its fences, and the `text` block that follows it after an empty
// line.
struct Block {
  // From `<!-- kind: name -->` in the line above the block: an example, a file shown word for word, "lines of" a
  // file, or "ported", which attentive-port reads or writes.
  std::string kind, name;
  std::string language, code, output;
  size_t first_line = 0, last_line = 0;  // from the opening fence to the end of the output
};

// The blocks of a page, in order. A marker without a block gives an empty block, which an update fills.
std::vector<Block> blocks_of(const std::string& page);

// Returns the page with this block's code and output replaced.
std::string with_block(const std::string& page, const Block& block);

// Whether the words are equal and the numbers agree within one unit of the last printed digit. A shown line
// may give two alternatives, separated by " | ", if processors differ.
bool same_output(const std::string& shown, const std::string& printed);

// Whether every line of `code` occurs in `text`, in this order, with any indentation. A line "…" stands for
// any number of lines.
bool lines_stand_in(const std::string& code, const std::string& text);

}  // namespace attentive::test
