// The tiles of mask functions: how many are skipped, and that skipping changes nothing.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/named_masks.h>
#include <attentive/score/score_mod.h>

#include "kernels/simd/selection.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Inputs {
  at::Tensor q, k, v, grad_output;
};

Inputs draw(int64_t batch, int64_t heads, int64_t L, int64_t S, at::ScalarType type = at::kFloat) {
  at::manual_seed(7);
  return {at::randn({batch, heads, L, 16}).to(type), at::randn({batch, heads, S, 16}).to(type),
          at::randn({batch, heads, S, 16}).to(type), at::randn({batch, heads, L, 16}).to(type)};
}

struct OutputAndGradients {
  at::Tensor output, grad_q, grad_k, grad_v;
  std::vector<at::Tensor> all() const { return {output, grad_q, grad_k, grad_v}; }
};

OutputAndGradients run(const Inputs& in, const BlockMask& mask,
                       AttentionOptions options = {.backend = Backend::Native}) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : {in.q, in.k, in.v}) leaves.push_back(x.detach().clone().requires_grad_(true));
  const auto y = attention(leaves[0], leaves[1], leaves[2], options, {.block_mask = mask}).output;
  const auto gradients = torch::autograd::grad({y}, leaves, {in.grad_output});
  return {y.detach(), gradients[0], gradients[1], gradients[2]};
}

OutputAndGradients by_definition(const Inputs& in, const MaskMod& mask, AttentionOptions options = {}) {
  options.backend = Backend::Reference;
  return run(in, mask, options);
}

void check_equal(const OutputAndGradients& got, const OutputAndGradients& want) {
  const auto type = got.output.scalar_type();
  CHECK_CLOSE(got.output, want.output);
  CHECK_WITHIN(got.grad_q, want.grad_q, (tolerance_of(type, /*gradient=*/true)));
  CHECK_WITHIN(got.grad_k, want.grad_k, (tolerance_of(type, /*gradient=*/true)));
  CHECK_WITHIN(got.grad_v, want.grad_v, (tolerance_of(type, /*gradient=*/true)));
}

void check_same_bits(const OutputAndGradients& got, const OutputAndGradients& want) {
  for (size_t n = 0; n < 4; ++n) CHECK(bit_equal(got.all()[n], want.all()[n]));
}

// Compares the results of the first `tokens` queries and keys.
void check_same_bits_before(int64_t tokens, const OutputAndGradients& got, const OutputAndGradients& want) {
  for (size_t n = 0; n < 4; ++n)
    CHECK(bit_equal(got.all()[n].slice(2, 0, tokens), want.all()[n].slice(2, 0, tokens)));
}

bool is_zero(const at::Tensor& x) {
  return x.eq(0).all().item<bool>();
}

MaskMod causal_mask() {
  return mask_mod([](auto pair) { return pair.query >= pair.key; }, "causal");
}

// The mask of a condition that ranges of indices leave open, so that each tile is read pair by pair.
template <class Condition>
MaskMod pair_by_pair(const Condition& condition) {
  return mask_mod([=](auto pair) { return where(condition(pair), 1.0f, 0.0f) > 0.5f; });
}

// Two documents of whole tiles: 256 and 128 tokens.
MaskMod two_documents() {
  const auto documents = at::zeros({384}, at::kLong);
  documents.slice(0, 256).fill_(1);
  return document_mask(documents);
}

// Random pairs: some tiles are empty, some full, and the first query sees nothing.
at::Tensor draw_keep(at::IntArrayRef sizes) {
  auto keep = at::rand(sizes).lt(0.5);
  const int64_t L = keep.size(-2), S = keep.size(-1);
  keep.slice(-2, 0, std::min<int64_t>(128, L)).slice(-1, 128, std::min<int64_t>(256, S)).fill_(false);
  if (L > 128) keep.slice(-2, 128, std::min<int64_t>(256, L)).slice(-1, 0, 128).fill_(true);
  keep.select(-2, 0).fill_(false);
  return keep;
}

