#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "support/walkthrough.h"

namespace notebooks {

/// One function per document, which contains all of its cells and worked examples, in order.
void toy_self_attention(Walkthrough& nb);       // 000
void chapter_3(Walkthrough& nb);                // 001
void query_key_value_numbers(Walkthrough& nb);  // 002
void blog_multi_head(Walkthrough& nb);          // 003
void fused_self_attention(Walkthrough& nb);     // 004

/// All documents, in order.
std::vector<Document> documents();

/// "Your journey starts with one step": six tokens of three features, on the CPU, as in cell 001-02.
torch::Tensor six_tokens();
/// The words of that sentence.
std::vector<std::string> six_words();

}  // namespace notebooks
