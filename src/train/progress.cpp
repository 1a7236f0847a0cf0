#include <algorithm>
#include <cmath>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/progress.h>

namespace attentive {
namespace {

constexpr int64_t kBar = 20;
constexpr auto kRedraw = std::chrono::milliseconds(100);

// "0:47", "12:05" or "3:07:09".
std::string clock_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e9));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
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

std::string Progress::format(const LogRow& row, int64_t total, double seconds_left, bool bar) {
  const double part = total > 0 ? static_cast<double>(row.step) / static_cast<double>(total) : 1.0;
  const auto filled = static_cast<int64_t>(std::clamp(part, 0.0, 1.0) * kBar);
  const auto drawing = bar ? '[' + std::string(static_cast<size_t>(filled), '#') +
                                 std::string(static_cast<size_t>(kBar - filled), '-') + "] "
                           : std::string();
  const auto validation =
      row.validation_loss ? fmt::format(" val {:.4f}", *row.validation_loss) : std::string();
  return fmt::format("{:3.0f}% {}{}/{} loss {:.4f}{} {:.0f} tok/s ETA {}", std::floor(100 * part), drawing,
                     row.step, total, row.loss, validation, row.tokens_per_second, clock_time(seconds_left));
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
  const auto line = format(shown, total_, left, terminal_);
  if (terminal_) {
    std::fprintf(stream_, "\r\033[K%s", line.c_str());
    drawn_ = true;
  } else {
    std::fprintf(stream_, "%s\n", line.c_str());
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
