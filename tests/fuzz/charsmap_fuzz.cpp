// Any bytes at all: a charsmap is read or refused, and what it finds lies within it and is UTF-8. The last 32
// bytes of an input are a text, the ones before it the charsmap.
//
//   build/fuzz/tests/charsmap_fuzz -max_total_time=600 new build/fuzz/tests/corpora/charsmap_fuzz

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/normalizers.h"

namespace {

[[noreturn]] void report(const char* what) {
  std::fputs(what, stderr);
  std::abort();
}

void look_up(const attentive::tokenizers::Charsmap& charsmap, std::string_view text, size_t size) {
  const auto found = charsmap.find(text);
  if (!found) return;
  if (text.empty()) report("something is found in nothing\n");
  if (found->size() > size) report("a replacement is larger than its charsmap\n");
  if (!attentive::is_utf8(*found)) report("a replacement is not UTF-8\n");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto text = input.substr(size - std::min<size_t>(size, 32));
  const auto bytes = input.substr(0, size - text.size());
  try {
    const attentive::tokenizers::Charsmap charsmap(bytes);
    for (size_t offset = 0; offset <= text.size(); ++offset)
      look_up(charsmap, text.substr(offset), bytes.size());
    for (int byte = 0; byte < 128; ++byte) {
      const char c = static_cast<char>(byte);
      if (!charsmap.knows_ascii(c) && charsmap.find({&c, 1})) report("an ASCII character is found unknown\n");
    }
  } catch (const attentive::Refusal&) {
  }
  try {
    const auto decoded = attentive::tokenizers::from_base64(input);
    if (decoded.size() > size) report("base64 grew\n");
  } catch (const attentive::Refusal&) {
  }
  return 0;
}
