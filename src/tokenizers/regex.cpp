#include "tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// A run of white space costs PCRE2's interpreter one step per byte. These limits admit texts of about 100 MB,
// and stop a pattern that tries every way to split a word after seconds.
constexpr uint32_t kMostSteps = 100'000'000;
constexpr uint32_t kMostHeapKiB = 256 * 1024;
constexpr size_t kFirstStack = 32 * 1024;
constexpr size_t kMostStack = 16 * 1024 * 1024;

}  // namespace

// These types need linkage because Regex::Compiled has members of them.
namespace pcre2 {

template <auto Free>
struct FreeBy {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

using Code = std::unique_ptr<pcre2_code, FreeBy<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeBy<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeBy<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeBy<pcre2_match_data_free>>;
using Stack = std::unique_ptr<pcre2_jit_stack, FreeBy<pcre2_jit_stack_free>>;

}  // namespace pcre2

namespace {

using namespace pcre2;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Machine code from PCRE2 runs on its own stack; each thread has one.
pcre2_jit_stack* stack_of_this_thread(void*) {
  thread_local const Stack stack(pcre2_jit_stack_create(kFirstStack, kMostStack, nullptr));
  return stack.get();
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct Regex::Compiled {
  Code code;
  MatchContext context;

  // Searches once and returns PCRE2's return code.
  int search(std::string_view text, size_t from, pcre2_match_data* data) const {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code.get(), bytes_of(text), text.size(), from, options | PCRE2_NO_UTF_CHECK, data,
                         context.get());
    };
    const int result = run(0);
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : result;
  }
};

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  const std::string translated = to_pcre2(pattern);
  const CompileContext compile(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t place = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(bytes_of(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                     &place, compile.get()));
  if (!compiled->code) refuse("the regular expression {} does not compile: {}", pattern, message_of(error));
  (void)pcre2_jit_compile(compiled->code.get(),
                          PCRE2_JIT_COMPLETE);  // without effect where PCRE2 has no compiler for the CPU

  compiled->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled->context.get(), kMostSteps);
  pcre2_set_heap_limit(compiled->context.get(), kMostHeapKiB);
  pcre2_jit_stack_assign(compiled->context.get(), stack_of_this_thread, nullptr);
  compiled_ = std::move(compiled);
}

void Regex::find_all(std::string_view text, const VisitMatch& visit) const {
  const MatchData data(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  size_t end_of_last = std::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    const int result = compiled_->search(text, from, data.get());
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      refuse("the regular expression {} gave up at byte {}: {}", pattern_, from, message_of(result));
    const size_t* const place = pcre2_get_ovector_pointer(data.get());
    const size_t begin = place[0], end = place[1];
    if (begin == end && end == end_of_last) {
      if (from == text.size()) return;
      (void)next_char(text, from);
      continue;
    }
    visit(begin, end);
    from = end_of_last = end;
  }
}

}  // namespace attentive::tokenizers
