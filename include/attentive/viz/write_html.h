#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/viz/attention_view.h>

namespace attentive {

/// Options of `write_html`.
struct HtmlOptions {
  /// The page's heading. Empty: the first words of the first view's text, or "Attention" (`page_title`).
  std::string title = {};
  std::string note = {};           ///< a sentence below the title
  int64_t max_bytes = 15'000'000;  ///< the page is not larger
  /// Called before a head is compressed: in steps of 1/`levels`, as number `head` of `heads`, from 1. If the
  /// page becomes too large, it begins again with fewer levels.
  std::function<void(int levels, int64_t head, int64_t heads)> on_head = {};
};

/// What `write_html` wrote.
struct HtmlPage {
  int64_t bytes = 0;
  /// Weights are shown in steps of the largest weight of their query divided by this: 255, or 127, 63, 31,
  /// 15 or 7 if the page would otherwise be too large. Every shown weight is within half a step of the
  /// tensor's.
  int levels = 255;
};

/// A page that does not fit into `HtmlOptions::max_bytes`. The message says how many heads or tokens would.
class PageTooLarge : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// Writes one self-contained HTML file, which opens from disk without a network: every layer and head as a
/// grid, as lines between tokens, as a matrix and, for images, over the patches.
///
/// Hidden keys are stored as hidden and take no room beyond their row's span. Statistics, ranks and logsumexp
/// are computed before the weights are quantised. Bytes of a token that are not UTF-8, as of a character that
/// is several tokens, are shown as ‹F0›; in other texts they become U+FFFD. The file appears whole or not at all. Throws c10::ValueError without a view, for a view whose parts do not fit
/// together (what came is named), and if the file cannot be written; PageTooLarge if the page does not fit
/// even with 7 levels. Memory: a few times the page.
///
///   attentive::write_html("page.html", attentive::attention_views(recorder, {.tokens = tokens}));
HtmlPage write_html(const std::filesystem::path& path, const std::vector<AttentionView>& views,
                    const HtmlOptions& options = {});

}  // namespace attentive
