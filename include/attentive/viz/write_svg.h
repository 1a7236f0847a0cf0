#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <attentive/viz/attention_view.h>

namespace attentive {

/// Options of `to_svg` and `write_svg`.
struct SvgOptions {
  int64_t head = -1;       ///< the head's number in the model; -1: the first one of the view
  std::string title = {};  ///< if empty: the view's path and the head
};

/// Draws one head as a vector picture: a matrix of cells, with the queries' texts at the left and the keys'
/// texts above; darker cells have larger weights. Hidden keys are hatched, because their weights are not zero
/// but absent. A scale shows the weight of the darkest shade.
///
/// The result is well-formed XML that browsers and drawing programs open. Control characters in texts become
/// Unicode's pictures of them, bytes that are not UTF-8 become U+FFFD, and texts longer than 16 characters
/// are cut. Throws c10::ValueError for a head that the view does not have, for a view whose parts do not fit
/// together, and for more than 256 x 256 cells, for which there is `write_html`.
///
///   std::cout << attentive::to_svg(view, {.head = 3});
std::string to_svg(const AttentionView& view, const SvgOptions& options = {});

/// Writes the picture of `to_svg` to a file, all or nothing. Throws the same errors, and c10::ValueError if
/// the file cannot be written.
///
///   attentive::write_svg("head.svg", view);
void write_svg(const std::filesystem::path& path, const AttentionView& view, const SvgOptions& options = {});

}  // namespace attentive
