#pragma once

#include <memory>

#include "support/report.h"
#include "support/view.h"

namespace notebooks {

/// Writes to standard output, depending on `view`: one line per cell, every number beside the expected one,
/// or titles only.
std::unique_ptr<Report> terminal_report(const View& view);

}  // namespace notebooks
