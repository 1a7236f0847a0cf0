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

namespace attentive {
namespace {

constexpr const char* kTrainingLog = "TrainingLog";
constexpr const char* kHeader = "step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second";

bool is_json(const std::filesystem::path& path) {
  return path.extension() == ".jsonl";
}

// The shortest text that reads back as the same number; JSON has none for NaN and infinities.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string to_line(const LogRow& row, bool json) {
  if (json) {
    return fmt::format(
        R"({{"step": {}, "loss": {}, "validation_loss": {}, "learning_rate": {}, "gradient_norm": {}, )"
        R"("tokens_per_second": {}}})"
        "\n",
        row.step, json_number(row.loss), row.validation_loss ? json_number(*row.validation_loss) : "null",
        json_number(row.learning_rate), json_number(row.gradient_norm), json_number(row.tokens_per_second));
  }
  return fmt::format("{},{},{},{},{},{}\n", row.step, row.loss,
                     row.validation_loss ? fmt::format("{}", *row.validation_loss) : "", row.learning_rate,
                     row.gradient_norm, row.tokens_per_second);
}

std::optional<LogRow> parse_json(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer())
    return std::nullopt;
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  };
  return LogRow{object["step"].get<int64_t>(),
                number("loss").value_or(NAN),
                number("validation_loss"),
                number("learning_rate").value_or(NAN),
                number("gradient_norm").value_or(NAN),
                number("tokens_per_second").value_or(NAN)};
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
  if (cells.size() != 6 || cells[5].empty()) return std::nullopt;
  const auto* end = cells[0].data() + cells[0].size();
  const auto step = std::from_chars(cells[0].data(), end, row.step);
  if (step.ec != std::errc() || step.ptr != end) return std::nullopt;
  const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  row.loss = number(cells[1]);
  if (!cells[2].empty()) row.validation_loss = number(cells[2]);
  row.learning_rate = number(cells[3]);
  row.gradient_norm = number(cells[4]);
  row.tokens_per_second = number(cells[5]);
  return row;
}

[[noreturn]] void fail_training_log(const std::filesystem::path& path, const std::string& reason) {
  TORCH_CHECK_VALUE(false, kTrainingLog, ": ", path.string(), ": ", reason);
}

std::vector<LogRow> rows_of(const char* who, const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, who, ": ", error.what());
  }
  const bool json = is_json(path);
  std::vector<LogRow> rows;
  // A line without its newline was cut off by a kill: its last number may have lost digits.
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = text.substr(begin, end - begin);
    if (const auto row = json ? parse_json(line) : parse_csv(line)) rows.push_back(*row);
  }
  return rows;
}

}  // namespace

TrainingLog::TrainingLog(std::filesystem::path path, int64_t from_step, int64_t rank)
    : path_(std::move(path)), writes_(rank == 0) {
  if (!writes_) return;
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0) {
    rows_ = rows_of(kTrainingLog, path_);
    std::erase_if(rows_, [&](const LogRow& row) { return row.step > from_step; });
  }
  const bool json = is_json(path_);
  std::string text = json ? "" : std::string(kHeader) + '\n';
  for (const auto& row : rows_) text += to_line(row, json);
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
  // Without O_NONBLOCK, a pipe in the file's place would wait for a reader.
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
  return rows_of("read_log", path);
}

}  // namespace attentive
