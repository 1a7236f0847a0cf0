#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/attention.h>

#include "core/memory.h"

using namespace attentive;

namespace {

constexpr int64_t kMillion = int64_t{1} << 20;

// Whether the system was asked for large pages where this address lies (smaps: "VmFlags: rd wr ... hg").
bool asked_for_large_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("VmFlags:")) return (line + " ").find(" hg ") != std::string::npos;
  }
  return false;
}

// The middle of a tensor's memory; its ends may share pages with other memory.
const void* middle_of(const at::Tensor& x) {
  return static_cast<const char*>(x.const_data_ptr()) + x.nbytes() / 2;
}

void skip_without_large_pages() {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"))
    SKIP("this system has no transparent large pages");
}

}  // namespace

TEST_CASE("a new tensor that the system gives asks for large pages, a smaller one does not",
          "[large_pages]") {
  skip_without_large_pages();
  const auto large = advise_huge_pages(at::empty({12 * kMillion}, at::kFloat)),
             small = advise_huge_pages(at::empty({2 * kMillion}, at::kFloat));
  CHECK(asked_for_large_pages(middle_of(large)));
  CHECK_FALSE(asked_for_large_pages(middle_of(small)));
}

TEST_CASE("asking for large pages keeps the contents, and memory below one page is left alone",
          "[large_pages]") {
  const auto numbers = at::arange(12 * kMillion), expected = at::arange(12 * kMillion);
  advise_huge_pages_at(numbers.mutable_data_ptr(), numbers.nbytes());
  CHECK(at::equal(numbers, expected));
  std::vector<char> few(100, 'x');
  advise_huge_pages_at(few.data(), few.size());
  CHECK(few == std::vector<char>(100, 'x'));
}

TEST_CASE("the gradient of a large learned bias lies in large pages", "[large_pages]") {
  skip_without_large_pages();
  const auto q = at::randn({1, 9, 1024, 8});
  const auto bias = at::randn({9, 1024, 1024}).requires_grad_();
  attention(q, q, q, {.backend = Backend::Native}, Mask::per_head(Mask::bias(bias))).sum().backward();
  CHECK(asked_for_large_pages(middle_of(bias.grad())));
}
