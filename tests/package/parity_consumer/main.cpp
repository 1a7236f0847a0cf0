// A user's program that runs a case and detects a wrong number in it.

#include <cstdio>

#include <attentive/parity/case.h>
#include <attentive/parity/compare.h>

int main() {
  auto parity_case = attentive::read_case(CASES "#MultiHeadAttention-notebook");
  const auto right = attentive::run_case(parity_case);
  const auto want = parity_case.expected_output.clone();
  parity_case.expected_output += 1e-3;
  const auto wrong = attentive::run_case(parity_case);
  const auto why = attentive::difference(parity_case.expected_output, want);
  std::printf("%zu tensors agree; changed: %s; dropout stream: %s\n", right.tensors.size(), why.c_str(),
              attentive::dropout_stream_of_this_cpu().c_str());
  return right.passed() && !wrong.passed() && !why.empty() ? 0 : 1;
}
