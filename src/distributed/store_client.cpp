#include "distributed/store_client.h"

#include <algorithm>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace attentive::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The request codes of c10d's TCPStore. torchrun's server may belong to another release than LibTorch; codes
// keep their numbers between releases, and new requests get new numbers.
enum class Kind : uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  Size = 7,
  Remove = 8,
  CancelWait = 12,
  Ping = 13,
};
enum class Checked : uint8_t { Ready = 0, NotReady = 1 };
enum class Waited : uint8_t { Over = 0, Canceled = 1 };
constexpr uint32_t kMagic = 0x3C85F7CE;

// The least time for an attempt to connect; a shorter one would prove nothing.
constexpr milliseconds kAttempt{200};
constexpr milliseconds kBetweenAttempts{50};  // between two attempts to connect
// Reserved for the last calls at a deadline, such as the one that finds out which processes have come.
constexpr milliseconds kGrace{300};
constexpr uint64_t kLongest = 64ULL << 20;  // the most bytes of a value that a job's store may hold

}  // namespace

// The bytes of a request, as c10d's TCPStore reads them: a kind, numbers, and texts behind their lengths.
class StoreClient::Request {
 public:
  explicit Request(Kind kind) { *this << kind; }

  template <typename T>
  Request& operator<<(const T& part) {
    if constexpr (std::is_same_v<T, std::string>) {
      *this << static_cast<uint64_t>(part.size());
      bytes_ += part;
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      *this << static_cast<uint64_t>(part.size());
      for (const auto& text : part) *this << text;
    } else {
      static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
      bytes_.append(reinterpret_cast<const char*>(&part), sizeof part);
    }
    return *this;
  }

  void send(StoreClient& client) const { client.socket_.send(bytes_, client.end_of_call()); }

 private:
  std::string bytes_;
};

StoreClient::StoreClient(std::string host, uint16_t port, Deadline end)
    : host_(std::move(host)), port_(port), end_(end) {
  while (true) {
    try {
      socket_ = LimitedSocket(host_, port_, end_);
      greet();
      return;
    } catch (const StoreError& error) {  // the serving process may still come
      if (error.fault() == Fault::Foreign || Clock::now() + kBetweenAttempts + kAttempt >= end_) throw;
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

// Sends the same two messages with which c10d's client begins. The answer to the second one repeats its
// number, which proves that the server is a store.
void StoreClient::greet() {
  const auto nonce = static_cast<uint32_t>(::getpid());
  (Request(Kind::Validate) << kMagic).send(*this);
  (Request(Kind::Ping) << nonce).send(*this);
  uint32_t answer = 0;
  socket_.receive(&answer, sizeof answer, end_);
  check_answer(answer == nonce);
}

void StoreClient::set_limit(milliseconds limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

Deadline StoreClient::end_of_call() const {
  const auto now = Clock::now();
  return limit_ ? now + *limit_ : std::max(end_, now + kGrace);
}

void StoreClient::check_answer(bool expected) const {
  if (!expected) throw StoreError(Fault::Foreign, "answers as no store does");
}

template <typename T>
T StoreClient::number() {
  T value{};
  socket_.receive(&value, sizeof value, end_of_call());
  return value;
}

std::string StoreClient::text() {
  const auto size = number<uint64_t>();
  check_answer(size <= kLongest);
  std::string value(size, '\0');
  socket_.receive(value.data(), value.size(), end_of_call());
  return value;
}

void StoreClient::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Set) << key << value).send(*this);
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& value) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::CompareSet) << key << expected << value).send(*this);
  return text();
}

std::string StoreClient::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Get) << key).send(*this);
  return text();
}

int64_t StoreClient::add(const std::string& key, int64_t number) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Add) << key << number).send(*this);
  return this->number<int64_t>();
}

bool StoreClient::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Remove) << key).send(*this);
  return number<int64_t>() == 1;
}

int64_t StoreClient::size() {
  const std::lock_guard lock(mutex_);
  Request(Kind::Size).send(*this);
  return number<int64_t>();
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Check) << keys).send(*this);
  const auto answer = number<Checked>();
  check_answer(answer == Checked::Ready || answer == Checked::NotReady);
  return answer == Checked::Ready;
}

bool StoreClient::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  (Request(Kind::Wait) << keys).send(*this);
  const auto until = Clock::now() + timeout;
  if (socket_.readable(limit_ ? until : std::min(until, end_))) {
    check_answer(number<Waited>() == Waited::Over);
    return true;
  }
  Request(Kind::CancelWait).send(*this);
  const auto answer = number<Waited>();
  if (answer == Waited::Canceled) return false;
  // The keys came just now: the store has answered both requests.
  check_answer(answer == Waited::Over);
  check_answer(number<Waited>() == Waited::Canceled);
  return true;
}

}  // namespace attentive::distributed
