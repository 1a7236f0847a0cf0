#include <algorithm>
#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/progress.h>

namespace attentive {
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
