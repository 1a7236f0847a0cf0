// The named masks, each against loops over all pairs.

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/named_masks.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kBatch = 2, kMaskedHeads = 2;

struct NamedCase {
  std::string what;
  MaskMod mask;
  std::function<bool(int64_t b, int64_t query, int64_t key)> sees;
  int64_t L, S;
  Causal causal = Causal::None;
};

// Documents of 1 to 150 tokens; numbers need not ascend.
std::vector<int64_t> some_documents(int64_t tokens, int64_t first) {
  std::vector<int64_t> result;
  const int64_t lengths[] = {first, 1, 150, 17, 70};
  for (int64_t n = 0; static_cast<int64_t>(result.size()) < tokens; ++n)
    result.insert(result.end(), static_cast<size_t>(lengths[n % 5]), (n * 7 + 3) % 5);
  result.resize(static_cast<size_t>(tokens));
  return result;
}

void add_documents(std::vector<NamedCase>& cases, int64_t L, int64_t S, Causal causal) {
  const auto one = some_documents(S, 40), two = some_documents(S, 129);
  cases.push_back({"documents", document_mask(at::tensor(one, at::kLong)),
                   [=](int64_t, int64_t i, int64_t j) {
                     return one[static_cast<size_t>(i)] == one[static_cast<size_t>(j)];
                   },
                   L, S, causal});
  const auto both = at::zeros({2, S}, at::kInt);
  both[0].copy_(at::tensor(one, at::kInt));
  both[1].copy_(at::tensor(two, at::kInt));
  cases.push_back({"documents of each batch item", document_mask(both),
                   [=](int64_t b, int64_t i, int64_t j) {
                     const auto& of = b == 0 ? one : two;
                     return of[static_cast<size_t>(i)] == of[static_cast<size_t>(j)];
                   },
                   L, S, causal});
}

void add_neighbourhoods(std::vector<NamedCase>& cases, int64_t L) {
  constexpr int64_t kHeight = 14, kWidth = 19;
  cases.push_back({"neighbourhood", neighbourhood_2d_mask(kHeight, kWidth, 2),
                   [](int64_t, int64_t i, int64_t j) {
                     const int64_t rows = i / kWidth - j / kWidth, columns = i % kWidth - j % kWidth;
                     return rows * rows <= 4 && columns * columns <= 4;
                   },
                   L, kHeight * kWidth});
  // As natten finds the first neighbour of a pixel.
  const auto near = [](int64_t query, int64_t key, int64_t size) {
    const int64_t first = std::clamp<int64_t>(query - 3, 0, size - 7);
    return key >= first && key < first + 7;
  };
  cases.push_back({"shifted neighbourhood", neighbourhood_2d_mask(kHeight, kWidth, 3, ImageBorder::Shifted),
                   [near](int64_t, int64_t i, int64_t j) {
                     return near(i / kWidth, j / kWidth, kHeight) && near(i % kWidth, j % kWidth, kWidth);
                   },
                   L, kHeight * kWidth});
}

void add_tree(std::vector<NamedCase>& cases, int64_t draft, int64_t L, int64_t S) {
  std::vector<int64_t> parents;
  for (int64_t n = 0; n < draft; ++n) parents.push_back(n % 11 == 0 ? -1 : n - 1 - n * 5 % (n % 7 + 1));
  for (auto& parent : parents) parent = std::max<int64_t>(parent, -1);
  cases.push_back({"tree", tree_mask(at::tensor(parents, at::kLong)),
                   [=](int64_t, int64_t i, int64_t j) {
                     const int64_t start = S - draft;
                     if (j < start) return j <= i;
                     if (i < start) return false;
                     for (int64_t node = i - start; node >= 0; node = parents[static_cast<size_t>(node)]) {
                       if (node == j - start) return true;
                     }
                     return false;
                   },
                   L, S});
}

