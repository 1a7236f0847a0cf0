#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/train/training_log.h>

#include "base/files.h"
#include "base/strings.h"

namespace attentive {
namespace {

constexpr const char* kTrainingLog = "TrainingLog";
constexpr const char* kHeader =
    "step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second,loss_scale";
constexpr const char* kEarlierHeader =
    "step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second";

bool is_json(const std::filesystem::path& path) {
  return path.extension() == ".jsonl";
}

// The shortest text that reads back as the same number; null for NaN and infinities, which JSON lacks.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string to_line(const LogRow& row, bool json) {
  if (json) {
    return fmt::format(
        R"({{"step": {}, "loss": {}, "validation_loss": {}, "learning_rate": {}, "gradient_norm": {}, )"
        R"("tokens_per_second": {}, "loss_scale": {}}})"
        "\n",
        row.step, json_number(row.loss), json_number(row.validation_loss.value_or(NAN)),
        json_number(row.learning_rate), json_number(row.gradient_norm), json_number(row.tokens_per_second),
        json_number(row.loss_scale.value_or(NAN)));
  }
  const auto cell = [](const std::optional<double>& number) {
    return number ? fmt::format("{}", *number) : std::string();
  };
  return fmt::format("{},{},{},{},{},{},{}\n", row.step, row.loss, cell(row.validation_loss),
                     row.learning_rate, row.gradient_norm, row.tokens_per_second, cell(row.loss_scale));
}

std::optional<LogRow> parse_json(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer())
    return std::nullopt;
  LogRow row{.step = object["step"].get<int64_t>()};
  // `json_number` writes null for NaN and infinities.
  const auto read = [&](const char* key, auto& number) {
    const auto found = object.find(key);
    if (found == object.end() || !(found->is_number() || found->is_null())) return false;
    if (found->is_number()) number = found->template get<double>();
    return true;
  };
  row.loss = row.learning_rate = row.gradient_norm = row.tokens_per_second = NAN;
  const bool whole = read("loss", row.loss) && read("validation_loss", row.validation_loss) &&
                     read("learning_rate", row.learning_rate) && read("gradient_norm", row.gradient_norm) &&
                     read("tokens_per_second", row.tokens_per_second) &&
                     (!object.contains("loss_scale") || read("loss_scale", row.loss_scale));
  return whole ? std::optional(row) : std::nullopt;
}

// Parses a whole cell as a number; nothing if it is anything else, for instance because it was edited.
template <class Number>
bool read_cell(const std::string& cell, Number& number) {
  const auto* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, number);
  return error == std::errc() && stop == end;
}

std::optional<LogRow> parse_csv(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  LogRow row;
  if (cells.size() == 6) cells.emplace_back();  // a row of an earlier version
  if (cells.size() != 7 || !read_cell(cells[0], row.step) || !read_cell(cells[1], row.loss) ||
      !read_cell(cells[3], row.learning_rate) || !read_cell(cells[4], row.gradient_norm) ||
      !read_cell(cells[5], row.tokens_per_second)) {
    return std::nullopt;
  }
  if (!cells[2].empty() && !read_cell(cells[2], row.validation_loss.emplace())) return std::nullopt;
  if (!cells[6].empty() && !read_cell(cells[6], row.loss_scale.emplace())) return std::nullopt;
  return row;
}

// Makes a line fit for a terminal: shortened, and without control characters.
std::string visible(std::string line) {
  constexpr size_t kLongest = 60;
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 127) c = '?';
  }
  return replace_bad_utf8(shortened(line, kLongest));
}

[[noreturn]] void fail_training_log(const std::filesystem::path& path, const std::string& reason) {
  TORCH_CHECK_VALUE(false, kTrainingLog, ": ", path.string(), ": ", reason);
}

// A log as it was found when the file was opened.
struct FoundLog {
  std::string text;
  std::vector<LogRow> rows;
  std::vector<std::string> damaged;  // the lines that are not rows, and why
};

FoundLog read_found_log(const char* caller, const std::filesystem::path& path) {
  FoundLog found;
  try {
    found.text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, caller, ": ", error.what());
  }
  const auto& text = found.text;
  const bool json = is_json(path);
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    // A line without a newline was cut off when the run was killed; its last number may lack digits.
    const bool whole = end < text.size();
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();  // added by an editor
    if (whole && (line.empty() || (number == 1 && (line == kHeader || line == kEarlierHeader)))) continue;
    const auto row = !whole ? std::nullopt : json ? parse_json(line) : parse_csv(line);
    if (row) {
      found.rows.push_back(*row);
    } else {
      found.damaged.push_back(fmt::format("line {}, which {}: {}", number,
                                          whole ? "is no row of a log" : "has no end", visible(line)));
    }
  }
  return found;
}

}  // namespace

