#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "support/html.h"
#include "support/report.h"
#include "support/source.h"

namespace notebooks {

extern const char* const kPageCss;  // generated from page.css

namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), std::string(what) + path.string());
}

bool is_folder(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool write_all(const std::filesystem::path& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int reason = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = reason;
  return written && closed;
}

// Makes a folder and its parents if necessary. Throws std::system_error if it cannot be made or written to.
void make_page_folder(const std::filesystem::path& folder) {
  const auto parent = folder.parent_path();
  if (!parent.empty() && parent != folder && !is_folder(parent)) make_page_folder(parent);
  if (::mkdir(folder.c_str(), 0777) != 0 && !(errno == EEXIST && is_folder(folder))) {
    fail("cannot create the folder ", folder);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail("cannot write into the folder ", folder);
}

// Writes a file that appears at `path` complete or not at all. Throws std::system_error.
void write_page(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + ".writing-" + std::to_string(::getpid());
  if (write_all(temporary, text) && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  std::remove(temporary.c_str());
  errno = reason;
  fail("cannot write ", path);
}

// One cell of a page: its concept, its code and its output, in order.
class PageCell {
 public:
  explicit PageCell(CellHeading heading) : heading_(std::move(heading)) {}

  const CellHeading& heading() const { return heading_; }

  // Adds the comment above the cell as prose, and its code. Throws the errors of cell_source().
  void source();
  void remark(const std::string& text);
  void check(const Check& check, const std::vector<double>& got, const Comparison& comparison);
  void other_stream(const Check& check, bool explain);
  void value(const std::string& name, const std::vector<int64_t>& shape, const std::vector<double>& numbers);
  void picture(const Picture& picture);
  void end(bool stopped);

  // The cell as a section of HTML; call after end().
  std::string html() const;
  // The cell's verdict as HTML.
  std::string verdict() const;
  bool failed() const { return line_.stopped || !line_.differing.empty(); }

 private:
  void add_block(const std::string& html);

  CellHeading heading_;
  CellLine line_;
  std::string prose_, code_, results_;
  // Checks with few numbers; successive ones share a table.
  std::vector<std::vector<std::string>> lines_;
};

constexpr size_t kNumbersOfLine = 4;  // larger checks get a table of their own

bool fits_a_line(const Check& check, size_t numbers) {
  return check.shape.size() < 2 && numbers <= kNumbersOfLine;
}

std::string verdict_html(std::string_view text, bool agrees, bool differs) {
  const std::string_view name = differs ? "differs" : agrees ? "agrees" : "neutral";
  const std::string_view mark = differs ? "✗" : agrees ? "✓" : "○";
  return fmt::format("<span class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</span>", name, mark,
                     escaped(text));
}

std::string verdict_html(const Check& check, const Comparison& comparison) {
  return verdict_html(verdict_text(check, comparison), comparison.verdict == Verdict::Equal,
                      comparison.verdict == Verdict::Different);
}

std::string named(const Check& check) {
  return fmt::format("<code>{}</code>", escaped(check.name));
}

// One or two tables with a caption.
std::string figure(const Check& check, std::string_view verdict, std::string_view tables) {
  return fmt::format(
      "<figure class=\"check\">\n<figcaption>{} <span class=\"shape\">({})</span> {}</figcaption>\n"
      "<div class=\"beside\">\n{}</div>\n</figure>\n",
      named(check), shape_text(check), verdict, tables);
}

void PageCell::source() {
  const auto source = cell_source(heading_.document, heading_.id);
  const auto prose = source.prose();
  if (!prose.empty()) prose_ = fmt::format("<p class=\"concept\">{}</p>\n", escaped(prose));
  code_ =
      fmt::format("<pre tabindex=\"0\" aria-label=\"C++ code of {}\" role=\"group\"><code>{}</code></pre>\n",
                  escaped(heading_.id), code_html(source.code));
}

void PageCell::add_block(const std::string& html) {
  const auto lines = std::exchange(lines_, {});
  if (!lines.empty()) {
    results_ +=
        lines_html("numbers of " + heading_.id, {"value", "C++", "expected", "source", "result"}, lines);
  }
  results_ += html;
}

void PageCell::remark(const std::string& text) {
  add_block(fmt::format("<p class=\"remark\">{}</p>\n", escaped(text)));
}

void PageCell::check(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  line_.add(check, got, comparison);
  const auto [got_texts, expected_texts] = texts_of(check, got);
  const auto verdict = verdict_html(check, comparison);
  const std::string source(source_text(check));
  if (fits_a_line(check, got.size())) {
    lines_.push_back(
        {named(check), inline_text(check, got_texts), inline_text(check, expected_texts), source, verdict});
    return;
  }
  const auto marked =
      comparison.verdict == Verdict::Different ? std::optional(comparison.place) : std::nullopt;
  add_block(figure(
      check, verdict,
      table_html(check, got_texts, "C++", marked) + table_html(check, expected_texts, source, marked)));
}

void PageCell::other_stream(const Check& check, bool explain) {
  if (explain) remark(other_stream_remark());
  const auto texts = other_stream_texts(check);
  const std::string stream(other_stream_name());
  if (fits_a_line(check, texts.size())) {
    lines_.push_back({fmt::format("{}, {}", named(check), stream), "", inline_text(check, texts), "derived",
                      verdict_html("shown, not compared", false, false)});
    return;
  }
  add_block(
      figure(check, verdict_html("shown, not compared", false, false), table_html(check, texts, stream)));
}

void PageCell::value(const std::string& name, const std::vector<int64_t>& shape,
                     const std::vector<double>& numbers) {
  line_.shown = true;
  const auto [check, texts] = shown_texts(name, shape, numbers);
  const auto verdict = verdict_html(texts.empty() ? "no numbers" : "shown", false, false);
  if (fits_a_line(check, texts.size())) {
    lines_.push_back({named(check), inline_text(check, texts), "", "", verdict});
    return;
  }
  add_block(figure(check, verdict, texts.empty() ? "" : table_html(check, texts, "C++")));
}

void PageCell::picture(const Picture& picture) {
  std::string images;
  for (const auto& [svg, description] : draw(picture)) {
    images += fmt::format("<img src=\"{}\" alt=\"{}\">\n", data_uri(svg), escaped(description));
  }
  add_block(fmt::format("<figure class=\"pictures\">\n{}</figure>\n", images));
}

void PageCell::end(bool stopped) {
  line_.stopped = stopped;
  add_block("");
}

std::string PageCell::verdict() const {
  return verdict_html(line_.verdict(), line_.numbers > 0, failed());
}

std::string PageCell::html() const {
  std::string counted;
  if (line_.numbers > 0) {
    counted = fmt::format(" <span class=\"counted\">{} numbers, differing by {} at most</span>",
                          line_.numbers, line_.difference());
  }
  const auto note =
      heading_.note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", escaped(heading_.note));
  return fmt::format(
      "<section class=\"cell\" id=\"{0}\" aria-labelledby=\"title-{0}\">\n"
      "<h2 id=\"title-{0}\"><a href=\"#{0}\">{0}</a> {1}</h2>\n<p "
      "class=\"outcome\">{2}{3}</p>\n{4}{5}{6}{7}</section>\n",
      escaped(heading_.id), escaped(heading_.title), verdict(), counted, prose_, note, code_, results_);
}

class PageReport : public Report {
 public:
  PageReport(std::filesystem::path folder, std::string made_with);

  void begin_document(const Document& document) override;
  void begin_cell(const CellHeading& cell) override;
  void remark(const std::string& text) override { cell_->remark(text); }
  void check(const Check& check, const std::vector<double>& got, const Comparison& comparison) override {
    cell_->check(check, got, comparison);
  }
  void other_stream(const Check& check, bool explain) override { cell_->other_stream(check, explain); }
  void value(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<double>& numbers) override {
    cell_->value(name, shape, numbers);
  }
  bool draws() const override { return pictures_available(); }
  void picture(const Picture& picture) override { cell_->picture(picture); }
  void end_cell(bool stopped) override;
  void end_document(const Tally& tally) override;
  void summary(const std::vector<Tally>& tallies) override;

 private:
  std::filesystem::path folder_;
  std::string made_with_;

  Document document_ = {};        // the current document
  std::optional<PageCell> cell_;  // the current cell
  std::string contents_, cells_;  // of the current document so far

  std::string listed_;  // the documents so far, for the index
};

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

}  // namespace

std::unique_ptr<Report> page_report(std::filesystem::path folder, std::string made_with) {
  return std::make_unique<PageReport>(std::move(folder), std::move(made_with));
}

}  // namespace notebooks
