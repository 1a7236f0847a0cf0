#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <attentive/viz/attention_view.h>

namespace attentive {

/// Options of `to_svg` and `write_svg`.
struct SvgOptions {
  int64_t head = -1;       ///< its number in the model; -1: the first of the view
  std::string title = {};  ///< empty: the view's path and the head
};

/// One head as a vector picture: a matrix of cells with the queries' texts at the left and the keys' above,
/// darker where the weight is larger. Hidden keys are hatched: they are not zero, they are not there. A scale
/// says which weight is darkest.
///
/// Well-formed XML that browsers and drawing programs open; control characters in texts become their
/// pictures, bytes that are not UTF-8 become U+FFFD, and texts longer than 16 characters are cut. Throws
/// c10::ValueError for a head that the view does not have, for a view whose parts do not fit together, and
/// above 256 x 256 cells, for which `write_html` is made.
///
///   std::cout << attentive::to_svg(view, {.head = 3});
std::string to_svg(const AttentionView& view, const SvgOptions& options = {});

/// Writes it to a file, all or nothing. Throws c10::ValueError also if the file cannot be written.
///
///   attentive::write_svg("head.svg", view);
void write_svg(const std::filesystem::path& path, const AttentionView& view, const SvgOptions& options = {});

}  // namespace attentive
