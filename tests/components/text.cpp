#include <attentive/text.h>

int main() {
  const auto tokenizer = attentive::CharTokenizer::train("hello");
  return tokenizer.encode("hole") == std::vector<int64_t>{1, 3, 2, 0} ? 0 : 1;
}
