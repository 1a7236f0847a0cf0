#include "support/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/run_main.h"

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

namespace {

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string fraction(double value) {
  return value > 0 ? fmt::format("{:.1f} %", 100 * value) : "-";
}

// A field of a CSV file, in quotes where it needs them.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string share(double value) {
  return value > 0 ? fmt::format("{:.3g}", value) : "";
}

std::string lines_of(const Row& row, const Peaks& peaks) {
  const auto start = field(row.suite) + "," + field(row.name) + "," + row.dtype + ",";
  std::string text;
  for (std::size_t i = 0; i < row.timings.size(); ++i) {
    const auto& timing = row.timings[i];
    const auto& ratio = timing.ratio;
    text +=
        fmt::format("{}{},{:.6g},{},{},,{}\n", start, field(timing.contender), timing.seconds.median,
                    i == 0 ? ",," : fmt::format("{:.6g},{:.6g},{:.6g}", ratio.median, ratio.p10, ratio.p90),
                    share(fraction_of(peaks.find(row.limit), row.work, timing.seconds.median)),
                    i == 0 ? field(fmt::format("error {:.3g} of {:.3g} against {}", row.check.error,
                                               row.check.allowed, row.check.against))
                           : "");
  }
  for (const auto& refusal : row.refusals)
    text += start + field(refusal.contender) + ",,,,,,," + field("not run: " + refusal.why) + "\n";
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace

void print_head(const Machine& machine, const Settings& settings) {
  fmt::print("{}\nmeasuring the machine's limits, a few seconds:\n", to_string(machine, settings.threads));
  apps::flush_output();
}

void print_limit(const std::string& limit) {
  fmt::print("  {}\n", limit);
  apps::flush_output();
}

void print_columns(const std::string& suite) {
  fmt::print("\n{}\n\n", suite);
  fmt::print("| {:<26} | {:<4} | {:<26} | {:>9} | {:>21} | {:>7} | {:>15} | {:>7} | {:>7} |\n", "case",
             "type", "way (error against)", "median", "p10 - p90", "x ours", "p10 - p90", "limit", "live");
  fmt::print("|{:-<28}|{:-<6}|{:-<28}|{:->10}:|{:->22}:|{:->8}:|{:->16}:|{:->8}:|{:->8}:|\n", "", "", "", "",
             "", "", "", "", "");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  for (std::size_t i = 0; i < row.timings.size(); ++i) {
    const auto& timing = row.timings[i];
    const std::string way =
        i == 0 ? fmt::format("**{}** ({:.0e})", timing.contender, row.check.error) : timing.contender;
    fmt::print("| {:<26} | {:<4} | {:<26} | {:>9} | {:>21} | {:>7} | {:>15} | {:>7} | {:>7} |\n", row.name,
               row.dtype, way, duration(timing.seconds.median),
               duration(timing.seconds.p10) + " - " + duration(timing.seconds.p90),
               i == 0 ? "1" : fmt::format("{:.2f}", timing.ratio.median),
               i == 0 ? "" : fmt::format("{:.2f} - {:.2f}", timing.ratio.p10, timing.ratio.p90),
               fraction(timing.fraction), fraction(timing.fraction_same_round));
  }
  for (const auto& refusal : row.refusals)
    fmt::print("| {:<26} | {:<4} | {:<26} | not run: {} |\n", row.name, row.dtype, refusal.contender,
               refusal.why);
  apps::flush_output();
}

void print_growth(const std::vector<GrowthPoint>& points) {
  if (points.empty()) return;
  fmt::print("\n| {:<24} | {:>6} | {:>9} | {:>12} |\n|{:-<26}|{:->7}:|{:->10}:|{:->13}:|\n", "series", "T",
             "time", "peak memory", "", "", "", "");
  for (const auto& point : points) {
    fmt::print("| {:<24} | {:>6} | {:>9} | {:>8.1f} MiB |\n", point.series, point.tokens,
               duration(point.seconds), point.bytes / (1 << 20));
  }
}

void write_csv(const std::string& path, const Machine& machine, const Runner& runner) {
  const auto& peaks = runner.peaks();
  std::string text = "# " + to_string(machine, peaks.threads) + "\n";
  const auto add_limit = [&](const char* name, const char* unit, const Peak& peak) {
    text += fmt::format("# {}: {:.4g} {}, {}\n", name, peak.rate, unit, peak.method);
  };
  add_limit("fp32", "flop/s", peaks.fp32);
  add_limit("bf16", "flop/s", peaks.bf16);
  add_limit("read", "bytes/s", peaks.read);
  text += "suite,case,dtype,way,seconds,ratio,p10,p90,limit,mib,note\n";
  for (const auto& row : runner.rows()) text += lines_of(row, peaks);
  for (const auto& point : runner.growth())
    text += fmt::format("growth,T={},fp32,{},{:.6g},,,,,{:.1f},\n", point.tokens, field(point.series),
                        point.seconds, point.bytes / (1 << 20));
  write_file(path, text);
}

void write_plot(const std::string& path, const Machine& machine, const Runner& runner) {
  Panel time{"Time of one forward pass", "tokens T", "milliseconds", {}},
      memory{"Peak growth of resident memory", "tokens T", "MiB", {}};
  std::map<std::string, std::size_t> places;
  for (const auto& point : runner.growth()) {
    const auto [place, is_new] = places.try_emplace(point.series, time.series.size());
    if (is_new) {
      time.series.push_back({point.series, {}});
      memory.series.push_back({point.series, {}});
    }
    const auto tokens = static_cast<double>(point.tokens);
    time.series[place->second].points.emplace_back(tokens, point.seconds * 1e3);
    memory.series[place->second].points.emplace_back(tokens, point.bytes / (1 << 20));
  }
  if (time.series.empty()) throw std::runtime_error("--svg plots the growth suite, which did not run");
  write_file(path, to_svg(fmt::format("Causal attention, B1 H12 D64, {} threads, {}",
                                      runner.settings().threads, machine.cpu),
                          {time, memory}));
}

}  // namespace bench
