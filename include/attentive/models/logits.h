#pragma once

#include <string_view>

namespace attentive {

/// Of which tokens a language model computes logits, each a product with the whole vocabulary.
///   All   of every token given: (B, T, vocab_size)
///   Last  of the last one alone: (B, 1, vocab_size)
enum class Logits { All, Last };
std::string_view to_string(Logits value);

}  // namespace attentive
