#include "viz/page_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include "support/temporary_folder.h"

namespace attentive::test {

Page page_of(const std::vector<AttentionView>& views, const HtmlOptions& options) {
  const TemporaryFolder folder;
  const auto written = write_html(folder / "page.html", views, options);
  Page page(folder / "page.html");
  CHECK(written.bytes == std::ssize(page.text));
  CHECK(written.levels == page.data.at("levels").get<int>());
  CHECK(written.bytes <= options.max_bytes);
  return page;
}

void check_head(const Page& page, const AttentionView& view, size_t number, size_t place) {
  const auto head = static_cast<int64_t>(place);
  const auto want = view.weights[head];
  const auto seen = view.visible.defined() ? view.visible.expand(view.weights.sizes())[head]
                                           : at::ones_like(want).to(at::kBool);
  CHECK(page.visible(number, place).equal(seen));
  const auto step = std::get<0>(want.max(1, true)).to(at::kDouble) / page.data.at("levels").get<double>();
  const auto error = (page.weights(number, place) - want.to(at::kDouble)).abs();
  CHECK(error.le(step * (0.5 + 1e-9)).all().item<bool>());
  CHECK(at::tensor(page.row_maxima(number, place)).equal(std::get<0>(want.max(1))));
  if (view.logsumexp.defined()) {
    CHECK(at::tensor(page.logsumexp(number, place)).equal(view.logsumexp[head]));
  } else {
    CHECK(page.logsumexp(number, place).empty());
  }
}

}  // namespace attentive::test
