#include "distributed/failure_detector.h"

#include <future>
#include <thread>

#include <fmt/format.h>

#include "distributed/process_effects.h"

namespace attentive::distributed {
namespace {

using c10d_internals::KeyStore;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kAnswer{500};  // a living process answers within this time
constexpr milliseconds kHeard{400};   // the verdict reaches a living process within this time
constexpr milliseconds kLeave{5000};  // the serving process waits at most this long for the others to leave
constexpr milliseconds kClosing{20};  // the store notices within this time that a connection was closed
constexpr milliseconds kPause{5};     // between two queries of the store
constexpr milliseconds kLong{3600 * 1000};  // the answering thread waits forever, in pieces of this length

std::string key(const char* what, int64_t rank) {
  return fmt::format("{}/{}", what, rank);
}

std::string packed(const Blame& verdict) {
  return fmt::format("{} {}", verdict.rank, verdict.line);
}

Blame unpacked(const std::string& text) {
  const auto space = text.find(' ');
  return {std::stoll(text.substr(0, space)), text.substr(space + 1)};
}

}  // namespace

bool is_timeout(const std::string& message) {
  // "imed", because Gloo and c10d write both "timed out" and "Timed out".
  return message.find("imed out") != std::string::npos ||        // Gloo's words, and ours over NCCL
         message.find("timeout caused") != std::string::npos ||  // Gloo's, of a call after one that timed out
         message.find("timing out") != std::string::npos;        // c10d's own calls over NCCL
}

// The state shared with the threads, which may outlive the object if a call does not return.
struct FailureDetector::State {
  Place place;
  KeyStore store;  // for the thread that calls the object
  std::atomic<int64_t> calls{0};
  std::atomic<bool> over{false};
  std::future<void> answering;
  mutable std::mutex mutex;
  std::optional<Blame> verdict;

  State(Place given, Deadline end) : place(std::move(given)), store(place.store, false, end) {
    store.set_limit(kLong);  // each call runs in a thread that may be left behind
  }

  std::optional<Blame> known() const {
    const std::lock_guard lock(mutex);
    return verdict;
  }

  void learn(const Blame& news) {
    const std::lock_guard lock(mutex);
    if (!verdict) verdict = news;
  }

  // The body of the thread that answers: sleeps until this process is asked, answers, and waits for the
  // verdict.
  void answer(KeyStore& thread_store) {
    while (!thread_store.wait(key("wake", place.rank), kLong)) {
    }
    if (over) return;
    thread_store.set(key("here", place.rank), std::to_string(calls.load()));
    if (!thread_store.wait("verdict", 2 * kAnswer)) return;
    learn(unpacked(*thread_store.find("verdict")));
    thread_store.set(key("heard", place.rank), "");
  }

  void wake_all() {
    for (int64_t rank = 0; rank < place.size; ++rank) store.set(key("wake", rank), "");
  }

  // Publishes `proposal` as the group's verdict unless there is one already; returns the verdict.
  Blame settle(const Blame& proposal) {
    const auto settled = unpacked(store.set_first("verdict", packed(proposal)));
    learn(settled);
    wake_all();
    return settled;
  }