// The results with the plain mask, for which a keep tensor of rank 3 has a dimension for the batch.
OutputAndGradients with_mask(const Inputs& in, const at::Tensor& keep, AttentionOptions options) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : {in.q, in.k, in.v}) leaves.push_back(x.detach().clone().requires_grad_(true));
  const auto mask = Mask::keep(keep.dim() == 3 ? keep.unsqueeze(0) : keep);
  const auto y = attention(leaves[0], leaves[1], leaves[2], options, {.mask = mask}).output;
  const auto gradients = torch::autograd::grad({y}, leaves, {in.grad_output});
  return {y.detach(), gradients[0], gradients[1], gradients[2]};
}

std::string counts(const BlockMask& blocks) {
  const auto count = blocks.count();
  return std::to_string(count.tiles) + " tiles, " + std::to_string(count.empty) + " empty, " +
         std::to_string(count.full) + " full";
}

}  // namespace

TEST_CASE("tiles of known masks are counted", "[block_mask]") {
  CHECK(counts(BlockMask::kept(causal_mask(), 1, 1, 512, 512)) == "16 tiles, 6 empty, 6 full");
  CHECK(counts(BlockMask::kept(causal_mask(), 1, 1, 300, 300)) == "9 tiles, 3 empty, 3 full");
  // The queries are the last ones.
  CHECK(counts(BlockMask::kept(causal_mask(), 1, 1, 128, 384)) == "3 tiles, 0 empty, 2 full");
  CHECK(counts(BlockMask::kept(causal_mask(), 1, 1, 384, 128)) == "3 tiles, 2 empty, 0 full");
  CHECK(counts(BlockMask::kept(two_documents(), 1, 1, 384, 384)) == "9 tiles, 4 empty, 5 full");
  CHECK(counts(BlockMask::kept(mask_mod([](auto) { return false; }), 3, 2, 200, 333)) ==
        "6 tiles, 6 empty, 0 full");
  CHECK(counts(BlockMask::kept(mask_mod([](auto) { return true; }), 3, 2, 200, 333)) ==
        "6 tiles, 0 empty, 6 full");
  // One hidden pair, or one visible pair, in the last row and column.
  const auto last = [](auto pair) { return (pair.query == 332) & (pair.key == 332); };
  const auto others = [](auto pair) { return (pair.query != 332) | (pair.key != 332); };
  for (const auto& mask : {mask_mod(last), pair_by_pair(last)})
    CHECK(counts(BlockMask::kept(mask, 1, 1, 200, 333)) == "6 tiles, 5 empty, 0 full");
  for (const auto& mask : {mask_mod(others), pair_by_pair(others)})
    CHECK(counts(BlockMask::kept(mask, 1, 1, 200, 333)) == "6 tiles, 0 empty, 5 full");
  const auto causal = pair_by_pair([](auto pair) { return pair.query >= pair.key; });
  CHECK(counts(BlockMask::kept(causal, 1, 1, 300, 300)) == "9 tiles, 3 empty, 3 full");
  CHECK(counts(BlockMask::kept(causal, 1, 1, 384, 128)) == "3 tiles, 2 empty, 0 full");
  const auto first_query = pair_by_pair([](auto pair) { return pair.query == 133; });
  CHECK(counts(BlockMask::kept(first_query, 1, 1, 200, 333)) == "6 tiles, 3 empty, 0 full");
  CHECK(counts(BlockMask(causal_mask())) == "0 tiles, 0 empty, 0 full");
  CHECK(counts(BlockMask()) == "0 tiles, 0 empty, 0 full");
}

TEST_CASE("kept tiles change no result", "[block_mask]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const bool causal = GENERATE(false, true);
  for (const auto& [L, S] : {std::pair(200, 333), std::pair(300, 300), std::pair(100, 150)}) {
    INFO(c10::toString(type) << ", L " << L << ", S " << S << ", causal " << causal);
    const auto in = draw(2, 2, L, S, type);
    const auto mask = global_local_mask(3, 40, 0);
    AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None,
                             .backend = Backend::Native};
    const auto kept = run(in, BlockMask::kept(mask, 2, 2, L, S), options);
    check_equal(kept, run(in, mask, options));
    check_equal(kept, by_definition(in, mask, options));
  }
}

