// docs/guide/named-masks.svg shows the pairs that the named masks show. ATTENTIVE_UPDATE_DOCS=1 draws it.

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/named_masks.h>

#include "docs/pages.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Panel {
  MaskMod mask;
  int64_t tokens;
  std::string note;
};

std::vector<Panel> panels() {
  auto documents = at::zeros({32}, at::kLong);
  documents.slice(0, 10, 16).fill_(1);
  documents.slice(0, 16).fill_(2);
  // Token 0 of the draft has the children 1 and 2, and so on.
  const auto parents = at::tensor({-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, at::kLong);
  return {{document_mask(documents), 32, "documents of 10, 6 and 16 tokens"},
          {prefix_lm_mask(8), 32, "8 tokens that all tokens see"},
          {dilated_mask(20, 4), 32, "every fourth of the last 20 keys"},
          {global_local_mask(3, 5, 2), 32, "3 global tokens, 5 before and 2 after"},
          {neighbourhood_2d_mask(6, 6, 1), 36, "3 x 3 pixels of 6 x 6, cut at the border"},
          {neighbourhood_2d_mask(6, 6, 1, ImageBorder::Shifted), 36, "ImageBorder::Shifted: always 9 pixels"},
          {block_diffusion_mask(16, 4), 32, "16 noised tokens, then 16 clean ones"},
          {tree_mask(parents), 24, "9 tokens, then a tree of 15 drafts"}};
}

// Where the weights of attention with the mask are above 0, as one run of cells after the other.
std::string runs_of(const Panel& panel) {
  const auto none = at::zeros({1, 1, panel.tokens, 1});
  const auto weights =
      attention(none, none, none, {}, {.block_mask = panel.mask, .weights = Weights::Clean}).weights;
  const auto shown = weights.gt(0).contiguous();
  const bool* const pair = shown.const_data_ptr<bool>();
  std::string runs;
  for (int64_t i = 0; i < panel.tokens; ++i) {
    const bool* const row = pair + i * panel.tokens;
    for (int64_t j = 0, from = 0; j < panel.tokens; j = from) {
      for (from = j; from < panel.tokens && row[from] == row[j];) ++from;
      if (row[j]) runs += fmt::format("M{} {}h{}v1h-{}z", j, i, from - j, from - j);
    }
  }
  return runs;
}

std::string drawing_of(const Panel& panel, int64_t x, int64_t y) {
  constexpr double kSide = 192;
  return fmt::format(
      "<g transform=\"translate({} {})\">\n<text class=\"name\" y=\"-26\">{}</text>\n"
      "<text class=\"note\" y=\"-9\">{}</text>\n<rect class=\"hidden\" width=\"{}\" height=\"{}\"/>\n"
      "<path class=\"shown\" transform=\"scale({:.4f})\" d=\"{}\"/>\n</g>\n",
      x, y, panel.mask.name(), panel.note, kSide, kSide, kSide / static_cast<double>(panel.tokens),
      runs_of(panel));
}

std::string picture() {
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1040 586\" width=\"1040\" height=\"586\" "
      "role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">The named masks</title>\n"
      "<desc id=\"desc\">Eight squares, one per mask: queries from top to bottom, keys from left to right, "
      "dark "
      "where the query may attend to the key.</desc>\n<style>\n"
      "  text { font: 13px system-ui, sans-serif; fill: #1f2328; }\n"
      "  .name { font: 600 13px ui-monospace, monospace; }\n  .note { font-size: 12px; fill: #59636e; }\n"
      "  .page { fill: #ffffff; }\n  .hidden { fill: #eff2f5; stroke: #afb8c1; }\n"
      "  .shown { fill: #0550ae; }\n"
      "  @media (prefers-color-scheme: dark) {\n    text { fill: #f0f6fc; }\n    .note { fill: #9198a1; }\n"
      "    .page { fill: #0d1117; }\n    .hidden { fill: #1c2128; stroke: #3d444d; }\n"
      "    .shown { fill: #79c0ff; }\n  }\n</style>\n"
      "<rect class=\"page\" width=\"1040\" height=\"586\"/>\n"
      "<text class=\"note\" x=\"20\" y=\"24\">queries from top to bottom, keys from left to right; blue: the "
      "query may attend to the key</text>\n";
  const auto all = panels();
  for (size_t n = 0; n < all.size(); ++n)
    text +=
        drawing_of(all[n], 20 + 256 * static_cast<int64_t>(n % 4), 90 + 272 * static_cast<int64_t>(n / 4));
  return text + "</svg>\n";
}

}  // namespace

TEST_CASE("the picture of the named masks shows what the masks show", "[docs][named_masks_picture]") {
  const auto path = source_folder() + "/docs/guide/named-masks.svg";
  const auto drawn = picture();
  if (std::getenv("ATTENTIVE_UPDATE_DOCS")) std::ofstream(path) << drawn;
  CHECK(read_page_file(path) == drawn);
  CHECK(read_page_file(source_folder() + "/docs/guide/own_scores.md").find("](named-masks.svg)") !=
        std::string::npos);
}
