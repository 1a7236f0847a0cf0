#include "tokenizers/batch.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

// The most texts that a thread takes at once: few enough that all threads finish at about the same time.
constexpr size_t kMostAtOnce = 32;

class TextQueue {
 public:
  TextQueue(size_t count, size_t threads, const std::function<void(size_t thread, size_t text)>& work)
      : count_(count), at_once_(std::clamp<size_t>(count / (8 * threads), 1, kMostAtOnce)), work_(work) {}

  // Takes texts in order until none is left. All texts before one that fails are therefore processed too, and
  // the first error is known.
  void run(size_t thread) {
    for (;;) {
      const size_t begin = next_.fetch_add(at_once_), end = std::min(begin + at_once_, count_);
      if (begin >= count_) return;
      for (size_t text = begin; text < end; ++text) {
        if (text > first_bad_) return;
        try {
          work_(thread, text);
        } catch (...) {
          report(text);
          return;
        }
      }
    }
  }

  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const Refusal& refusal) {
      refuse("texts[{}]: {}", first_bad_.load(), refusal.what());
    }
  }

 private:
  void report(size_t text) {
    const std::lock_guard lock(mutex_);
    if (text >= first_bad_) return;
    first_bad_ = text;
    error_ = std::current_exception();
  }

  size_t count_, at_once_;
  const std::function<void(size_t thread, size_t text)>& work_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> first_bad_{~size_t{0}};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void for_each_text(size_t count, size_t threads,
                   const std::function<void(size_t thread, size_t text)>& work) {
  threads = std::max<size_t>(1, std::min(threads, count));
  TextQueue queue(count, threads, work);
  std::vector<std::thread> others;
  try {
    others.reserve(threads - 1);
    while (others.size() + 1 < threads)
      others.emplace_back([&, thread = others.size() + 1] { queue.run(thread); });
  } catch (const std::system_error&) {  // the system refused a thread: those that run do the work
  }
  queue.run(0);
  for (auto& thread : others) thread.join();
  queue.rethrow();
}

}  // namespace attentive::tokenizers