TEST_CASE("a mask may depend on the batch item and on the head", "[block_mask]") {
  const auto in = draw(3, 2, 280, 333);
  const auto lengths = captured_indices(at::tensor({333, 100, 20}, at::kLong));
  const auto by_batch = mask_mod([=](auto pair) { return pair.key < lengths(pair.batch); });
  const auto by_head = mask_mod([](auto pair) { return pair.query - pair.key < 60 + 200 * pair.head; });
  const auto by_both = mask_mod([=](auto pair) {
    return (pair.key < lengths(pair.batch)) & (pair.query - pair.key < 60 + 200 * pair.head);
  });
  for (const auto& [mask, tiles] :
       {std::pair(by_batch, 3 * 9), std::pair(by_head, 2 * 9), std::pair(by_both, 6 * 9)}) {
    const auto blocks = BlockMask::kept(mask, 3, 2, 280, 333);
    INFO(counts(blocks));
    CHECK(blocks.count().tiles == tiles);
    CHECK(blocks.count().empty > 0);
    check_equal(run(in, blocks), by_definition(in, mask));
    check_equal(run(in, mask), by_definition(in, mask));
  }
}

TEST_CASE("the tiles of long rows are those of their pairs", "[block_mask]") {
  // The last key is seen by all, and is alone in the last tile of 2049 keys.
  const int64_t L = GENERATE(200, 384), S = GENERATE(2048, 2049, 4500);
  INFO("L " << L << ", S " << S);
  const auto documents = at::arange(S).div(170, "floor"), j = at::arange(S);
  const auto document = captured_indices(documents);
  const auto shown = [=](auto pair) {
    return (document(pair.query) == document(pair.key)) | (pair.key == pair.keys - 1);
  };
  const auto mask = GENERATE(false, true) ? mask_mod(shown) : pair_by_pair(shown);
  const auto keep = documents.slice(0, S - L).unsqueeze(1).eq(documents) | j.eq(S - 1);
  const auto classes = BlockMask::kept(mask, 1, 1, L, S).classes()->classes;
  int64_t wrong = 0, tiles = 0;
  for (int64_t row = 0; row * 128 < L; ++row) {
    for (int64_t column = 0; column * 128 < S; ++column, ++tiles) {
      const auto pairs = keep.slice(0, row * 128, row * 128 + 128).slice(1, column * 128, column * 128 + 128);
      using attentive::detail::BlockClasses;
      const auto want = pairs.all().item<bool>()   ? BlockClasses::Full
                        : pairs.any().item<bool>() ? BlockClasses::Partial
                                                   : BlockClasses::Empty;
      wrong += classes[0][0][row][column].item<uint8_t>() != want;
    }
  }
  CHECK(tiles == classes.numel());
  CHECK(wrong == 0);
}

TEST_CASE("tiles that no batch item or head changes are kept once", "[block_mask]") {
  const auto in = draw(3, 2, 280, 333);
  const auto mask = global_local_mask(3, 40, 10);
  const auto one = BlockMask::kept(mask, 1, 1, 280, 333), all = BlockMask::kept(mask, 3, 2, 280, 333);
  CHECK(one.count().tiles == 9);
  CHECK(all.count().tiles == 9);
  check_equal(run(in, one), by_definition(in, mask));
  check_same_bits(run(in, one), run(in, all));
}

TEST_CASE("the tiles and results have the same bits for any number of threads", "[block_mask]") {
  const auto in = draw(2, 2, 400, 500);
  const auto mask = global_local_mask(3, 140, 10);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = BlockMask::kept(mask, 2, 2, 400, 500);
  const auto want = run(in, one), want_unkept = run(in, mask);
  for (const int count : {2, 3, 4}) {
    at::set_num_threads(count);
    INFO(count << " threads");
    const auto blocks = BlockMask::kept(mask, 2, 2, 400, 500);
    CHECK(bit_equal(blocks.classes()->classes, one.classes()->classes));
    check_same_bits(run(in, blocks), want);
    check_same_bits(run(in, mask), want_unkept);
  }
  at::set_num_threads(threads);
}