std::vector<NamedCase> named_cases() {
  std::vector<NamedCase> cases;
  for (const auto causal : {Causal::None, Causal::BottomRight}) {
    add_documents(cases, 333, 333, causal);
    add_documents(cases, 200, 333, causal);
  }
  for (const int64_t L : {200, 333}) {
    cases.push_back({"prefix", prefix_lm_mask(150),
                     [](int64_t, int64_t i, int64_t j) { return j < 150 || j <= i; }, L, 333});
    cases.push_back({"prefix of each batch item", prefix_lm_mask(at::tensor({0, 259}, at::kInt)),
                     [](int64_t b, int64_t i, int64_t j) { return j <= i || (b == 1 && j < 259); }, L, 333});
    cases.push_back({"dilated", dilated_mask(140, 7),
                     [](int64_t, int64_t i, int64_t j) {
                       for (int64_t distance = 0; distance < 140; distance += 7) {
                         if (i - j == distance) return true;
                       }
                       return false;
                     },
                     L, 333});
    cases.push_back(
        {"global and local", global_local_mask(5, 20, 3),
         [](int64_t, int64_t i, int64_t j) { return i < 5 || j < 5 || (j >= i - 20 && j <= i + 3); }, L,
         333});
    cases.push_back({"global and all before", global_local_mask(130, -1, 0),
                     [](int64_t, int64_t i, int64_t j) { return i < 130 || j < 130 || j <= i; }, L, 333});
    cases.push_back({"block diffusion", block_diffusion_mask(150, 32),
                     [](int64_t, int64_t i, int64_t j) {
                       if (i >= 300 || j >= 300) return false;
                       const bool noised_query = i < 150, noised_key = j < 150;
                       const int64_t of_query = (noised_query ? i : i - 150) / 32,
                                     of_key = (noised_key ? j : j - 150) / 32;
                       if (noised_query) return noised_key ? of_key == of_query : of_key < of_query;
                       return !noised_key && of_key <= of_query;
                     },
                     L, L == 200 ? 300 : 333});
    add_neighbourhoods(cases, L == 200 ? 200 : 266);
  }
  add_tree(cases, 40, 40, 333);
  add_tree(cases, 40, 300, 333);
  add_tree(cases, 40, 21, 333);
  add_tree(cases, 200, 200, 200);
  return cases;
}

at::Tensor pairs_of(const NamedCase& one) {
  auto keep = at::zeros({kBatch, 1, one.L, one.S}, at::kBool);
  auto pairs = keep.accessor<bool, 4>();
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t i = 0; i < one.L; ++i) {
      for (int64_t j = 0; j < one.S; ++j) pairs[b][0][i][j] = one.sees(b, i + one.S - one.L, j);
    }
  }
  return keep;
}

std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& inputs, const at::Tensor& grad_output,
                                       const AttentionOptions& options, const AttentionExtras& extras) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : inputs) leaves.push_back(x.detach().clone().requires_grad_(true));
  const auto y = attention(leaves[0], leaves[1], leaves[2], options, extras).output;
  auto results = torch::autograd::grad({y}, leaves, {grad_output});
  results.push_back(y.detach());
  return results;
}

}  // namespace

TEST_CASE("named masks hide what loops over all pairs hide", "[named_masks]") {
  for (const auto& one : named_cases()) {
    INFO(one.what << ", mask " << one.mask.name() << ", L " << one.L << ", S " << one.S << ", "
                  << (one.causal == Causal::None ? "not causal" : "causal"));
    const auto keep = pairs_of(one);
    CHECK(keep.any().item<bool>());
    CHECK_FALSE(keep.all().item<bool>());
    const auto blocks = BlockMask::kept(one.mask, kBatch, kMaskedHeads, one.L, one.S);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::manual_seed(3);
      const std::vector<at::Tensor> inputs = {at::randn({kBatch, kMaskedHeads, one.L, 8}).to(type),
                                              at::randn({kBatch, 1, one.S, 8}).to(type),
                                              at::randn({kBatch, 1, one.S, 8}).to(type)};
      const auto grad_output = at::randn({kBatch, kMaskedHeads, one.L, 8}).to(type);
      std::vector<at::Tensor> exact;
      for (const auto& x : inputs) exact.push_back(x.to(at::kDouble));
      AttentionOptions options{.causal = one.causal, .backend = Backend::Reference};
      const auto want =
          with_gradients(exact, grad_output.to(at::kDouble), options, {.mask = Mask::keep(keep)});
      const auto compare = [&](const char* how, Backend backend, const BlockMask& mask) {
        options.backend = backend;
        INFO(how << ", " << c10::toString(type) << "; gradients of q, k and v, and the output");
        const auto got = with_gradients(inputs, grad_output, options, {.block_mask = mask});
        for (size_t n = 0; n < got.size(); ++n)
          CHECK_WITHIN(got[n], want[n], (tolerance_of(type, /*gradient=*/n < 3)));
      };
      compare("native", Backend::Native, one.mask);
      compare("native with kept tiles", Backend::Native, blocks);
      compare("reference", Backend::Reference, one.mask);
    }
  }
}

