#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace notebooks {

/// The labels of a picture, and its mask.
struct PictureOptions {
  std::vector<std::string> queries = {};  ///< names of the rows; empty: positions
  std::vector<std::string> keys = {};     ///< names of the columns
  at::Tensor visible = {};    ///< bool, broadcasts to the numbers; false: hidden. Undefined: all are visible
  std::string each = "head";  ///< what the first of three axes counts
};

/// Numbers drawn as maps in which larger numbers are darker: (S) is one row, (L, S) one map, (H, L, S) one
/// map for each of H. Visible numbers must not be negative.
struct Picture {
  std::string name;
  at::Tensor values;
  PictureOptions options;
};

/// One map of a picture.
struct Drawing {
  std::string svg;
  std::string description;  ///< in words, for readers who cannot see it
};

/// Whether the component attentive::viz is built.
bool pictures_available();
/// Draws all maps; returns nothing if pictures are not available.
std::vector<Drawing> draw(const Picture& picture);

}  // namespace notebooks
