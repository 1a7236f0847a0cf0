#include "notebooks.h"

namespace notebooks {

// Generated from notebook_000.cpp and so on.
extern const char* const kNotebook000;
extern const char* const kNotebook001;
extern const char* const kNotebook002;
extern const char* const kNotebook003;
extern const char* const kNotebook004;

namespace {

Origin origin_000() {
  return {
      .title = "Toy Self-Attention 구현",
      .place = "notebook 04_toy_self_attention of deep-learning-practice",
      .author = "monya-9",
      .introduction =
          "Scaled dot-product attention and multi-head self-attention, written into the empty cells of a toy "
          "notebook: how features become heads and come back, what two kinds of masks hide, and what dropout "
          "does to weights and outputs."};
}

Origin origin_001() {
  return {
      .title = "ch3",
      .place = "notebook of llm-from-scratch-code",
      .author = "Haj1h0",
      .introduction =
          "Chapter 3 of the book Build a Large Language Model (From Scratch), cell by cell. It begins with a "
          "single dot product and ends with multi-head attention as a language model uses it; on the way "
          "come "
          "softmax, trainable projections, the causal mask and dropout."};
}

Origin origin_002() {
  return {.title = "셀프 어텐션 (Self Attention)",
          .place = "a tutorial in Language Model: Transformers",
          .introduction =
              "Queries, keys and values in numbers small enough to check by hand: three inputs, three "
              "matrices, a "
              "softmax and a sum. Rounding for the sake of readers, and leaving out the scale, change the "
              "result; "
              "the cells show by how much."};
}

Origin origin_003() {
  return {.title = "7. 어텐션 (Attention) 메커니즘",
          .place = "in the course 기초가 탄탄한 딥러닝",
          .author = "TeamSparta",
          .introduction =
              "Scaled dot-product attention as a function, and a multi-head class as a course prints it. The "
              "class "
              "does not run as it stands; the cells show what it was meant to compute, and what it computes "
              "if only "
              "the errors that stop it are mended."};
}

Origin origin_004() {
  return {.title = "Self-Attention",
          .place = "a reference page",
          .introduction =
              "The self-attention of vision transformers: one projection for queries, keys and values, 196 "
              "patches "
              "of an image as tokens, what that costs, and three ways to pay less, namely flash, window and "
              "linear "
              "attention."};
}

}  // namespace

std::vector<Document> documents() {
  return {
      {"000", "Toy self-attention", toy_self_attention, kNotebook000, origin_000()},
      {"001", "Large language model from scratch, chapter 3", chapter_3, kNotebook001, origin_001()},
      {"002", "Queries, keys and values in small numbers", query_key_value_numbers, kNotebook002,
       origin_002()},
      {"003", "Scaled dot-product and multi-head attention of a blog", blog_multi_head, kNotebook003,
       origin_003()},
      {"004", "Self-attention of a vision transformer", fused_self_attention, kNotebook004, origin_004()}};
}

torch::Tensor six_tokens() {
  return torch::tensor({{0.43, 0.15, 0.89},    // Your
                        {0.55, 0.87, 0.66},    // journey
                        {0.57, 0.85, 0.64},    // starts
                        {0.22, 0.58, 0.33},    // with
                        {0.77, 0.25, 0.10},    // one
                        {0.05, 0.80, 0.55}});  // step
}

std::vector<std::string> six_words() {
  return {"Your", "journey", "starts", "with", "one", "step"};
}

}  // namespace notebooks
