#include <stdexcept>
#include <thread>

#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "support/compare.h"

using namespace attentive;

TEST_CASE("guards nest, fall back and give way to a forced backend", "[guard]") {
  const auto x = at::randn({1, 2, 4, 8});
  CHECK(BackendGuard::current() == Backend::Auto);
  {
    const BackendGuard guard(Backend::Reference);
    CHECK(explain(x, x, x).chosen == Backend::Reference);
    CHECK(explain(x, x, x, {.backend = Backend::Torch}).chosen == Backend::Torch);
    {
      const BackendGuard inner(Backend::Torch);
      CHECK(explain(x, x, x).chosen == Backend::Torch);
      CHECK(explain(x, x, x, {.softcap = 1.0}).chosen != Backend::Torch);
    }
    CHECK(BackendGuard::current() == Backend::Reference);
  }
  CHECK(BackendGuard::current() == Backend::Auto);
  const DropoutStreamGuard stream(DropoutStream::Aten);
  CHECK(DropoutStreamGuard::current() == DropoutStream::Aten);
  at::manual_seed(8);
  const auto guarded = attention(x, x, x, {.dropout_p = 0.5});
  at::manual_seed(8);
  CHECK(bit_equal(attention(x, x, x, {.dropout_p = 0.5, .dropout_stream = DropoutStream::Aten}), guarded));
}

TEST_CASE("guards are of one thread", "[guard]") {
  const BackendGuard backend(Backend::Reference);
  const DropoutStreamGuard stream(DropoutStream::Counter);
  Backend other_backend = Backend::Native;
  DropoutStream other_stream = DropoutStream::Aten;
  std::thread([&] {
    other_backend = BackendGuard::current();
    other_stream = DropoutStreamGuard::current();
    const BackendGuard thread_guard(Backend::Torch);
  }).join();
  CHECK(other_backend == Backend::Auto);
  CHECK(other_stream == DropoutStream::Any);
  CHECK(BackendGuard::current() == Backend::Reference);
}

TEST_CASE("an exception takes guards back", "[guard]") {
  const BackendGuard backend(Backend::Torch);
  try {
    const BackendGuard inner(Backend::Reference);
    const DropoutStreamGuard stream(DropoutStream::Counter);
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  CHECK(BackendGuard::current() == Backend::Torch);
  CHECK(DropoutStreamGuard::current() == DropoutStream::Any);
}

TEST_CASE("a stream that the options name outweighs the guard", "[guard]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto drop = [&](DropoutStream stream) {
    at::manual_seed(8);
    return attention(x, x, x, {.dropout_p = 0.5, .dropout_stream = stream, .backend = Backend::Reference});
  };
  const auto counter = drop(DropoutStream::Counter), aten = drop(DropoutStream::Aten);
  CHECK_FALSE(bit_equal(counter, aten));
  const DropoutStreamGuard guard(DropoutStream::Aten);
  CHECK(bit_equal(drop(DropoutStream::Counter), counter));
  CHECK(bit_equal(drop(DropoutStream::Any), aten));
}
