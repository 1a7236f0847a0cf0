#include "distributed/limited_socket.h"

#include <algorithm>
#include <cerrno>
#include <future>
#include <limits>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace attentive::distributed {
namespace {

using Clock = std::chrono::steady_clock;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

std::string described(int error) {
  return std::generic_category().message(error);
}

std::vector<Address> look_up(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw StoreError(Fault::Unreachable,
                     fmt::format("the host {} is not known: {}", host, ::gai_strerror(error)));
  std::vector<Address> all;
  for (const auto* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address;
    address.size = entry->ai_addrlen;
    std::copy_n(reinterpret_cast<const char*>(entry->ai_addr), entry->ai_addrlen,
                reinterpret_cast<char*>(&address.bytes));
    all.push_back(address);
  }
  ::freeaddrinfo(found);
  return all;
}

// getaddrinfo can block for longer than the deadline if a name server does not answer; its thread is then
// left behind.
std::vector<Address> addresses_of(const std::string& host, uint16_t port, Deadline end) {
  std::packaged_task<std::vector<Address>()> task([host, port] { return look_up(host, port); });
  auto found = task.get_future();
  std::thread(std::move(task)).detach();
  if (found.wait_until(end) != std::future_status::ready)
    throw StoreError(Fault::Unreachable, fmt::format("the address of the host {} has not been found", host));
  return found.get();
}

}  // namespace

LimitedSocket::LimitedSocket(const std::string& host, uint16_t port, Deadline end) {
  int error = EHOSTUNREACH;
  const auto addresses = addresses_of(host, port, end);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto& address = addresses[i];
    LimitedSocket attempt;
    attempt.descriptor_ =
        ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (attempt.descriptor_ < 0) {
      error = errno;
      continue;
    }
    error = 0;
    if (::connect(attempt.descriptor_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) !=
        0) {
      error = errno;
      // Each address gets a share of the time, so that one that drops packets leaves time for the others.
      const auto now = Clock::now();
      const auto share = now + (end - now) / static_cast<int64_t>(addresses.size() - i);
      if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (!attempt.ready(POLLOUT, share)) {
          error = ETIMEDOUT;
        } else if (::getsockopt(attempt.descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
          error = errno;
        }
      }
    }
    if (error != 0) continue;
    const int on = 1;  // requests are short and wait for their answers
    ::setsockopt(attempt.descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *this = std::move(attempt);
    return;
  }
  throw StoreError(error == ECONNRESET ? Fault::Closed : Fault::Unreachable, described(error));
}

LimitedSocket::LimitedSocket(LimitedSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

LimitedSocket& LimitedSocket::operator=(LimitedSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

LimitedSocket::~LimitedSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool LimitedSocket::ready(short events, Deadline end) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd entry{descriptor_, events, 0};
    const int count =
        ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max())));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw StoreError(Fault::Closed, described(errno));
    if (count == 0 && Clock::now() >= end) return false;
  }
}

bool LimitedSocket::readable(Deadline end) const {
  return ready(POLLIN, end);
}

void LimitedSocket::send(const std::string& bytes, Deadline end) {
  for (size_t done = 0; done < bytes.size();) {
    const auto count = ::send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      if (!ready(POLLOUT, end)) throw StoreError(Fault::Silent, "does not answer");
    } else if (errno != EINTR) {
      throw StoreError(Fault::Closed, "has closed the connection");
    }
  }
}

void LimitedSocket::receive(void* bytes, size_t size, Deadline end) {
  for (size_t done = 0; done < size;) {
    const auto count = ::recv(descriptor_, static_cast<char*>(bytes) + done, size - done, 0);
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      if (!readable(end)) throw StoreError(Fault::Silent, "does not answer");
    } else if (count == 0 || errno != EINTR) {
      throw StoreError(Fault::Closed, "has closed the connection");
    }
  }
}

}  // namespace attentive::distributed
