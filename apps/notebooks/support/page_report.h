#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/page_cell.h"
#include "support/report.h"

namespace notebooks {

/// Writes HTML pages: notebook-001.html and so on, and index.html, which lists the pages of this walk. Each
/// is one file that needs no network and contains code, numbers, pictures and style.
///
/// A page is written when its document ends, complete or not at all, and replaces an earlier one. Throws
/// std::system_error if a file cannot be written.
class PageReport : public Report {
 public:
  /// Makes the folder if necessary. `made_with` describes the program on the pages, for instance its version.
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

  Document document_ = {};        ///< the current document
  std::optional<PageCell> cell_;  ///< the current cell
  std::string contents_, cells_;  ///< of the current document so far

  std::string listed_;  ///< the documents so far, for the index
};

}  // namespace notebooks