  // This process's end ends the store, so the living processes must have read the verdict before.
  void wait_until_heard(int64_t blamed) {
    const auto end = Clock::now() + kHeard;
    for (int64_t rank = 0; rank < place.size; ++rank) {
      if (rank == blamed || rank == place.rank) continue;
      while (!store.find(key("heard", rank)) && !store.find(key("left", rank)) && Clock::now() < end) {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  // The reason why another process counts as missing; nothing if it has made as many calls as this one.
  // `waited`: it has had time to answer. `late`: the failed call has timed out.
  std::optional<std::string> fault(int64_t rank, bool waited, bool late) {
    if (store.find(key("left", rank)))
      return "has left the group: its Group was destroyed while this one was in use";
    const auto answer = store.find(key("here", rank));
    if (!answer) {
      if (!waited) return std::nullopt;
      return fmt::format("is gone or stopped: it has not answered for {} ms", kAnswer.count());
    }
    if (!late || std::stoll(*answer) >= calls) return std::nullopt;
    return fmt::format("is there, but has not come to this call: it has made {} calls, this process {}",
                       *answer, calls.load());
  }

  Blame find_missing(const std::string& message) {
    const bool late = is_timeout(message);
    if (const auto settled = store.find("verdict")) return unpacked(*settled);
    std::this_thread::sleep_for(kClosing);  // c10d's server warns of messages to a process just closing
    wake_all();
    const auto end = Clock::now() + kAnswer;
    bool waited = false;
    while (true) {
      if (const auto settled = store.find("verdict")) return unpacked(*settled);
      bool all = true;
      for (int64_t rank = 0; rank < place.size; ++rank) {
        if (rank == place.rank) continue;
        if (const auto reason = fault(rank, waited, waited && late)) {
          return settle({rank, place.members[rank] + " " + *reason});
        }
        all = all && store.find(key("here", rank)).has_value();
      }
      if (waited) break;
      waited = all || Clock::now() >= end;
      if (!waited) std::this_thread::sleep_for(kPause);
    }
    return settle({place.rank, place.members[place.rank] + " failed: " + message});
  }
};

FailureDetector::FailureDetector(Place place, Deadline end)
    : state_(std::make_shared<State>(std::move(place), end)) {
  auto store = std::make_shared<KeyStore>(state_->place.store, false, end);
  store->set_limit(kLong);
  std::promise<void> done;
  state_->answering = done.get_future();
  std::thread([state = state_, store, done = std::move(done)]() mutable {
    try {
      state->answer(*store);
    } catch (const std::exception&) {  // the store is gone; callers of ask() notice that themselves
    }
    store.reset();
    done.set_value_at_thread_exit();
  }).detach();
}

FailureDetector::~FailureDetector() {
  state_->over = true;
  if (known()) return;
  within_limit(
      [state = state_]() -> Blame {
        auto& place = state->place;
        state->store.set(key("wake", place.rank), "");  // ends the answering thread
        state->store.set(key("left", place.rank), "");
        const auto end = Clock::now() + kLeave;
        for (int64_t rank = 0; place.serves && rank < place.size; ++rank) {
          while (!state->store.find(key("left", rank)) && Clock::now() < end && !state->known()) {
            std::this_thread::sleep_for(kPause);
          }
        }
        state->answering.wait_for(kAnswer);
        return {};
      },
      kLeave + 2 * kAnswer);
  if (state_->answering.wait_for(milliseconds(0)) != std::future_status::ready) exit_at_once();
}

void FailureDetector::begin_call() {
  ++state_->calls;
}

std::optional<Blame> FailureDetector::known() const {
  return state_->known();
}

Blame FailureDetector::ask(const std::string& message) {
  if (const auto verdict = known()) return *verdict;
  return within_limit([state = state_, message] { return state->find_missing(message); },
                      kClosing + kAnswer + kHeard + 20 * kPause);
}

void FailureDetector::spread() {
  const auto verdict = known();
  if (!verdict || !state_->place.serves) return;
  within_limit(
      [state = state_, verdict = *verdict] {
        state->wait_until_heard(verdict.rank);
        return verdict;
      },
      kHeard + 20 * kPause);
}

void FailureDetector::blame_self(const std::string& reason) {
  if (known()) return;
  const auto& place = state_->place;
  within_limit(
      [state = state_, blame = Blame{place.rank, place.members[place.rank] + " failed: " + reason}] {
        return state->settle(blame);
      },
      kAnswer);
}

// Runs `work` in a thread that may be left behind: it calls the store, whose calls never return if the
// serving process is stopped.
Blame FailureDetector::within_limit(std::function<Blame()> work, milliseconds limit) {
  std::promise<Blame> promise;
  auto result = promise.get_future();
  std::thread([promise = std::move(promise), work = std::move(work)]() mutable {
    try {
      promise.set_value_at_thread_exit(work());
    } catch (...) {
      promise.set_exception_at_thread_exit(std::current_exception());
    }
  }).detach();
  const auto& place = state_->place;
  const char* symptom = "does not answer";
  try {
    if (result.wait_for(limit) == std::future_status::ready) return result.get();
  } catch (const std::exception&) {
    symptom = "is gone";
  }
  if (const auto verdict = known()) return *verdict;  // the verdict arrived before the store disappeared
  Blame verdict{place.serves ? place.rank : 0, ""};
  if (place.serves) {
    verdict.line = fmt::format("{} cannot reach its own store", place.members[0]);
  } else if (!place.agent_serves) {
    verdict.line =
        fmt::format("{} is gone or stopped: its store at {} {}", place.members[0], place.store_name, symptom);
  } else {
    verdict = {-1, fmt::format("torchrun's store at {} {}", place.store_name, symptom)};
  }
  state_->learn(verdict);
  return verdict;
}

}  // namespace attentive::distributed
