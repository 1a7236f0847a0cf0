#include <c10/util/Exception.h>

#include <attentive/tokenizers.h>

int main() {
  try {
    attentive::PretrainedTokenizer::parse("{}");
  } catch (const c10::Error&) {
    return 0;
  }
  return 1;
}
