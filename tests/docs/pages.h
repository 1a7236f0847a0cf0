#pragma once

// The pages: README.md, docs/ and the READMEs of apps/. What the tests of this folder know about Markdown.

#include <cstddef>
#include <string>
#include <vector>

namespace attentive::test {

// A file's text. Throws std::runtime_error if it is empty or not there.
std::string read_page_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// Paths from the root of the sources, sorted.
std::vector<std::string> page_paths();

// A fenced block, with the lines between its fences, and the `text` block one empty line below it.
struct Block {
  // Of `<!-- kind: name -->` in the line above it: an example, a file shown word for word, or "lines of" a
  // file.
  std::string kind, name;
  std::string language, code, output;
  size_t first_line = 0, last_line = 0;  // from the opening fence to the end of what belongs to it
};

// The blocks of a page, in their order. A marker without a block gives an empty one, which an update fills.
std::vector<Block> blocks_of(const std::string& page);

// The page with this block's code and output replaced.
std::string with_block(const std::string& page, const Block& block);

// The words are equal and the numbers within one unit of the last digit that is printed. A shown line may
// give two possibilities, parted by " | ", where processors differ.
bool same_output(const std::string& shown, const std::string& printed);

// Every line of `code` stands in `text`, in this order, however it is indented; a line "…" stands for any
// number.
bool lines_stand_in(const std::string& code, const std::string& text);

}  // namespace attentive::test
