#pragma once

#include <string_view>

namespace notebooks {

/// Runs the executable that walks through the document `id`, or through all of them if it is empty; `run_app`
/// says what it returns. Six small programs call it, so this header needs no LibTorch.
int run_document(int argc, char** argv, std::string_view id);

}  // namespace notebooks
