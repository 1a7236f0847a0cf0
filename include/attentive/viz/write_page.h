#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/viz/attention_view.h>

namespace attentive {

/// The default heading of a page: the model's name and the first words of the text, "gpt2: To be or not to
/// be". Either may be empty; "Attention" if both are. Runs of white space become one space. A heading of more
/// than 48 characters is cut between words and ends in "…"; a single longer word is itself cut.
///
///   attentive::write_html("page.html", views, {.title = attentive::page_title("gpt2", text)});
std::string page_title(std::string_view model, std::string_view text);

/// Options of `write_html`.
struct HtmlOptions {
  /// The page's heading. If empty: the first words of the first view's text, or "Attention" (`page_title`).
  std::string title = {};
  std::string note = {};           ///< a sentence below the title
  int64_t max_bytes = 15'000'000;  ///< maximum size of the page in bytes
  /// Called before a head is compressed with weights in steps of 1/`levels`; it is head number `head` of
  /// `heads`, counted from 1. If the page becomes too large, writing starts again with fewer levels.
  std::function<void(int levels, int64_t head, int64_t heads)> on_head = {};
};

/// The properties of a page that `write_html` wrote.
struct HtmlPage {
  int64_t bytes = 0;
  /// Weights are shown in steps of 1/levels of their query's largest weight: 255, or 127, 63, 31, 15 or 7 if
  /// the page would otherwise be too large. Every shown weight is within half a step of the true one.
  int levels = 255;
};

/// Thrown if a page does not fit into `HtmlOptions::max_bytes`. The message says how many heads or tokens
/// would.
class PageTooLarge : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// Writes one self-contained HTML file, which opens from disk without a network. It shows every layer and
/// head as a grid, as lines between tokens, as a matrix and, for images, over the patches.
///
/// Hidden keys are stored as hidden; outside the span of a row they take no space. Statistics, ranks and
/// logsumexp are computed before the weights are quantised. Bytes of a token that are not UTF-8 (for instance
/// of a character that is split into several tokens) are shown as ‹F0›; in other texts they become U+FFFD.
/// The file appears complete or not at all.
/// Throws c10::ValueError without a view, for a view whose parts do not fit together (the message names what
/// was given), and if the file cannot be written; PageTooLarge if the page does not fit even with 7 levels.
/// Memory: a few times the size of the page.
///
///   attentive::write_html("page.html", attentive::attention_views(recorder, {.tokens = tokens}));
HtmlPage write_html(const std::filesystem::path& path, const std::vector<AttentionView>& views,
                    const HtmlOptions& options = {});

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
