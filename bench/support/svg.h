#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

/// One diagram with logarithmic scales on both axes; values that are not positive are left out.
struct Panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
};

/// Draws the panels next to each other under one heading, with one legend. Colour and mark depend on the
/// index of a series, so all panels must list the same series.
std::string to_svg(const std::string& heading, const std::vector<Panel>& panels);

}  // namespace bench
