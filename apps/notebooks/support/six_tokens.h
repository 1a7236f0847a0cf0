#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

namespace notebooks {

/// "Your journey starts with one step": six tokens of three features, on the CPU, as in cell 001-02.
torch::Tensor six_tokens();
/// The words of that sentence.
std::vector<std::string> six_words();

}  // namespace notebooks
