#include <chrono>
#include <stdexcept>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/c10d_backends.h"

using attentive::c10d_internals::Collectives;
using attentive::c10d_internals::wait_for_device;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

// A call on a device that completes after some queries.
class Call final : public c10d::Work {
 public:
  explicit Call(int64_t looks, std::exception_ptr error = nullptr) : looks_(looks) {
    exception_ = std::move(error);
  }
  bool isCompleted() override { return looks_-- <= 0; }
  void synchronize() override { synchronized_ = true; }
  bool synchronized() const { return synchronized_; }

 private:
  int64_t looks_;
  bool synchronized_ = false;
};

constexpr int64_t kNever = int64_t{1} << 60;

Collectives::Options options(std::chrono::milliseconds timeout) {
  Collectives::Options made;
  made.device = at::Device(at::kCUDA, 1);
  made.timeout = timeout;
  return made;
}

}  // namespace

TEST_CASE("a call on a device is waited for until it is done", "[distributed]") {
  for (const int64_t looks : {0, 1, 3000}) {
    Call call(looks);
    wait_for_device(call, options(std::chrono::minutes(10)));
    CHECK(call.synchronized());
  }
}

TEST_CASE("a call on a device that does not end is late", "[distributed][faults]") {
  Call call(kNever);
  const auto since = std::chrono::steady_clock::now();
  CHECK_THROWS_MATCHES(wait_for_device(call, options(std::chrono::milliseconds(200))), c10::Error,
                       MessageMatches(ContainsSubstring("timed out after 200 ms on cuda:1")));
  CHECK(std::chrono::steady_clock::now() - since >= std::chrono::milliseconds(200));
  CHECK(!call.synchronized());
}

TEST_CASE("the error of a call on a device is thrown", "[distributed][faults]") {
  Call call(1, std::make_exception_ptr(std::runtime_error("remote process has failed")));
  CHECK_THROWS_MATCHES(wait_for_device(call, options(std::chrono::minutes(10))), std::runtime_error,
                       MessageMatches(ContainsSubstring("remote process has failed")));
  CHECK(!call.synchronized());
}
