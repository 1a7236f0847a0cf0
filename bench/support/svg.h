#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

/// One diagram with a logarithmic scale on both axes; values that are not positive are left out.
struct Panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
};

/// The panels side by side under one heading, with one legend: a series has the colour and the mark of its
/// place, so the panels list the same series.
std::string to_svg(const std::string& heading, const std::vector<Panel>& panels);

}  // namespace bench
