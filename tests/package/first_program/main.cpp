#include <iostream>

#include <ATen/ops/tensor.h>

#include <attentive/modules/multi_head_attention.h>

int main() {
  const auto tokens = at::tensor({.43, .15, .89, .55, .87, .66, .57, .85, .64,   // Your journey starts
                                  .22, .58, .33, .77, .25, .10, .05, .80, .55},  // with one step
                                 at::kFloat);
  at::manual_seed(123);  // the notebook's seed: the same first weights as in Python
  attentive::MultiHeadAttention mha(/*d_in=*/3, /*d_out=*/2, /*context_length=*/6, /*dropout=*/0.0,
                                    /*num_heads=*/2);
  std::cout << mha->forward(tokens.view({6, 3})) << "\n";
}
