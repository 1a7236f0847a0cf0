#include <algorithm>
#include <cmath>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/viz/write_page.h>

#include "base/files.h"
#include "base/strings.h"
#include "viz/head_rows.h"
#include "viz/page_data.h"

namespace attentive {
namespace {

constexpr size_t kMostOfTitle = 48;  // characters

// Joins the words of a text with single spaces.
std::string joined_words(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  std::string words;
  for (auto begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;
       begin = text.find_first_not_of(kSpaces, begin)) {
    const auto end = std::min(text.find_first_of(kSpaces, begin), text.size());
    if (!words.empty()) words += ' ';
    words += text.substr(begin, end - begin);
    begin = end;
  }
  return words;
}

std::string first_words(std::string_view text) {
  const auto words = joined_words(text.substr(0, 16 * kMostOfTitle));
  auto cut = shortened(words, kMostOfTitle);
  if (cut == words) return words;
  const auto space = cut.rfind(' ');
  return space == std::string::npos ? cut : cut.substr(0, space) + " …";
}

}  // namespace

std::string page_title(std::string_view model, std::string_view text) {
  const auto words = first_words(text);
  if (model.empty()) return words.empty() ? "Attention" : words;
  return words.empty() ? std::string(model) : std::string(model) + ": " + words;
}

namespace {

constexpr const char* kWriteHtml = "write_html";

// The parts of the template around the embedded data.
struct Template {
  std::string before_data, after_data;
};

std::string replaced(std::string text, std::string_view marker, std::string_view content) {
  const auto place = text.find(marker);
  TORCH_INTERNAL_ASSERT(place != std::string::npos, "the page lacks ", std::string(marker));
  return text.replace(place, marker.size(), content);
}

Template page_template() {
  auto page = replaced(viz::kPageTemplate, "<!-- attentive:style -->",
                       fmt::format("<style>\n{}</style>", viz::kPageStyle));
  page = replaced(std::move(page), "<!-- attentive:script -->",
                  fmt::format("<script>\n{}</script>", viz::kPageScript));
  constexpr std::string_view marker = "<!-- attentive:data -->";
  const auto place = page.find(marker);
  TORCH_INTERNAL_ASSERT(place != std::string::npos, "the page lacks ", std::string(marker));
  return {page.substr(0, place), page.substr(place + marker.size())};
}

// Joins the tokens to a text. If no token contains a space (a vocabulary of words), spaces are inserted.
std::string text_of(const AttentionView& view) {
  const auto& tokens = view.key_tokens;
  const bool spaced = std::any_of(tokens.begin(), tokens.end(),
                                  [](const auto& token) { return token.find(' ') != std::string::npos; });
  return fmt::format("{}", fmt::join(tokens, spaced ? "" : " "));
}

// The elements that hold the data at some number of levels. `full` means that writing stopped beyond `most`
// bytes.
struct Elements {
  std::string text;
  size_t heads = 0;  // the number of heads in it
  bool full = false;
};

Elements elements(const viz::PageData& data, const std::vector<AttentionView>& views, int levels, size_t most,
                  const HtmlOptions& options) {
  Elements made{fmt::format("<script type=\"application/json\" id=\"attentive-data\">{}</script>\n",
                            data.json(levels))};
  for (size_t view = 0; view < views.size(); ++view) {
    for (size_t place = 0; place < views[view].heads.size(); ++place) {
      if (made.text.size() > most) {
        made.full = true;
        return made;
      }
      if (options.on_head) {
        options.on_head(levels, static_cast<int64_t>(made.heads) + 1, static_cast<int64_t>(data.heads()));
      }
      made.text += fmt::format("<script type=\"text/plain\" id=\"w-{}-{}\">{}</script>\n", view,
                               views[view].heads[place], data.weights(view, place, levels));
      ++made.heads;
    }
  }
  made.full = made.text.size() > most;
  return made;
}

// Throws with the estimated size of the page and the number of heads or tokens that would fit, extrapolated
// from the heads written before the page was full.
[[noreturn]] void refuse(const Elements& made, const viz::PageData& data, size_t around, int levels,
                         int64_t max_bytes) {
  const auto json = static_cast<double>(data.json(levels).size());
  const auto heads = static_cast<double>(data.heads()), of_heads = static_cast<double>(data.head_bytes());
  const double once = static_cast<double>(around) + json - of_heads;
  const double written = std::max(0.0, static_cast<double>(made.text.size()) - json);
  const double of_head = of_heads / heads + written / std::max(1.0, static_cast<double>(made.heads));
  const double room = std::max(0.0, static_cast<double>(max_bytes) - once);
  throw PageTooLarge(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      fmt::format("{}: expected a page of at most {} bytes, but {} heads need about {:.0f} even in steps of "
                  "1/{}; about {:.0f} "
                  "of these heads fit, or all of them with {:.0f} % of their tokens",
                  kWriteHtml, max_bytes, data.heads(), once + of_head * heads, levels,
                  std::floor(room / of_head), std::floor(100 * std::sqrt(room / (of_head * heads)))));
}

}  // namespace

HtmlPage write_html(const std::filesystem::path& path, const std::vector<AttentionView>& views,
                    const HtmlOptions& options) {
  TORCH_CHECK_VALUE(!views.empty(), kWriteHtml, ": expected at least one view, got none");
  for (const auto& view : views) viz::check_view(kWriteHtml, view);
  const auto around = page_template();
  const auto size_around = around.before_data.size() + around.after_data.size();
  TORCH_CHECK_VALUE(options.max_bytes > static_cast<int64_t>(size_around), kWriteHtml,
                    ": expected max_bytes above ", size_around, ", what a page without data takes, got ",
                    options.max_bytes);
  const auto title = options.title.empty() ? page_title("", text_of(views.front())) : options.title;
  const viz::PageData data(views, title, options.note);
  const auto most = static_cast<size_t>(options.max_bytes) - size_around;
  Elements made;
  int levels = 0;
  for (const int tried : {255, 127, 63, 31, 15, 7}) {
    levels = tried;
    made = elements(data, views, levels, most, options);
    if (!made.full) break;
  }
  if (made.full) refuse(made, data, size_around, levels, options.max_bytes);
  const auto page = around.before_data + made.text + around.after_data;
  try {
    write_file(path, page);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, kWriteHtml, ": ", path.string(), ": ", error.what());
  }
  return {static_cast<int64_t>(page.size()), levels};
}

}  // namespace attentive
