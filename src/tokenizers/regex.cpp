#include "tokenizers/regex.h"

#include <array>
#include <vector>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

// These members of character classes were each compared with Oniguruma for every character. PCRE2's own \s
// also holds U+180E, and its \w holds all numbers but no marks; Oniguruma's \w also holds the fractions and
// superscripts of Latin-1, and letters in circles and squares.
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})"
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kDigit = R"(\p{Nd})";

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    while (!rest_.empty()) element();
    return out_;
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char take_char() {
    if (rest_.empty()) refuse("the regular expression ends too early");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  [[noreturn]] static void unsupported(std::string_view what) {
    refuse("{} in a regular expression is not supported", what);
  }

  void element() {
    const char c = rest_.front();
    if (c != '\\' && !is_letter(c)) last_letter_ = 0;
    switch (c) {
      case '\\':
        rest_.remove_prefix(1);
        return escape(/*in_class=*/false);
      case '[':
        return char_class();
      case '(':
        return group();
      case ')':
        if (caseless_.empty()) refuse("the regular expression has a ) too many");
        caseless_.pop_back();
        break;
      case '{':
        return repeat();
      case '^':
      case '$':
        unsupported(std::string("the anchor ") + c);
      default:
        literal(c);
    }
    out_ += take_char();
  }

  // In caseless matching, Oniguruma also matches one character with the two characters to which it folds.
  void literal(char c) {
    if (caseless_.empty() || !caseless_.back()) return;
    const bool folds = static_cast<unsigned char>(c) >= 0x80 ||
                       (last_letter_ == 's' && (c == 's' || c == 't')) ||
                       (last_letter_ == 'f' && (c == 'f' || c == 'i' || c == 'l'));
    if (folds || (c >= 'A' && c <= 'Z')) unsupported("what follows (?i:");
    last_letter_ = is_letter(c) ? c : '\0';
  }

  void group() {
    bool caseless = !caseless_.empty() && caseless_.back();
    rest_.remove_prefix(1);
    if (rest_.starts_with('*')) unsupported("(*");
    if (rest_.starts_with('?')) {
      static constexpr std::array<std::string_view, 7> kKinds = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:"};
      for (const auto kind : kKinds) {
        if (!take(kind)) continue;
        caseless = caseless || kind == "?i:";
        caseless_.push_back(caseless);
        out_ += '(';
        out_ += kind;
        return;
      }
      unsupported("(" + std::string(rest_.substr(0, 2)));
    }
    caseless_.push_back(caseless);
    out_ += '(';
  }

  // Translates {n}, {n,} or {n,m}; a character such as + after it has different meanings in the two
  // libraries.
  void repeat() {
    const auto end = rest_.find('}');
    const auto inside = rest_.substr(1, end == rest_.npos ? rest_.npos : end - 1);
    const bool valid = end != rest_.npos && !inside.empty() && is_digit(inside.front()) &&
                       inside.find_first_not_of("0123456789,") == inside.npos &&
                       inside.find(',') == inside.rfind(',');
    if (!valid) unsupported("a { that is no repetition");
    out_ += rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    if (rest_.starts_with('+') || rest_.starts_with('?')) unsupported("a repetition after }");
  }

  void char_class() {
    out_ += take_char();
    if (take("^")) out_ += '^';
    if (rest_.starts_with(']')) unsupported("a class that begins with ]");
    while (!take("]")) {
      const char c = take_char();
      if (c == '[') unsupported("a class within a class");
      if (c == '&' && rest_.starts_with('&')) unsupported("&& in a class");
      if (c == '\\') {
        escape(/*in_class=*/true);
      } else {
        out_ += c;
      }
    }
    out_ += ']';
  }

  void escape(bool in_class) {
    const char c = take_char();
    last_letter_ = 0;
    switch (c) {
      case 's':
        return members(kSpace, in_class, false);
      case 'S':
        return members(kSpace, in_class, true);
      case 'w':
        return members(kWord, in_class, false);
      case 'W':
        return members(kWord, in_class, true);
      case 'd':
        return members(kDigit, in_class, false);
      case 'D':
        return members(kDigit, in_class, true);
      case 'p':
      case 'P':
        return property(c);
      case 'v':
        out_ += R"(\x{B})";
        return;
      case 'u':
      case 'x':
        return code_point(c);
      case 'n':
      case 'r':
      case 't':
      case 'f':
        break;
      default:
        if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80) {
          unsupported(std::string("\\") + (static_cast<unsigned char>(c) < 0x80 ? std::string(1, c) : "?"));
        }
    }
    out_ += '\\';
    out_ += c;
  }

  void members(std::string_view set, bool in_class, bool negated) {
    if (in_class && negated) unsupported("\\S, \\W or \\D within a class");
    if (in_class) {
      out_ += set;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += set;
      out_ += ']';
    }
  }

  // Translates a general category such as L or Lu, or a script such as Han.
  void property(char p) {
    if (!take("{")) unsupported("\\p without {}");
    std::string name;
    while (!take("}")) {
      const char c = take_char();
      if (!is_letter(c) && c != '_') unsupported("a property with a sign in it");
      name += c;
    }
    out_ += '\\';
    out_ += p;
    out_ += name.size() <= 2 ? "{" + name + "}" : "{sc:" + name + "}";
  }

  // Translates \xHH, \x{H...} or \uHHHH. Oniguruma's \xHH above 7F is a byte, not a character.
  void code_point(char kind) {
    std::string digits;
    if (kind == 'x' && take("{")) {
      while (!take("}")) digits += take_char();
    } else {
      while (digits.size() < (kind == 'x' ? 2U : 4U)) digits += take_char();
      if (kind == 'x' && digits > "7f" && digits > "7F") unsupported("\\x of a byte");
    }
    if (digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      unsupported(std::string("\\") + kind + " without hexadecimal digits");
    }
    out_ += "\\x{" + digits + "}";
  }

  std::string_view rest_;
  std::string out_;
  std::vector<bool> caseless_;  // whether each open group ignores case
  char last_letter_ = 0;
};

}  // namespace

std::string to_pcre2(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace attentive::tokenizers

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

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
