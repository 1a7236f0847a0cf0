#pragma once

#include <string>

namespace notebooks {

/// Command line of attentive-notebook-NNN for one document, of attentive-notebooks for "".
/// Returns 0 if every number agrees, 1 if one does not, 2 on bad usage.
int run_app(int argc, char** argv, const std::string& document);

}  // namespace notebooks