TEST_CASE("keys of empty tiles may hold NaN", "[block_mask]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const bool kept = GENERATE(true, false);
  const double value =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const auto in = draw(1, 2, 384, 384, type);
  const auto blocks = [&](const MaskMod& mask) {
    return kept ? BlockMask::kept(mask, 1, 2, 384, 384) : BlockMask(mask);
  };
  SECTION("keys that nobody sees") {
    const auto mask = blocks(mask_mod([](auto pair) { return pair.key / 128 != 1; }));
    const auto clean = run(in, mask);
    auto wild = in;
    for (auto* x : {&wild.k, &wild.v}) {
      *x = x->clone();
      x->slice(2, 128, 256).fill_(value);
    }
    const auto got = run(wild, mask);
    check_same_bits(got, clean);
    CHECK(is_zero(got.grad_k.slice(2, 128, 256)));
    CHECK(is_zero(got.grad_v.slice(2, 128, 256)));
    CHECK(got.output.isfinite().all().item<bool>());
  }
  SECTION("keys of another document") {
    const auto mask = blocks(two_documents());
    const auto clean = run(in, mask);
    auto wild = in;
    for (auto* x : {&wild.k, &wild.v}) {
      *x = x->clone();
      x->slice(2, 256).fill_(value);
    }
    const auto got = run(wild, mask);
    // A strip of the forward pass, of at most 32 queries, may lie across the border of two tiles. Its values
    // that are not numbers may reach its queries of either document, and the gradients of keys through them.
    const int64_t far = 224;
    CHECK(bit_equal(got.output.slice(2, 0, far), clean.output.slice(2, 0, far)));
    CHECK(bit_equal(got.grad_q.slice(2, 0, far), clean.grad_q.slice(2, 0, far)));
    CHECK(bit_equal(got.grad_v.slice(2, 0, 256), clean.grad_v.slice(2, 0, 256)));
    // Strips of bfloat16 that is not widened end with the tiles.
    if (type == at::kBFloat16 && kernels::cpu::selection().bf16 != kernels::cpu::Bf16Product::Widened)
      check_same_bits_before(256, got, clean);
    CHECK(got.output.slice(2, 256).isnan().all().item<bool>());
  }
}

TEST_CASE("a query that a mask function leaves no key has zero output and gradients", "[block_mask]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const int64_t L = GENERATE(20, 300);
  const auto in = draw(1, 2, L, 300);
  const int64_t seeing = 300 - L / 2;  // the first half of the queries sees no key
  const auto mask = mask_mod([=](auto pair) { return (pair.query >= seeing) & (pair.key < 200); });
  for (const bool kept : {true, false}) {
    INFO(to_string(backend) << ", L " << L << ", kept " << kept);
    const auto blocks = kept ? BlockMask::kept(mask, 1, 2, L, 300) : BlockMask(mask);
    const auto got = run(in, blocks, {.backend = backend});
    check_equal(got, by_definition(in, mask));
    CHECK(is_zero(got.output.slice(2, 0, L / 2)));
    CHECK(is_zero(got.grad_q.slice(2, 0, L / 2)));
    CHECK(is_zero(got.grad_k.slice(2, 200)));
    CHECK(is_zero(got.grad_v.slice(2, 200)));
    CHECK_FALSE(is_zero(got.output.slice(2, L / 2)));
    const auto logsumexp =
        attention(in.q, in.k, in.v, {.backend = backend}, {.block_mask = blocks, .logsumexp = true})
            .logsumexp;
    CHECK(logsumexp.slice(2, 0, L / 2).eq(-std::numeric_limits<double>::infinity()).all().item<bool>());
    CHECK(logsumexp.slice(2, L / 2).isfinite().all().item<bool>());
  }
  const auto nothing = mask_mod([](auto) { return false; });
  const auto got = run(in, nothing, {.backend = backend});
  for (const auto& x : got.all()) CHECK(is_zero(x));
}

