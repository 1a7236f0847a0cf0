#include "tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <array>
#include <cctype>
#include <pcre2.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// These members of character classes were each compared with Oniguruma for every character. PCRE2's own \s
// also holds U+180E, and its \w holds all numbers but no marks; Oniguruma's \w also holds letters in circles
// and squares, and outside of a class the fractions and superscripts of Latin-1.
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})"
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kWordOutside = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kDigit = R"(\p{Nd})";
constexpr int kDeepestClass = 16;  // classes in classes

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Translates a regular expression of Oniguruma, which Python's tokenizers use, to PCRE2's syntax with the
// same meaning. Syntax that differs between the two is rewritten (\s, \w, \d, \v, scripts); other syntax of
// Oniguruma's own throws a Refusal that names it: ^ and $, word boundaries, POSIX brackets, references,
// options other than (?i:...).
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
        return escaped_element();
      case '[':
        out_ += char_class(/*depth=*/1).expression();
        return;
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

  void escaped_element() {
    (void)take_char();
    if (rest_.starts_with('A') || rest_.starts_with('z')) return end_of_text();
    auto [means, text] = escape();
    const bool is_class = means == Means::Members || means == Means::AllBut;
    if (is_class && text == kWord) text += kWordOutside;
    out_ += is_class ? (means == Means::AllBut ? "[^" : "[") + text + "]" : text;
  }

  // The beginning or the end of the whole text; the libraries read repetitions of them differently.
  void end_of_text() {
    out_ += {'\\', take_char()};
    last_letter_ = 0;
    if (!rest_.empty() && std::string_view("*+?{").find(rest_.front()) != std::string_view::npos) {
      unsupported("a repetition of an anchor");
    }
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

  // An item stands for one character, for the members of a class (without brackets), for those of a
  // property, or for all characters but its members.
  enum class Means { Character, Members, Property, AllBut };
  struct Item {
    Means means;
    std::string text;
  };

  // Sets of characters, united: the members of one class, and expressions that match one character each.
  struct Union {
    std::string members;
    std::vector<std::string> others;

    bool empty() const { return members.empty() && others.empty(); }
    std::string expression() const {
      std::string all = members.empty() ? "" : "[" + members + "]";
      for (const auto& other : others) all += (all.empty() ? "" : "|") + other;
      return others.size() + !members.empty() == 1 ? all : "(?:" + all + ")";
    }
  };

  // A class holds the characters that are in all of its unions, or all others. PCRE2 has no such classes; a
  // look ahead expresses them.
  struct CharClass {
    bool negated = false;
    std::vector<Union> unions;

    std::string expression() const {
      if (unions.size() == 1 && unions[0].others.empty())
        return (negated ? "[^" : "[") + unions[0].members + "]";
      std::string all;
      for (size_t i = 0; i + 1 < unions.size(); ++i) all += "(?=" + unions[i].expression() + ")";
      all += unions.back().expression();
      return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
    }
  };

  CharClass char_class(int depth) {
    if (depth > kDeepestClass) unsupported("a class in so many others");
    (void)take_char();
    CharClass result;
    result.negated = take("^");
    if (rest_.starts_with(']')) unsupported("a class that begins with ]");
    Union set;
    enum { Start, Character, Range, Set } last = Start;
    const auto end_union = [&] {
      if (set.empty()) unsupported("a class with an empty side of &&");
      result.unions.push_back(std::exchange(set, {}));
      last = Start;
    };
    while (!take("]")) {
      if (take("&&")) {
        end_union();
      } else if (rest_.starts_with('[')) {
        if (rest_.starts_with("[:")) unsupported("a POSIX bracket");
        const auto inner = char_class(depth + 1);
        if (inner.negated || inner.unions.size() > 1) {
          set.others.push_back(inner.expression());
        } else {
          set.members += inner.unions[0].members;
          set.others.insert(set.others.end(), inner.unions[0].others.begin(), inner.unions[0].others.end());
        }
        last = Set;
      } else if (take("-")) {
        const bool is_range = last == Character && !rest_.starts_with(']') && !rest_.starts_with("&&");
        if (is_range) {
          const auto to = class_item();
          if (to.means != Means::Character) unsupported("a range that ends in a class");
          set.members += "-" + to.text;
          last = Range;
        } else {
          if (last != Start && !rest_.starts_with(']')) unsupported("a - behind a range or a class");
          set.members += "\\-";
          last = Set;
        }
      } else {
        const auto item = class_item();
        if (item.means == Means::AllBut) {
          set.others.push_back("[^" + item.text + "]");
        } else {
          set.members += item.text;
        }
        last = item.means == Means::Character ? Character : Set;
      }
    }
    end_union();
    return result;
  }

  Item class_item() {
    const char c = take_char();
    if (c == '\\') return escape();
    if (c == '[') unsupported("a range that ends in a class");
    std::string text(1, c);
    while (!rest_.empty() && (static_cast<unsigned char>(rest_.front()) & 0xC0) == 0x80) text += take_char();
    // A sign of PCRE2's own, such as the : of [:, is none behind a backslash.
    const bool is_sign = static_cast<unsigned char>(c) < 0x80 && std::ispunct(static_cast<unsigned char>(c));
    return {Means::Character, is_sign ? "\\" + text : text};
  }

  Item escape() {
    const char c = take_char();
    last_letter_ = 0;
    switch (c) {
      case 's':
        return {Means::Members, std::string(kSpace)};
      case 'S':
        return {Means::AllBut, std::string(kSpace)};
      case 'w':
        return {Means::Members, std::string(kWord)};
      case 'W':
        return {Means::AllBut, std::string(kWord)};
      case 'd':
        return {Means::Members, std::string(kDigit)};
      case 'D':
        return {Means::AllBut, std::string(kDigit)};
      case 'p':
      case 'P':
        return {Means::Property, property(c)};
      case 'v':
        return {Means::Character, R"(\x{B})"};
      case 'u':
      case 'x':
        return {Means::Character, code_point(c)};
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
    return {Means::Character, std::string("\\") + c};
  }

  // Translates a general category such as L or Lu, or a script such as Han.
  std::string property(char p) {
    if (!take("{")) unsupported("\\p without {}");
    std::string name;
    while (!take("}")) {
      const char c = take_char();
      if (!is_letter(c) && c != '_') unsupported("a property with a sign in it");
      name += c;
    }
    return std::string("\\") + p + (name.size() <= 2 ? "{" : "{sc:") + name + "}";
  }

  // Translates \xHH, \x{H...} or \uHHHH. Oniguruma's \xHH above 7F is a byte, not a character.
  std::string code_point(char kind) {
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
    return "\\x{" + digits + "}";
  }

  std::string_view rest_;
  std::string out_;
  std::vector<bool> caseless_;  // whether each open group ignores case
  char last_letter_ = 0;
};

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
  const std::string translated = Translator(pattern).run();
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

namespace {

constexpr size_t kLongestPattern = 1024;  // in bytes; a search may cost as much at each place of a text

// An empty string matches at both ends of every character.
void between_characters(std::string_view text, const VisitMatch& visit) {
  visit(0, 0);
  for (size_t offset = 0; offset < text.size();) {
    (void)next_char(text, offset);
    visit(offset, offset);
  }
}

}  // namespace

FindMatches matches_of(Regex regex) {
  return [regex = std::move(regex)](std::string_view text, const VisitMatch& visit) {
    regex.find_all(text, visit);
  };
}

FindMatches matches_of_text(std::string wanted) {
  if (wanted.empty()) return between_characters;
  return [wanted = std::move(wanted)](std::string_view text, const VisitMatch& visit) {
    for (size_t offset = text.find(wanted); offset != text.npos;
         offset = text.find(wanted, offset + wanted.size())) {
      visit(offset, offset + wanted.size());
    }
  };
}

FindMatches parse_pattern(const JsonView& json) {
  json.only({"Regex", "String"});
  if (json.has("Regex") == json.has("String")) json.expected("one of Regex and String");
  if (json.has("Regex")) {
    const auto pattern = json.at("Regex");
    try {
      return matches_of(Regex(pattern.string()));
    } catch (const Refusal& refusal) {
      refuse("{}: {}", pattern.path(), refusal.what());
    }
  }
  const auto wanted = json.at("String");
  if (wanted.string().size() > kLongestPattern) {
    wanted.expected(fmt::format("at most {} bytes", kLongestPattern));
  }
  return matches_of_text(wanted.string());
}

}  // namespace attentive::tokenizers
