#pragma once

#include <string>
#include <vector>

#include "support/cell_line.h"
#include "support/report.h"

namespace notebooks {

/// One cell of a page: its concept, its code and its output, in order.
class PageCell {
 public:
  explicit PageCell(CellHeading heading) : heading_(std::move(heading)) {}

  const CellHeading& heading() const { return heading_; }

  /// Adds the comment above the cell as prose, and its code. Throws the errors of cell_source().
  void source();
  void remark(const std::string& text);
  void check(const Check& check, const std::vector<double>& got, const Comparison& comparison);
  void other_stream(const Check& check, bool explain);
  void value(const std::string& name, const std::vector<int64_t>& shape, const std::vector<double>& numbers);
  void picture(const Picture& picture);
  void end(bool stopped);

  /// The cell as a section of HTML; call after end().
  std::string html() const;
  /// The cell's verdict as HTML.
  std::string verdict() const;
  bool failed() const { return line_.stopped || !line_.differing.empty(); }

 private:
  void add_block(const std::string& html);

  CellHeading heading_;
  CellLine line_;
  std::string prose_, code_, results_;
  /// Checks with few numbers; successive ones share a table.
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace notebooks
