#pragma once

#include <memory>

#include "support/report.h"
#include "support/view.h"

namespace notebooks {

/// Standard output: a line a cell, or, as `view` says, every number beside the expected one, or titles alone.
std::unique_ptr<Report> terminal_report(const View& view);

}  // namespace notebooks