TEST_CASE("kept tiles refuse other calls", "[block_mask][errors]") {
  const auto message = [](const BlockMask& blocks, const Inputs& in) {
    return value_error([&] { attention(in.q, in.k, in.v, {}, {.block_mask = blocks}); });
  };
  const auto blocks = BlockMask::kept(causal_mask(), 1, 1, 20, 30);
  CHECK(message(blocks, draw(2, 2, 20, 30)) == "no error");
  CHECK(
      message(blocks, draw(2, 2, 21, 30)) ==
      "attention: expected a block_mask kept for (B, H, L, S) = (2, 2, 21, 30), got one for (1, 1, 20, 30)");
  CHECK(message(blocks, draw(2, 2, 20, 31)).find("(2, 2, 20, 31)") != std::string::npos);

  const auto by_both = mask_mod([](auto pair) { return pair.key > pair.batch + pair.head; });
  const auto of_two = BlockMask::kept(by_both, 2, 2, 20, 30);
  CHECK(message(of_two, draw(2, 2, 20, 30)) == "no error");
  CHECK(message(of_two, draw(1, 2, 20, 30)).find("got one for (2, 2, 20, 30)") != std::string::npos);
  CHECK(message(of_two, draw(2, 1, 20, 30)).find("got one for (2, 2, 20, 30)") != std::string::npos);
  CHECK(message(BlockMask::kept(by_both, 1, 2, 20, 30), draw(2, 2, 20, 30))
            .find("got one for (1, 2, 20, 30)") != std::string::npos);

  const auto documents = at::zeros({30}, at::kLong);
  const auto of_documents = BlockMask::kept(document_mask(documents), 1, 1, 20, 30);
  CHECK(message(of_documents, draw(1, 1, 20, 30)) == "no error");
  documents[3] = 1;
  CHECK(message(of_documents, draw(1, 1, 20, 30)) ==
        "attention: a tensor that the block_mask captured was changed after BlockMask::kept; keep its tiles "
        "again");

  const auto in = draw(1, 2, 20, 20);
  const auto ends = at::tensor({0, 8, 20}, at::kLong);
  const auto packed = [](const at::Tensor& x) { return x[0].transpose(0, 1); };
  const auto varlen = [&](const BlockMask& mask) {
    return value_error([&] {
      attention_varlen(packed(in.q), packed(in.k), packed(in.v), ends, ends, {}, {.block_mask = mask});
    });
  };
  CHECK(varlen(causal_mask()) == "no error");
  CHECK(varlen(BlockMask::kept(causal_mask(), 1, 1, 20, 20)) ==
        "attention_varlen: expected a mask function as block_mask, got the tiles of BlockMask::kept, which "
        "hold for one length (packed sequences have lengths of their own)");
}

TEST_CASE("BlockMask::kept refuses bad arguments by name", "[block_mask][errors]") {
  CHECK(value_error([] { BlockMask::kept({}, 1, 1, 1, 1); }) ==
        "BlockMask::kept: expected a mask function, got none");
  const auto kept = [](int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    return value_error([&] { BlockMask::kept(causal_mask(), batch, heads, queries, keys); });
  };
  CHECK(kept(0, 1, 1, 1) == "BlockMask::kept: expected batch above 0, got 0");
  CHECK(kept(1, -1, 1, 1) == "BlockMask::kept: expected heads above 0, got -1");
  CHECK(kept(1, 1, 0, 1) == "BlockMask::kept: expected queries above 0, got 0");
  CHECK(kept(1, 1, 1, 0) == "BlockMask::kept: expected keys above 0, got 0");
  CHECK(kept(1, 1, 1, 1) == "no error");
}

TEST_CASE("packed sequences have places and tiles of their own", "[block_mask][varlen]") {
  const auto in = draw(1, 2, 700, 700);
  const auto ends = at::tensor({0, 330, 700}, at::kLong);
  const auto packed = [](const at::Tensor& x) { return x[0].transpose(0, 1); };
  const auto mask = global_local_mask(3, 40, 10);
  const auto got = attention_varlen(packed(in.q), packed(in.k), packed(in.v), ends, ends,
                                    {.backend = Backend::Native}, {.block_mask = mask})
                       .output;
  for (const auto& [from, to] : {std::pair(0, 330), std::pair(330, 700)}) {
    const auto part = [&, from = from, to = to](const at::Tensor& x) { return x.slice(2, from, to); };
    const auto want =
        attention(part(in.q), part(in.k), part(in.v), {.backend = Backend::Reference}, {.block_mask = mask})
            .output;
    CHECK_CLOSE(got.slice(0, from, to), want[0].transpose(0, 1));
  }
}

