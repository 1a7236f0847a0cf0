#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Parses numbers and ranges: "0,3-5" is 0, 3, 4, 5. Throws c10::ValueError, prefixed by the option, for any
// other text.
std::vector<int64_t> parse_numbers(std::string_view option, std::string_view text);

// A head of a layer: "trf_blocks.0.att.3" is head 3 of trf_blocks.0.att. Throws c10::ValueError for any other
// text.
struct LayerHead {
  std::string layer;
  int64_t head = 0;
};
LayerHead parse_layer_head(std::string_view option, std::string_view text);