TrainingLog::TrainingLog(std::filesystem::path path, int64_t from_step, int64_t rank)
    : path_(std::move(path)), writes_(rank == 0) {
  if (!writes_) return;
  struct stat info {};
  FoundLog found;
  const bool is_there = ::stat(path_.c_str(), &info) == 0;
  if (is_there) {
    found = read_found_log(kTrainingLog, path_);
    rows_ = std::move(found.rows);
    std::erase_if(rows_, [&](const LogRow& row) { return row.step > from_step; });
    for (const auto& line : found.damaged)
      remarks_.push_back(fmt::format("{}: dropped {}", path_.string(), line));
  }
  const bool json = is_json(path_);
  std::string text = json ? "" : std::string(kHeader) + '\n';
  for (const auto& row : rows_) text += to_line(row, json);
  if (is_there && text == found.text) return;
  try {
    write_file(path_, text);
  } catch (const std::system_error& error) {
    fail_training_log(path_, error.what());
  }
}

void TrainingLog::add(const LogRow& row) {
  rows_.push_back(row);
  if (!writes_) return;
  const auto line = to_line(row, is_json(path_));
  // Without O_NONBLOCK, opening a pipe with this name would wait for a reader.
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) fail_training_log(path_, "cannot open: " + std::generic_category().message(errno));
  const auto written = ::write(file, line.data(), line.size());
  const int reason = errno;
  ::close(file);
  if (written < 0) fail_training_log(path_, "cannot write: " + std::generic_category().message(reason));
  if (written != static_cast<ssize_t>(line.size()))
    fail_training_log(path_, "cannot write: only part of a line reached the disk");
}

std::vector<LogRow> read_log(const std::filesystem::path& path) {
  return read_found_log("read_log", path).rows;
}

namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 40, kBottom = 50;
constexpr size_t kMostPoints = 1000;

struct Point {
  double step, loss;
};

// A round distance for at most about six ticks: 1, 2 or 5 times a power of ten.
double tick_distance(double span) {
  const double rough = span / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Axes {
 public:
  Axes(const std::vector<Point>& a, const std::vector<Point>& b) {
    for (const auto* points : {&a, &b}) {
      for (const auto& p : *points) {
        last_ = std::max(last_, p.step);
        low_ = std::min(low_, p.loss);
        high_ = std::max(high_, p.loss);
      }
    }
    if (low_ > high_) low_ = 0, high_ = 1;  // no points
    if (high_ - low_ < 1e-6) low_ -= 0.5, high_ += 0.5;
  }

  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / last_; }
  double y(double loss) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (loss - low_) / (high_ - low_);
  }

  std::string svg() const {
    std::string out;
    const double dy = tick_distance(high_ - low_);
    for (double v = std::ceil(low_ / dy) * dy; v <= high_ + 1e-9; v += dy) {
      out += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
          "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
          kLeft, kWidth - kRight, y(v), kLeft - 8, y(v) + 4, std::abs(v) < dy * 1e-6 ? 0.0 : v);
    }
    const double dx = std::max(1.0, tick_distance(last_));
    for (double s = 0; s <= last_ + 1e-9; s += dx) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(s),
                         kHeight - kBottom + 18, s);
    }
    return out + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
                             (kLeft + kWidth - kRight) / 2, kHeight - 12);
  }

 private:
  double last_ = 1, low_ = INFINITY, high_ = -INFINITY;
};

// Reduces the number of points for a picture: each remaining point is the mean of a run of rows.
std::vector<Point> thinned(const std::vector<Point>& points) {
  const size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return points;
  std::vector<Point> out;
  for (size_t i = 0; i < points.size(); i += group) {
    const size_t end = std::min(points.size(), i + group);
    Point mean{0, 0};
    for (size_t k = i; k < end; ++k) mean.step += points[k].step, mean.loss += points[k].loss;
    const auto count = static_cast<double>(end - i);
    out.push_back({mean.step / count, mean.loss / count});
  }
  return out;
}

std::string polyline(const std::vector<Point>& points, const Axes& axes, const char* style) {
  std::string out = fmt::format("<polyline class=\"{}\" points=\"", style);
  for (const auto& p : points) out += fmt::format("{:.1f},{:.1f} ", axes.x(p.step), axes.y(p.loss));
  return out + "\"/>\n";
}

}  // namespace

std::string loss_curve_svg(const std::vector<LogRow>& rows, const std::string& title) {
  std::vector<Point> training, validation;
  for (const auto& row : rows) {
    const auto step = static_cast<double>(row.step);
    if (std::isfinite(row.loss)) training.push_back({step, row.loss});
    if (row.validation_loss && std::isfinite(*row.validation_loss))
      validation.push_back({step, *row.validation_loss});
  }
  training = thinned(training);
  const Axes axes(training, validation);
  auto svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>text{{fill:#777}} .grid{{stroke:#999;stroke-opacity:.35}} polyline{{fill:none}} "
      ".training{{stroke:#4a90d9;stroke-width:1.2}} .validation{{stroke:#d9734a;stroke-width:2}} "
      "circle{{fill:#d9734a}}</style>\n",
      kWidth, kHeight);
  svg += fmt::format("<text x=\"{}\" y=\"20\" font-size=\"14\">{}</text>\n", kLeft, xml_text(title));
  svg += axes.svg() + polyline(training, axes, "training") + polyline(validation, axes, "validation");
  for (const auto& p : validation) {
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>step {:.0f}: {:.4f}</title></circle>\n",
        axes.x(p.step), axes.y(p.loss), p.step, p.loss);
  }
  svg += fmt::format(
      "<polyline class=\"training\" points=\"{0},16 {1},16\"/><text x=\"{2}\" y=\"20\">training</text>\n"
      "<polyline class=\"validation\" points=\"{3},16 {4},16\"/><text x=\"{5}\" "
      "y=\"20\">validation{6}</text>\n",
      kWidth - 270, kWidth - 250, kWidth - 245, kWidth - 180, kWidth - 160, kWidth - 155,
      validation.empty() ? "" : fmt::format(" {:.4f}", validation.back().loss));
  return svg + "</svg>\n";
}

