#include "support/page_report.h"

#include <utility>

#include <fmt/format.h>

#include "support/html.h"
#include "support/page_table.h"
#include "support/write_page.h"

namespace notebooks {

extern const char* const kPageCss;  // generated from page.css

namespace {

constexpr const char* kHowCompared =
    "A printed number stands in the document; a derived one was computed with PyTorch from the same seeds. "
    "Numbers are compared, not texts: the result says by how much C++ differs, and how much is allowed.";

std::string page_name(const std::string& document) {
  return fmt::format("notebook-{}.html", document);
}

std::string paragraph(std::string_view name, std::string_view text) {
  return text.empty() ? std::string() : fmt::format("<p class=\"{}\">{}</p>\n", name, escaped(text));
}

std::string origin_html(const Document& document) {
  const auto& origin = document.origin;
  if (origin.title.empty()) return "";
  return fmt::format("<p class=\"origin\">Document {}: <cite lang=\"ko\">{}</cite>{}{}; author: {}.</p>\n",
                     escaped(document.id), escaped(origin.title), origin.place.empty() ? "" : ", ",
                     escaped(origin.place), origin.author.empty() ? "not named" : escaped(origin.author));
}

std::string summary_html(const std::vector<Tally>& tallies) {
  std::vector<std::vector<std::string>> rows;
  std::string remarks;
  for (const auto& tally : tallies) {
    if (tally.empty()) continue;
    rows.emplace_back();
    for (const auto& column : columns_of(tally)) rows.back().push_back(escaped(column));
    for (const auto& remark : remarks_of(tally)) remarks += paragraph("remark", remark);
  }
  return fmt::format(
      "<section id=\"summary\" aria-labelledby=\"summary-title\">\n<h2 "
      "id=\"summary-title\">Summary</h2>\n{}{}{}</section>\n",
      paragraph("conclusion", conclusion(tallies)), lines_html("summary", tally_heads(), rows), remarks);
}

// Makes a whole page. `body` is HTML.
std::string page_html(std::string_view title, std::string_view body, std::string_view made_with) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light "
      "dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}"
      "<footer>{}{}</footer>\n</body>\n</html>\n",
      escaped(title), kPageCss, body, paragraph("made", made_with),
      pictures_available()
          ? ""
          : paragraph("made", "Without pictures: this program was built without attentive::viz."));
}

}  // namespace

PageReport::PageReport(std::filesystem::path folder, std::string made_with)
    : folder_(std::move(folder)), made_with_(std::move(made_with)) {
  make_page_folder(folder_);
}

void PageReport::begin_document(const Document& document) {
  document_ = document;
  contents_.clear();
  cells_.clear();
}

void PageReport::begin_cell(const CellHeading& cell) {
  cell_.emplace(cell);
  cell_->source();
}

void PageReport::end_cell(bool stopped) {
  cell_->end(stopped);
  const auto& [id, title, note, text] = cell_->heading();
  contents_ += fmt::format("<li><a href=\"#{0}\"><span class=\"id\">{0}</span> {1}</a> {2}</li>\n",
                           escaped(id), escaped(title), cell_->failed() ? cell_->verdict() : "");
  cells_ += cell_->html();
}

void PageReport::end_document(const Tally& tally) {
  const auto title = fmt::format("{} {}", document_.id, document_.title);
  const auto header = fmt::format(
      "<a class=\"skip\" href=\"#cells\">To the cells</a>\n<header>\n<p><a href=\"index.html\">All "
      "documents</a></p>\n"
      "<h1>{}</h1>\n{}{}{}</header>\n",
      escaped(title), origin_html(document_), paragraph("introduction", document_.origin.introduction),
      paragraph("how", kHowCompared));
  const auto body = fmt::format(
      "{}<div class=\"columns\">\n<nav aria-label=\"Cells\">\n<ol>\n{}<li><a "
      "href=\"#summary\"><span></span> Summary</a></li>\n</ol>\n</nav>\n"
      "<main id=\"cells\">\n{}{}</main>\n</div>\n",
      header, contents_, cells_, summary_html({tally}));
  write_page(folder_ / page_name(document_.id), page_html(title, body, made_with_));
  listed_ += fmt::format("<li>\n<h2><a href=\"{}\">{}</a></h2>\n{}{}{}</li>\n",
                         escaped(page_name(document_.id)), escaped(title), origin_html(document_),
                         paragraph("introduction", document_.origin.introduction),
                         paragraph("conclusion", conclusion({tally})));
}

void PageReport::summary(const std::vector<Tally>& tallies) {
  constexpr const char* title = "Attention notebooks in C++";
  const auto body = fmt::format(
      "<header>\n<h1>{}</h1>\n{}</header>\n<main>\n<ol class=\"documents\">\n{}</ol>\n{}</main>\n", title,
      paragraph("how", kHowCompared), listed_, summary_html(tallies));
  write_page(folder_ / "index.html", page_html(title, body, made_with_));
}

}  // namespace notebooks