TEST_CASE("named masks have names", "[named_masks]") {
  const auto numbers = at::tensor({-1, 0}, at::kLong);
  CHECK(document_mask(numbers).name() == "document_mask");
  CHECK(document_mask(numbers.unsqueeze(0)).name() == "document_mask");
  CHECK(prefix_lm_mask(0).name() == "prefix_lm_mask(0)");
  CHECK(prefix_lm_mask(numbers.abs()).name() == "prefix_lm_mask");
  CHECK(dilated_mask(512, 4).name() == "dilated_mask(512, 4)");
  CHECK(global_local_mask(1, 2, -1).name() == "global_local_mask(1, 2, -1)");
  CHECK(neighbourhood_2d_mask(9, 8, 1).name() == "neighbourhood_2d_mask(9, 8, 1)");
  CHECK(block_diffusion_mask(64, 16).name() == "block_diffusion_mask(64, 16)");
  CHECK(tree_mask(numbers).name() == "tree_mask");
}

TEST_CASE("named masks take the largest sizes", "[named_masks]") {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const auto x = at::randn({1, 1, 20, 8});
  for (const auto backend : {Backend::Native, Backend::Reference}) {
    const auto run = [&](const MaskMod& mask) {
      return attention(x, x, x, {.backend = backend}, {.block_mask = mask}).output;
    };
    const auto all = attention(x, x, x, {.backend = backend});
    CHECK_CLOSE(run(prefix_lm_mask(kLargest)), all);
    CHECK_CLOSE(run(global_local_mask(kLargest, 0, 0)), all);
    CHECK_CLOSE(run(global_local_mask(0, kLargest, kLargest)), all);
    CHECK_CLOSE(run(neighbourhood_2d_mask(4, 5, kLargest)), all);
    for (const int64_t block : {int64_t{1} << 32, kLargest})
      CHECK_CLOSE(run(block_diffusion_mask(10, block)), run(block_diffusion_mask(10, 10)));
  }
}

