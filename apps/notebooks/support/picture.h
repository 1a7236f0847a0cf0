#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace notebooks {

/// What a picture says beside its numbers.
struct PictureOptions {
  std::vector<std::string> queries = {};  ///< names of the rows; empty: their positions
  std::vector<std::string> keys = {};     ///< names of the columns
  at::Tensor visible = {};    ///< bool, broadcasts to the numbers; false: hidden. Undefined: all are visible
  std::string each = "head";  ///< what the first of three axes counts
};

/// Numbers as maps, darker where they are larger: (S) is one row, (L, S) one map, (H, L, S) one for each of H.
/// None of those that are visible may be negative.
struct Picture {
  std::string name;
  at::Tensor values;
  PictureOptions options;
};

/// One map of a picture.
struct Drawing {
  std::string svg;
  std::string description;  ///< in words, for those who do not see it
};

/// False where the component attentive::viz is not built.
bool pictures_available();
/// Nothing where pictures are not available.
std::vector<Drawing> draw(const Picture& picture);

}  // namespace notebooks
