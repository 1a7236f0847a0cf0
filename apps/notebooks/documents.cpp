#include "notebooks.h"

namespace notebooks {

// Generated from notebook_000.cpp and so on.
extern const char* const kNotebook000;
extern const char* const kNotebook001;
extern const char* const kNotebook002;
extern const char* const kNotebook003;
extern const char* const kNotebook004;

std::vector<Document> documents() {
  return {{"000", "Toy self-attention", toy_self_attention, kNotebook000},
          {"001", "Large language model from scratch, chapter 3", chapter_3, kNotebook001},
          {"002", "Queries, keys and values in small numbers", query_key_value_numbers, kNotebook002},
          {"003", "Scaled dot-product and multi-head attention of a blog", blog_multi_head, kNotebook003},
          {"004", "Self-attention of a vision transformer", fused_self_attention, kNotebook004}};
}

}  // namespace notebooks
