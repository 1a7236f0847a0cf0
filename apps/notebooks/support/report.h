#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/comparison.h"
#include "support/document.h"
#include "support/expected.h"
#include "support/picture.h"
#include "support/tally.h"

namespace notebooks {

/// What is known of a cell before it runs.
struct CellHeading {
  std::string id;  ///< such as "001-25"
  std::string title;
  std::string note;      ///< what the data file says about it
  const char* document;  ///< the C++ text of its document, for cell_source()
};

/// Where a walk-through shows itself: a terminal, pages. It is told what happens, in order; what it does not
/// show it ignores.
class Report {
 public:
  virtual ~Report() = default;

  virtual void begin_document(const Document& /*document*/) {}
  virtual void begin_cell(const CellHeading& /*cell*/) {}
  /// A sentence of the cell.
  virtual void remark(const std::string& /*text*/) {}
  /// C++ numbers that were compared with expected ones.
  virtual void check(const Check& /*check*/, const std::vector<double>& /*got*/,
                     const Comparison& /*comparison*/) {}
  /// Behind a check that dropout has touched: what other machines show. `explain`: say why they do.
  virtual void other_stream(const Check& /*check*/, bool /*explain*/) {}
  /// Numbers beside which nothing stands.
  virtual void value(const std::string& /*name*/, const std::vector<int64_t>& /*shape*/,
                     const std::vector<double>& /*numbers*/) {}
  /// True if pictures are wanted; without it they are not made.
  virtual bool draws() const { return false; }
  virtual void picture(const Picture& /*picture*/) {}
  /// `stopped`: an error has ended the cell and with it the document.
  virtual void end_cell(bool /*stopped*/) {}
  /// The last call for a document, only if begin_document() was called for it.
  virtual void end_document(const Tally& /*tally*/) {}
  virtual void summary(const std::vector<Tally>& /*tallies*/) {}
};

}  // namespace notebooks
