#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/walkthrough.h"

namespace notebooks {

// One function per document; each shows every cell and worked example of it, in order.
Tally toy_self_attention(Walkthrough& walkthrough);       // 000
Tally chapter_3(Walkthrough& walkthrough);                // 001
Tally query_key_value_numbers(Walkthrough& walkthrough);  // 002
Tally blog_multi_head(Walkthrough& walkthrough);          // 003
Tally fused_self_attention(Walkthrough& walkthrough);     // 004

/// What an app can walk through.
struct Document {
  std::string id;  ///< such as "001"
  std::function<Tally(Walkthrough&)> walk;
  const char* source;  ///< the C++ text of its cells
};

/// All of them, in order.
std::vector<Document> documents();

}  // namespace notebooks