TEST_CASE("a tensor of pairs has the results of the plain mask", "[block_mask][keep]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const bool causal = GENERATE(false, true);
  for (const auto& [L, S] : {std::pair(300, 300), std::pair(200, 333), std::pair(333, 200), std::pair(7, 300),
                             std::pair(20, 20), std::pair(1, 40)}) {
    const auto in = draw(3, 2, L, S, type);
    const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None,
                                   .backend = Backend::Native};
    AttentionOptions definition = options;
    definition.backend = Backend::Reference;
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{L, S}, {2, L, S}, {3, 1, L, S}, {1, 2, L, S}, {3, 2, L, S}}) {
      INFO(c10::toString(type) << ", L " << L << ", S " << S << ", causal " << causal << ", keep "
                               << at::IntArrayRef(sizes));
      const auto keep = draw_keep(sizes);
      const auto blocks = BlockMask::kept(keep);
      const auto got = run(in, blocks, options);
      check_equal(got, with_mask(in, keep, options));
      check_equal(got, with_mask(in, keep, definition));
      check_same_bits(run(in, blocks, definition), with_mask(in, keep, definition));
    }
  }
}

TEST_CASE("a tensor of pairs whose tiles are all tested has the bits of the plain mask",
          "[block_mask][keep]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  for (const auto& [L, S] : {std::pair(300, 300), std::pair(200, 333), std::pair(7, 300), std::pair(1, 40)}) {
    INFO(c10::toString(type) << ", L " << L << ", S " << S);
    const auto in = draw(2, 2, L, S, type);
    const auto keep = at::rand({2, 1, L, S}).lt(0.5);
    const auto blocks = BlockMask::kept(keep);
    CHECK(blocks.count().empty + blocks.count().full == 0);
    check_same_bits(run(in, blocks), with_mask(in, keep, {.backend = Backend::Native}));
  }
}

TEST_CASE("a tensor of pairs has the bits of the function with the same pairs", "[block_mask][keep]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t L = GENERATE(384, 150, 1), S = GENERATE(384, 70);
  const auto in = draw(2, 2, L, S, type);
  const auto mask = mask_mod([](auto pair) {
    return ((pair.query - pair.key < 40 + 200 * pair.head) & (pair.key - pair.query <= 20 * pair.batch)) |
           (pair.key < 9);
  });
  const auto i = at::arange(S - L, S).unsqueeze(1), j = at::arange(S);
  const auto b = at::arange(2).view({2, 1, 1, 1}), h = at::arange(2).view({2, 1, 1});
  const auto keep = ((i - j).lt(200 * h + 40) & (j - i).le(20 * b)) | j.lt(9);
  const auto of_function = BlockMask::kept(mask, 2, 2, L, S), of_tensor = BlockMask::kept(keep);
  CHECK(bit_equal(of_tensor.classes()->classes, of_function.classes()->classes));
  check_same_bits(run(in, of_tensor), run(in, of_function));
}

TEST_CASE("the tiles of a tensor of pairs are counted", "[block_mask][keep]") {
  const auto i = at::arange(512).unsqueeze(1), j = at::arange(512);
  CHECK(counts(BlockMask::kept(j.le(i))) == "16 tiles, 6 empty, 6 full");
  // Three tiles of 200 x 333 pairs are narrower, and three are lower.
  const auto keep = at::zeros({3, 2, 200, 333}, at::kBool);
  CHECK(counts(BlockMask::kept(keep)) == "36 tiles, 36 empty, 0 full");
  keep[2][1][199][332] = true;
  CHECK(counts(BlockMask::kept(keep)) == "36 tiles, 35 empty, 0 full");
  CHECK(counts(BlockMask::kept(keep.bitwise_not())) == "36 tiles, 0 empty, 35 full");
  CHECK(counts(BlockMask::kept(keep[2])) == "12 tiles, 11 empty, 0 full");
  const auto other = draw_keep({2, 500, 300}).transpose(1, 2);
  const auto of_transposed = BlockMask::kept(other), of_copy = BlockMask::kept(other.contiguous());
  CHECK(of_copy.count().empty > 0);
  CHECK(bit_equal(of_transposed.classes()->classes, of_copy.classes()->classes));
  // Expanded dimensions are kept once.
  CHECK(counts(BlockMask::kept(keep[2].unsqueeze(0).expand({5, 2, 200, 333}))) ==
        "12 tiles, 11 empty, 0 full");
  CHECK(counts(BlockMask::kept(keep[2][1].expand({5, 7, 200, 333}))) == "6 tiles, 5 empty, 0 full");
}

