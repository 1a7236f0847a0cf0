#include "support/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace bench {
namespace {

constexpr double kWidth = 460, kHeight = 330, kLeft = 62, kTop = 66, kGap = 84, kLegendLine = 20;
// Colours that colour-blind readers can distinguish (Okabe and Ito); marks distinguish the series without
// colour.
constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73",
                                                 "#cc79a7", "#a17c00", "#000000"};

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string label(double value) {
  if (value >= 1024 && std::fmod(value, 1024) == 0) return fmt::format("{}k", value / 1024);
  return fmt::format("{:g}", value);
}

// A logarithmic axis from one power of `base` to another.
class Axis {
 public:
  Axis(const Panel& panel, double (*value)(const std::pair<double, double>&), double base) : base_(base) {
    double lowest = 1e300, highest = 0;
    for (const auto& series : panel.series) {
      for (const auto& point : series.points) {
        if (value(point) <= 0) continue;
        lowest = std::min(lowest, value(point));
        highest = std::max(highest, value(point));
      }
    }
    if (highest <= 0) lowest = highest = 1;
    first_ = static_cast<int>(std::floor(std::log(lowest) / std::log(base) + 1e-9));
    last_ = std::max(first_ + 1, static_cast<int>(std::ceil(std::log(highest) / std::log(base) - 1e-9)));
  }

  double place(double value) const { return (std::log(value) / std::log(base_) - first_) / (last_ - first_); }
  std::vector<double> ticks() const {
    std::vector<double> out;
    for (int power = first_; power <= last_; ++power) out.push_back(std::pow(base_, power));
    return out;
  }

 private:
  double base_;
  int first_ = 0, last_ = 1;
};

std::string mark(std::size_t index, double x, double y) {
  const char* colour = kColours[index % kColours.size()];
  switch (index % 3) {
    case 0:
      return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", x, y, colour);
    case 1:
      return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="7" height="7" fill="{}"/>)", x - 3.5, y - 3.5,
                         colour);
    default:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l4.5 8h-9z" fill="{}"/>)", x, y - 5, colour);
  }
}

std::string text(double x, double y, const char* anchor, const std::string& what, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                     escape(what));
}

std::string draw(const Panel& panel, double left) {
  const Axis xs(
      panel, [](const auto& point) { return point.first; }, 2);
  const Axis ys(
      panel, [](const auto& point) { return point.second; }, 10);
  const auto x_of = [&](double value) { return left + xs.place(value) * kWidth; };
  const auto y_of = [&](double value) { return kTop + (1 - ys.place(value)) * kHeight; };

  std::string out = text(left, kTop - 12, "start", panel.title, "font-weight=\"bold\"");
  for (const double tick : xs.ticks()) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}v{:.1f}\" stroke=\"#ddd\"/>\n", x_of(tick), kTop, kHeight);
    out += text(x_of(tick), kTop + kHeight + 18, "middle", label(tick));
  }
  for (const double tick : ys.ticks()) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#ddd\"/>\n", left, y_of(tick), kWidth);
    out += text(left - 8, y_of(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  out += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#666\"/>\n",
      left, kTop, kWidth, kHeight);
  out += text(left + kWidth / 2, kTop + kHeight + 38, "middle", panel.x_label);
  out += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      left - 46, kTop + kHeight / 2, escape(panel.y_label));
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    std::string line, marks;
    for (const auto& [x, y] : panel.series[i].points) {
      if (x <= 0 || y <= 0) continue;
      line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x_of(x), y_of(y));
      marks += mark(i, x_of(x), y_of(y));
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>{}\n", line,
                       kColours[i % kColours.size()], marks);
  }
  return out;
}

}  // namespace

std::string to_svg(const std::string& heading, const std::vector<Panel>& panels) {
  const auto count = static_cast<double>(panels.size());
  const std::size_t names = panels.empty() ? 0 : panels.front().series.size();
  const double width = kLeft + count * kWidth + (count - 1) * kGap + 24;
  const double legend = kTop + kHeight + 64;
  const double height = legend + static_cast<double>((names + 1) / 2) * kLegendLine + 8;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
  out += text(kLeft, 26, "start", heading, "font-size=\"16\"");
  for (std::size_t i = 0; i < panels.size(); ++i)
    out += draw(panels[i], kLeft + static_cast<double>(i) * (kWidth + kGap));
  for (std::size_t i = 0; i < names; ++i) {
    const double x = kLeft + static_cast<double>(i % 2) * (kWidth + kGap);
    const double y = legend + static_cast<double>(i / 2) * kLegendLine;
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h28\" stroke=\"{}\" stroke-width=\"2\"/>{}", x, y,
                       kColours[i % kColours.size()], mark(i, x + 14, y));
    out += text(x + 36, y + 4, "start", panels.front().series[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace bench
