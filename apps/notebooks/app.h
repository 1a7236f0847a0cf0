#pragma once

#include <string>
#include <vector>

#include "notebooks.h"

namespace notebooks {

/// Runs the executable `name`, which walks through `documents`. Returns 0 if every number agrees, 1 if one
/// does not or the output cannot be written, 2 on bad usage.
int run_app(int argc, char** argv, const std::string& name, const std::vector<Document>& documents);

}  // namespace notebooks