TEST_CASE("a kept tensor of pairs serves many calls, and may change", "[block_mask][keep]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const auto keep = draw_keep({2, 300, 300});
  const auto blocks = BlockMask::kept(keep);
  const auto in = draw(2, 2, 300, 300), other = draw(1, 2, 300, 300, at::kBFloat16);
  const auto x = in.q.clone().requires_grad_(true);
  const auto want = run(in, blocks, {.backend = backend}),
             want_other = run(other, blocks, {.backend = backend});
  const auto y = attention(x, in.k, in.v, {.backend = backend}, {.block_mask = blocks}).output;
  keep.bitwise_not_();  // between the passes
  CHECK(bit_equal(torch::autograd::grad({y}, {x}, {in.grad_output})[0], want.grad_q));
  for (int step = 0; step < 2; ++step) {
    check_same_bits(run(in, blocks, {.backend = backend}), want);
    check_same_bits(run(other, blocks, {.backend = backend}), want_other);
  }
  CHECK_FALSE(bit_equal(run(in, BlockMask::kept(keep), {.backend = backend}).output, want.output));
}

TEST_CASE("a tensor of pairs that hides all gives zeros", "[block_mask][keep]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const int64_t L = GENERATE(3, 300);
  const auto in = draw(1, 2, L, 300);
  for (const auto& x : run(in, BlockMask::kept(at::zeros({L, 300}, at::kBool)), {.backend = backend}).all())
    CHECK(is_zero(x));
  const auto keep = at::ones({L, 300}, at::kBool);
  keep[1].fill_(false);
  const auto got = run(in, BlockMask::kept(keep), {.backend = backend});
  CHECK(is_zero(got.output.select(2, 1)));
  CHECK(is_zero(got.grad_q.select(2, 1)));
  CHECK_FALSE(is_zero(got.output.select(2, 2)));
}

TEST_CASE("a tensor of pairs takes part beside other masks and a score", "[block_mask][keep]") {
  const auto in = draw(2, 2, 300, 333);
  const auto keep = draw_keep({2, 1, 300, 333}), also = draw_keep({2, 300, 333});
  const auto score = score_mod([](auto s, auto pair) { return s - 0.01f * (pair.query - pair.key); });
  const auto result = [&](Backend backend, const Mask& mask, const BlockMask& blocks) {
    return attention(in.q, in.k, in.v, {.window = {250, 20}, .backend = backend},
                     {.mask = mask, .score = score, .block_mask = blocks, .logsumexp = true});
  };
  const auto both =
      Mask::per_head(Mask::keep(also)) & Mask::keep(keep) & Mask::key_lengths(at::tensor({300, 90}));
  const auto one = Mask::per_head(Mask::keep(also)) & Mask::key_lengths(at::tensor({300, 90}));
  for (const auto backend : {Backend::Native, Backend::Reference}) {
    const auto got = result(backend, one, BlockMask::kept(keep)), want = result(backend, both, {});
    CHECK_CLOSE(got.output, want.output);
    CHECK_CLOSE(got.logsumexp, want.logsumexp);
  }
}

TEST_CASE("a tensor of pairs that was kept in inference mode can be trained with", "[block_mask][keep]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const auto keep = draw_keep({300, 300});
  BlockMask blocks;
  {
    const c10::InferenceMode inference;
    blocks = BlockMask::kept(keep.clone());
  }
  CHECK_FALSE(blocks.mask().function()->captured()[0]->tensor.is_inference());
  const auto in = draw(1, 2, 300, 300);
  check_same_bits(run(in, blocks, {.backend = backend}),
                  run(in, BlockMask::kept(keep), {.backend = backend}));
}

