#pragma once

#include <string_view>

namespace attentive {

/// Selects the tokens for which a language model computes logits; each costs a product with the whole
/// vocabulary.
///   All   every given token: (B, T, vocab_size)
///   Last  only the last token: (B, 1, vocab_size)
enum class Logits { All, Last };
std::string_view to_string(Logits value);

}  // namespace attentive
