#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <sstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

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

}  // namespace attentive
