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

/// The properties of a cell that are known before it runs.
struct CellHeading {
  std::string id;  ///< such as "001-25"
  std::string title;
  std::string note;      ///< a remark in the data file
  const char* document;  ///< the C++ text of its document, for cell_source()
};

/// An output of a walk-through, such as a terminal or pages. It receives all events in order, and ignores
/// those that it does not show.
class Report {
 public:
  virtual ~Report() = default;

  virtual void begin_document(const Document& /*document*/) {}
  virtual void begin_cell(const CellHeading& /*cell*/) {}
  /// A sentence from the cell.
  virtual void remark(const std::string& /*text*/) {}
  /// C++ numbers, compared with expected ones.
  virtual void check(const Check& /*check*/, const std::vector<double>& /*got*/,
                     const Comparison& /*comparison*/) {}
  /// Called after a check of values that depend on dropout, with the values of other machines. `explain`:
  /// give the reason, too.
  virtual void other_stream(const Check& /*check*/, bool /*explain*/) {}
  /// Numbers without expected ones.
  virtual void value(const std::string& /*name*/, const std::vector<int64_t>& /*shape*/,
                     const std::vector<double>& /*numbers*/) {}
  /// True if this report shows pictures; otherwise none are made.
  virtual bool draws() const { return false; }
  virtual void picture(const Picture& /*picture*/) {}
  /// `stopped`: an error has ended the cell and its document.
  virtual void end_cell(bool /*stopped*/) {}
  /// Ends a document; only called after begin_document().
  virtual void end_document(const Tally& /*tally*/) {}
  virtual void summary(const std::vector<Tally>& /*tallies*/) {}
};

}  // namespace notebooks
