#pragma once

#include <string>

namespace notebooks {

/// Selects what is shown of the documents.
struct View {
  std::string only = {};  ///< the row to show, such as "25", "4c" or "001-25"; empty for all
  bool list = false;      ///< print the rows' titles and run nothing
  bool source = false;    ///< print the C++ code of each row too
  bool full = false;      ///< print every number beside the expected one; otherwise one line per row

  bool tables() const { return full || source || !only.empty(); }
};

}  // namespace notebooks