TEST_CASE("BlockMask::kept refuses bad tensors of pairs by name", "[block_mask][keep][errors]") {
  CHECK(value_error([] { BlockMask::kept(at::Tensor()); }) ==
        "BlockMask::kept: expected keep to be a tensor, got an undefined one");
  CHECK(
      type_error([] {
        BlockMask::kept(at::ones({3, 4}));
      }) ==
      "BlockMask::kept: expected keep to be a bool tensor (true: may attend), got Float tensor of shape (3, "
      "4)");
  CHECK(type_error([] {
          BlockMask::kept(at::ones({3, 4}, at::kLong));
        }).find("got Long") != std::string::npos);
  const auto shape = [](at::IntArrayRef sizes) {
    return value_error([&] { BlockMask::kept(at::ones(sizes, at::kBool)); });
  };
  CHECK(shape({5}) ==
        "BlockMask::kept: expected keep of shape (L, S), (H, L, S), (B, 1, L, S) or (B, H, L, S) and not "
        "empty, got Bool tensor of shape (5,)");
  CHECK(shape({1, 1, 1, 3, 3}).ends_with("got Bool tensor of shape (1, 1, 1, 3, 3)"));
  CHECK(shape({0, 3}).ends_with("got Bool tensor of shape (0, 3)"));
  CHECK(shape({0, 2, 3, 3}).ends_with("got Bool tensor of shape (0, 2, 3, 3)"));
  CHECK(shape({1, 1}) == "no error");
  CHECK(value_error([] {
          BlockMask::kept(at::ones({3, 4}, at::TensorOptions(at::kBool).device(at::kMeta)));
        }) == "BlockMask::kept: expected keep on the CPU, got it on meta");
}

TEST_CASE("a call that a kept tensor of pairs does not fit is refused", "[block_mask][keep][errors]") {
  const auto message = [](const BlockMask& blocks, const Inputs& in, Backend backend = Backend::Auto) {
    return value_error([&] { attention(in.q, in.k, in.v, {.backend = backend}, {.block_mask = blocks}); });
  };
  const auto blocks = BlockMask::kept(at::ones({2, 20, 30}, at::kBool));
  CHECK(message(blocks, draw(5, 2, 20, 30)) == "no error");
  CHECK(
      message(blocks, draw(2, 2, 21, 30)) ==
      "attention: expected a block_mask kept for (B, H, L, S) = (2, 2, 21, 30), got one for (1, 2, 20, 30)");
  CHECK(message(blocks, draw(2, 4, 20, 30)).ends_with("(2, 4, 20, 30), got one for (1, 2, 20, 30)"));
  CHECK(message(BlockMask::kept(at::ones({3, 1, 20, 30}, at::kBool)), draw(2, 2, 20, 30))
            .ends_with("(2, 2, 20, 30), got one for (3, 1, 20, 30)"));
  // The function alone, as a layer takes it, has no tiles to compare.
  for (const auto backend : {Backend::Native, Backend::Reference}) {
    CHECK(message(blocks.mask(), draw(2, 2, 20, 30), backend) == "no error");
    CHECK(message(blocks.mask(), draw(2, 2, 20, 31), backend) ==
          "BlockMask::kept: expected a call with 20 queries and 30 keys, as the tensor has, got one with 20 "
          "and 31");
    const auto heads = draw(1, 3, 20, 30);
    CHECK(error_of<c10::IndexError>([&] {
            attention(heads.q, heads.k, heads.v, {.backend = backend}, {.block_mask = blocks.mask()});
          }) == "captured: expected index 1 of a tensor of shape (1, 2, 20, 30) in [0, 2), got 2");
    const auto batch = draw(3, 1, 20, 30);
    CHECK(error_of<c10::IndexError>([&] {
            attention(batch.q, batch.k, batch.v, {.backend = backend},
                      {.block_mask = BlockMask::kept(at::ones({2, 1, 20, 30}, at::kBool)).mask()});
          }) == "captured: expected index 0 of a tensor of shape (2, 1, 20, 30) in [0, 2), got 2");
  }
}