void save_loss_curve(const std::filesystem::path& path, const std::vector<LogRow>& rows,
                     const std::string& title) {
  try {
    write_file(path, loss_curve_svg(rows, title));
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "save_loss_curve: ", path.string(), ": ", error.what());
  }
}

namespace {

constexpr int64_t kLongestBar = 20;
constexpr int64_t kShortestBar = 4;
constexpr int64_t kUsualColumns = 80;
// Leaves room for ^C, and keeps the last column free, because some terminals wrap as soon as it is written.
constexpr int64_t kSpareColumns = 3;
constexpr auto kRedraw = std::chrono::milliseconds(100);

// Formats a duration: "0:47", "12:05" or "3:07:09".
std::string clock_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e9));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// The width is queried at each draw, because a window may be resized. Some terminals, such as new
// pseudo-terminals, report 0.
int64_t columns_of(std::FILE* stream) {
  winsize size{};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

std::string draw_bar(double part, int64_t length) {
  const auto filled =
      std::clamp(static_cast<int64_t>(part * static_cast<double>(length)), int64_t{0}, length);
  return '[' + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(length - filled), '-') + ']';
}

// A part of the line. If the parts do not all fit, the one with the highest rank is dropped first.
struct Word {
  int rank;
  std::string text;
};

std::string join(const std::vector<Word>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word.text;
  return line;
}

int64_t room_beside(const std::vector<Word>& words, int64_t columns) {
  return columns - static_cast<int64_t>(join(words).size());
}

void check_stream(const std::FILE* stream) {
  TORCH_CHECK_VALUE(stream, "Progress: expected a stream, got none");
}

}  // namespace

Progress::Progress(std::FILE* stream, int64_t total, int64_t first, int64_t plain_every)
    : stream_((check_stream(stream), stream)),
      terminal_(::isatty(::fileno(stream)) == 1),
      total_(total),
      first_(first),
      plain_every_(std::max<int64_t>(plain_every, 1)),
      start_(std::chrono::steady_clock::now()),
      last_(start_ - kRedraw) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stream_);
}

std::string Progress::format(const LogRow& row, int64_t total, double seconds_left, bool bar,
                             int64_t columns) {
  const double part = total > 0 ? static_cast<double>(row.step) / static_cast<double>(total) : 1.0;
  std::vector<Word> words{{0, fmt::format("{:3.0f}%", std::floor(100 * part))},
                          {1, fmt::format("{}/{}", row.step, total)},
                          {2, fmt::format("loss {:.4f}", row.loss)}};
  if (row.validation_loss) words.push_back({3, fmt::format("val {:.4f}", *row.validation_loss)});
  words.push_back({5, fmt::format("{:.0f} tok/s", row.tokens_per_second)});
  words.push_back({4, "ETA " + clock_time(seconds_left)});
  while (words.size() > 1 && room_beside(words, columns) < 0) {
    words.erase(std::ranges::max_element(words, {}, &Word::rank));
  }
  constexpr int64_t frame = 3;  // two brackets and a space
  const auto length = std::min(room_beside(words, columns) - frame, kLongestBar);
  if (bar && length >= kShortestBar) words.insert(words.begin() + 1, {6, draw_bar(part, length)});
  return join(words).substr(0, static_cast<size_t>(std::max<int64_t>(columns, 0)));
}

void Progress::show(const LogRow& row) {
  if (row.validation_loss) validation_ = row.validation_loss;
  const auto now = std::chrono::steady_clock::now();
  const bool last = row.step >= total_;
  if (terminal_ ? now - last_ < kRedraw && !last : row.step % plain_every_ != 0 && !last) return;
  last_ = now;
  auto shown = row;
  shown.validation_loss = validation_;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto step = static_cast<double>(row.step);
  const double done = std::max(step - static_cast<double>(first_), 1.0);
  const double left = elapsed / done * (static_cast<double>(total_) - step);
  if (terminal_) {
    const auto line = format(shown, total_, left, true, columns_of(stream_) - kSpareColumns);
    std::fprintf(stream_, "\r\033[K%s", line.c_str());
    drawn_ = true;
  } else {
    std::fprintf(stream_, "%s\n", format(shown, total_, left, false).c_str());
  }
  std::fflush(stream_);
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stream_);
  drawn_ = false;
}

void Progress::note(const std::string& text) {
  clear();
  std::fprintf(stream_, "%s\n", text.c_str());
  std::fflush(stream_);
}

}  // namespace attentive