TEST_CASE("named masks refuse bad arguments by name", "[named_masks][errors]") {
  const auto numbers = at::tensor({0, 1, 2}, at::kLong);
  CHECK(value_error([&] {
          document_mask(numbers.view({1, 1, 3}));
        }) == "document_mask: expected documents of shape (S) or (B, S), got Long tensor of shape (1, 1, 3)");
  CHECK(type_error([&] { document_mask(numbers.to(at::kFloat)); }) ==
        "document_mask: expected documents to be integers, got Float tensor of shape (3,)");
  CHECK(value_error([&] { document_mask({}); }).starts_with("document_mask: expected documents"));
  CHECK(value_error([&] { prefix_lm_mask(-1); }) ==
        "prefix_lm_mask: expected prefix to be at least 0, got -1");
  CHECK(value_error([&] {
          prefix_lm_mask(at::tensor({1, -2}, at::kLong));
        }) == "prefix_lm_mask: expected prefix to be at least 0, got -2");
  CHECK(value_error([&] { prefix_lm_mask(numbers.unsqueeze(0)); }) ==
        "prefix_lm_mask: expected prefix of shape (B), got Long tensor of shape (1, 3)");
  CHECK(type_error([&] { prefix_lm_mask(numbers.gt(0)); }) ==
        "prefix_lm_mask: expected prefix to be integers, got Bool tensor of shape (3,)");
  CHECK(value_error([&] { dilated_mask(0, 1); }) ==
        "dilated_mask: expected window in [1, 2147483647], got 0");
  CHECK(value_error([&] { dilated_mask(8, 0); }) == "dilated_mask: expected step in [1, 2147483647], got 0");
  CHECK(value_error([&] { global_local_mask(-1, 0, 0); }) ==
        "global_local_mask: expected global to be at least 0, got -1");
  CHECK(value_error([&] { global_local_mask(0, -2, 0); }) ==
        "global_local_mask: expected left to be at least -1, got -2");
  CHECK(value_error([&] { global_local_mask(0, 0, -2); }) ==
        "global_local_mask: expected right to be at least -1, got -2");
  CHECK(value_error([&] { neighbourhood_2d_mask(0, 4, 1); }) ==
        "neighbourhood_2d_mask: expected height in [1, 2147483647], got 0");
  CHECK(value_error([&] { neighbourhood_2d_mask(1 << 16, 1 << 16, 1); }) ==
        "neighbourhood_2d_mask: expected width in [1, 32767], got 65536");
  CHECK(value_error([&] { neighbourhood_2d_mask(4, 4, -1); }) ==
        "neighbourhood_2d_mask: expected radius to be at least 0, got -1");
  CHECK(value_error([&] { neighbourhood_2d_mask(9, 6, 3, ImageBorder::Shifted); }) ==
        "neighbourhood_2d_mask: expected radius to be at most 2 with ImageBorder::Shifted, so that "
        "2 radius + 1 pixels fit into an image of 9 x 6, got 3");
  CHECK(value_error([&] { block_diffusion_mask(0, 4); }) ==
        "block_diffusion_mask: expected length in [1, 1073741823], got 0");
  CHECK(value_error([&] { block_diffusion_mask(4, 0); }) ==
        "block_diffusion_mask: expected block to be at least 1, got 0");
  CHECK(value_error([&] { tree_mask(numbers); }) ==
        "tree_mask: expected the parent of draft token 0 to be -1 or a token before it, got 0");
  CHECK(value_error([&] {
          tree_mask(at::tensor({-1, -2}, at::kLong));
        }) == "tree_mask: expected the parent of draft token 1 to be -1 or a token before it, got -2");
  CHECK(value_error([&] { tree_mask(numbers.slice(0, 0, 0)); }) ==
        "tree_mask: expected parents of shape (N) with N > 0, got Long tensor of shape (0,)");
  CHECK(type_error([&] { tree_mask(numbers.to(at::kDouble)); }) ==
        "tree_mask: expected parents to be integers, got Double tensor of shape (3,)");
}

TEST_CASE("a call with more tokens than documents is refused", "[named_masks][errors]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const int64_t tokens = GENERATE(40, 300);
  const auto x = at::randn({1, 1, tokens, 8});
  const auto mask = document_mask(at::zeros({tokens - 1}, at::kLong));
  const auto message =
      error_of<c10::IndexError>([&] { attention(x, x, x, {.backend = backend}, {.block_mask = mask}); });
  INFO(message);
  CHECK(message.find("got " + std::to_string(tokens - 1)) != std::string::npos);
  const auto prefixes = prefix_lm_mask(at::zeros({1}, at::kLong));
  const auto y = at::randn({2, 1, tokens, 8});
  CHECK(error_of<c10::IndexError>([&] {
          attention(y, y, y, {.backend = backend}, {.block_mask = prefixes});
        }).find("[0, 1), got 1") != std::string::npos);
}

TEST_CASE("masks made in inference mode can be trained with", "[named_masks]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const auto type = GENERATE(at::kInt, at::kLong);
  BlockMask tree, documents, kept;
  {
    const c10::InferenceMode inference;
    tree = tree_mask(at::tensor({-1, 0, 0}, type));
    documents = document_mask(at::zeros({300}, type));
    kept = BlockMask::kept(documents.mask(), 1, 1, 300, 300);
  }
  for (const auto& mask : {tree, documents, kept}) {
    INFO(mask.mask().name() << ", " << to_string(backend) << ", " << c10::toString(type));
    if (mask.mask().name() == "tree_mask") {
      for (const auto& numbers : mask.mask().function()->captured())
        CHECK_FALSE(numbers->tensor.is_inference());
    }
    const auto x = at::randn({1, 1, 300, 8}).requires_grad_(true);
    attention(x, x, x, {.backend = backend}, {.block_mask = mask}).output.sum().backward();
    CHECK(x.grad().isfinite().all().item<bool>());
  }
}
