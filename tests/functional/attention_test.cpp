#include <array>
#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "kernels/dropout_counter.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/naive_attention.h"

using namespace attentive;
using attentive::test::kInfinity;
using attentive::test::kNaN;
using attentive::test::naive_attention;
using attentive::test::NaiveCall;

namespace {

struct Shapes {
  int64_t B = 2, H = 4, Hkv = 2, L = 5, S = 7, D = 3, Dv = 6;
};

NaiveCall random_call(const Shapes& s = {}) {
  at::manual_seed(5);
  NaiveCall call;
  call.q = at::randn({s.B, s.H, s.L, s.D}, at::kDouble);
  call.k = at::randn({s.B, s.Hkv, s.S, s.D}, at::kDouble);
  call.v = at::randn({s.B, s.Hkv, s.S, s.Dv}, at::kDouble);
  return call;
}

AttentionResult result_of(const NaiveCall& call, Mask mask = {}) {
  AttentionExtras extras;
  if (call.keep.defined()) mask &= Mask::keep(call.keep);
  if (call.bias.defined()) mask &= Mask::bias(call.bias);
  if (call.key_lengths.defined()) mask &= Mask::key_lengths(call.key_lengths);
  if (call.query_lengths.defined()) mask &= Mask::query_lengths(call.query_lengths);
  extras.mask = mask;
  extras.alibi_slopes = call.slopes;
  extras.sinks = call.sinks;
  extras.weights = Weights::Clean;
  extras.logsumexp = true;
  auto options = call.options;
  options.backend = Backend::Reference;
  return attention(call.q, call.k, call.v, options, extras);
}

void check_definition(const NaiveCall& call, const Mask& mask = {}) {
  const auto want = naive_attention(call);
  const auto got = result_of(call, mask);
  CHECK_CLOSE(got.output, want.output);
  CHECK_CLOSE(got.weights, want.weights);
  CHECK_CLOSE(got.logsumexp, want.logsumexp);
}

}  // namespace

TEST_CASE("attention equals the loops of its definition", "[attention]") {
  auto call = random_call();
  SECTION("plain, grouped heads, value dim of its own") {}
  SECTION("scale") {
    call.options.scale = 1.7;
  }
  SECTION("negative scale") {
    call.options.scale = -0.3;
  }
  SECTION("bottom-right causal") {
    call.options.causal = Causal::BottomRight;
  }
  SECTION("top-left causal") {
    call.options.causal = Causal::TopLeft;
  }
  SECTION("window on both sides") {
    call.options.window = {2, 1};
  }
  SECTION("window left only") {
    call.options.window = {1, -1};
  }
  SECTION("window right only") {
    call.options.window = {-1, 0};
  }
  SECTION("window of the token itself") {
    call.options.window = {0, 0};
  }
  SECTION("causal window") {
    call.options.causal = Causal::BottomRight;
    call.options.window = {3, 0};
  }
  SECTION("softcap") {
    call.options.softcap = 0.8;
  }
  SECTION("alignments and lengths") {
    call.options.causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
    call.options.align = GENERATE(Align::BottomRight, Align::TopLeft, Align::Lengths);
    call.options.window = GENERATE(Window{}, Window{2, 1});
    call.slopes = at::rand({2, 4}, at::kDouble);
    call.keep = at::rand({1, 4, 5, 7}).gt(0.2);
    call.bias = at::randn({2, 1, 5, 1}, at::kDouble);
    call.key_lengths = at::tensor({6, 2});
    if (GENERATE(true, false)) call.query_lengths = at::tensor({3, 5});
  }
  SECTION("softmax plus one") {
    call.options.softmax_plus_one = true;
  }
  SECTION("sinks") {
    call.sinks = at::randn({4}, at::kDouble);
  }
  SECTION("alibi") {
    call.slopes = at::rand({4}, at::kDouble);
  }
  SECTION("keep mask") {
    call.keep = at::rand({2, 4, 5, 7}).gt(0.4);
  }
  SECTION("keep mask over heads") {
    call.keep = at::rand({2, 1, 5, 7}).gt(0.4);
  }
  SECTION("key mask (1, 1, S)") {
    call.keep = at::rand({1, 1, 1, 7}).gt(0.4);
  }
  SECTION("bias") {
    call.bias = at::randn({4, 5, 7}, at::kDouble).unsqueeze(0);
  }
  SECTION("bias of -inf") {
    call.bias = at::randn({1, 4, 5, 7}, at::kDouble).masked_fill(at::rand({1, 4, 5, 7}).gt(0.5), -kInfinity);
  }
  SECTION("everything at once") {
    call.options.scale = 0.4;
    call.options.causal = Causal::BottomRight;
    call.options.window = {4, -1};
    call.options.softcap = 2.0;
    call.sinks = at::randn({4}, at::kDouble);
    call.slopes = at::rand({4}, at::kDouble);
    call.keep = at::rand({2, 4, 5, 7}).gt(0.3);
    call.bias = at::randn({2, 1, 5, 7}, at::kDouble);
  }
  check_definition(call);
}

TEST_CASE("causal alignments with more queries than keys leave empty rows", "[attention]") {
  auto call = random_call({.L = 7, .S = 4});
  call.options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  check_definition(call);
  if (call.options.causal == Causal::BottomRight) {
    CHECK(result_of(call).output.slice(2, 0, 3).eq(0).all().item<bool>());
  }
}

TEST_CASE("key masks and lengths", "[attention][mask]") {
  auto call = random_call();
  const auto lengths = at::arange(3, 8, 4);  // 3, 7
  call.keep = at::arange(7).view({1, 1, 1, 7}).lt(lengths.view({2, 1, 1, 1}));
  const auto want = naive_attention(call);
  call.keep.reset();
  CHECK_CLOSE(result_of(call, Mask::key_lengths(lengths)).output, want.output);
  const auto keys = at::arange(7).lt(lengths.unsqueeze(1));
  CHECK_CLOSE(result_of(call, Mask::key_keep(keys)).output, want.output);
  CHECK_CLOSE(result_of(call, Mask::key_keep(keys.to(at::kLong))).output, want.output);
}

TEST_CASE("terms of a mask combine", "[attention][mask]") {
  auto call = random_call();
  const auto a = at::rand({5, 7}).gt(0.3), b = at::rand({2, 4, 5, 7}).gt(0.3);
  const auto c = at::randn({5, 7}, at::kDouble), d = at::randn({1, 4, 1, 7}, at::kDouble);
  const auto lengths = at::full({2}, 5, at::kLong), shorter = at::full({2}, 4, at::kLong);
  call.keep = a.bitwise_and(b).bitwise_and(at::arange(7).lt(4));
  call.bias = c + d;
  const auto want = naive_attention(call);
  call.keep.reset();
  call.bias.reset();
  const auto mask = Mask(a) & Mask::hide(b.bitwise_not()) & Mask::bias(c) & Mask::bias(d) &
                    Mask::key_lengths(lengths) & Mask::key_lengths(shorter);
  CHECK_CLOSE(result_of(call, mask).output, want.output);
}

TEST_CASE("rank-3 masks say what their first dimension is", "[attention][mask][errors]") {
  auto call = random_call({.B = 4});  // as many batches as heads: guessing would go wrong silently
  const auto mask = at::rand({4, 5, 7}).gt(0.4);
  CHECK(test::value_error([&] {
          return result_of(call, mask);
        }).find("could be per batch or per head; say Mask::per_batch or Mask::per_head") !=
        std::string::npos);
  call.keep = mask.unsqueeze(1);
  const auto per_batch = naive_attention(call).output;
  call.keep = mask.unsqueeze(0);
  const auto per_head = naive_attention(call).output;
  call.keep.reset();
  CHECK_CLOSE(result_of(call, Mask::per_batch(mask)).output, per_batch);
  CHECK_CLOSE(result_of(call, Mask::per_head(mask)).output, per_head);
}

TEST_CASE("ranks 2, 3 and 5 are the 4-D call without or with more leading sizes", "[attention]") {
  const auto call = random_call({.B = 6, .H = 2, .Hkv = 2});
  const auto want = naive_attention(call).output;
  CHECK_CLOSE(attention(call.q[0][0], call.k[0][0], call.v[0][0]), want[0][0]);
  const auto one_head = attention(call.q.select(1, 1), call.k.select(1, 1), call.v.select(1, 1));
  CHECK_CLOSE(one_head, want.select(1, 1));
  const auto five = [](const at::Tensor& x) { return x.unflatten(0, {2, 3}); };
  CHECK_CLOSE(attention(five(call.q), five(call.k), five(call.v)), five(want));
}

TEST_CASE("several biases are added in the wider dtype", "[attention][mask]") {
  const auto type = GENERATE(at::kDouble, at::kFloat);
  const auto narrow = type == at::kDouble ? at::kFloat : at::kBFloat16;
  const auto backend = GENERATE(Backend::Auto, Backend::Reference);
  at::manual_seed(2);
  const auto q = at::randn({1, 2, 4, 8}, type), k = at::randn({1, 2, 5, 8}, type);
  const auto one = at::randn({4, 5}).to(narrow), other = (at::randn({4, 5}) * 100).to(narrow);
  const auto got = attention(q, k, k, {.backend = backend}, {.mask = Mask::bias(one) & Mask::bias(other)});
  const auto want =
      attention(q, k, k, {.backend = backend}, {.mask = Mask::bias(one.to(type) + other.to(type))});
  CHECK(bit_equal(got.output, want.output));
}

TEST_CASE("a query without keys gives zeros and no NaN, forward and backward", "[attention][empty]") {
  auto call = random_call();
  auto keep = at::ones({5, 7}, at::kBool);
  keep[2].fill_(false);
  const auto bias = at::zeros({5, 7}, at::kDouble);
  bias[2].fill_(-kInfinity);
  const auto mask = GENERATE_COPY(Mask(keep), Mask::bias(bias));
  const bool with_sink = GENERATE(false, true);
  call.options.softmax_plus_one = with_sink;
  for (auto* x : {&call.q, &call.k, &call.v}) x->requires_grad_(true);
  const auto got = result_of(call, mask);
  CHECK(got.output.select(2, 2).eq(0).all().item<bool>());
  CHECK(got.weights.select(2, 2).eq(0).all().item<bool>());
  CHECK(got.logsumexp.select(2, 2).eq(-kInfinity).all().item<bool>());
  // Anomaly mode throws at the first NaN inside the graph, even one that a mask would hide later.
  const torch::autograd::DetectAnomalyGuard anomaly;
  const auto logsumexp = got.logsumexp.masked_fill(got.logsumexp.isinf(), 0.0);
  (got.output.sum() + logsumexp.sum()).backward();
  CHECK(call.q.grad().select(2, 2).eq(0).all().item<bool>());
  for (auto* x : {&call.q, &call.k, &call.v}) CHECK(x->grad().isfinite().all().item<bool>());
}

TEST_CASE("a float mask of the lowest number over a whole row stays a softmax", "[attention][empty]") {
  auto call = random_call({.B = 1, .H = 1, .Hkv = 1});
  call.bias = at::full({1, 1, 5, 7}, std::numeric_limits<float>::lowest(), at::kDouble);
  check_definition(call);
}

TEST_CASE("keys that no query sees may hold NaN or Inf", "[attention][nan]") {
  const double poison = GENERATE(kNaN, kInfinity, -kInfinity);
  auto call = random_call();
  const auto lengths = at::full({2}, 4, at::kLong);
  const auto clean = result_of(call, Mask::key_lengths(lengths));
  call.k.slice(2, 4).fill_(poison);
  call.v.slice(2, 4).fill_(poison);
  for (auto* x : {&call.q, &call.k, &call.v}) x->requires_grad_(true);
  const auto got = result_of(call, Mask::key_lengths(lengths));
  CHECK(bit_equal(got.output, clean.output));
  got.output.sum().backward();
  CHECK(call.q.grad().isfinite().all().item<bool>());
  CHECK(call.k.grad().slice(2, 4).eq(0).all().item<bool>());
  CHECK(call.v.grad().slice(2, 4).eq(0).all().item<bool>());
}

TEST_CASE("a non-finite key enters no masked score", "[attention][nan]") {
  auto call = random_call({.L = 7, .S = 7});
  call.options.causal = Causal::BottomRight;
  const auto clean = result_of(call).output;
  call.k.select(2, 6).fill_(kNaN);  // only the last query may see it
  CHECK(bit_equal(result_of(call).output.slice(2, 0, 6), clean.slice(2, 0, 6)));
}

TEST_CASE("empty sizes give empty or zero results", "[attention][empty]") {
  const auto run = [](Shapes s) {
    auto call = random_call(s);
    for (auto* x : {&call.q, &call.k, &call.v}) x->requires_grad_(true);
    const auto got = result_of(call);
    CHECK(got.output.sizes() == at::IntArrayRef({s.B, s.H, s.L, s.Dv}));
    CHECK(got.output.eq(0).all().item<bool>());
    got.output.sum().backward();
    CHECK(call.q.grad().eq(0).all().item<bool>());
  };
  run({.S = 0});
  run({.L = 0});
  run({.B = 0});
}

TEST_CASE("a call without keys is one whose only key is hidden", "[attention][empty]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Reference);
  const std::string extra = GENERATE("nothing", "sinks", "softmax plus one");
  const std::string option = GENERATE("none", "causal", "window", "softcap", "dropout", "lengths");
  INFO(to_string(backend) << ", " << extra << ", " << option);
  at::manual_seed(1);
  const auto q = at::randn({2, 4, 5, 3}), k = at::randn({2, 2, 1, 3}), v = at::randn({2, 2, 1, 6}),
             sinks = at::randn({4});
  const auto run = [&](int64_t keys) {
    const std::vector<at::Tensor> leaves = {
        q.clone().requires_grad_(), k.narrow(2, 0, keys).clone().requires_grad_(),
        v.narrow(2, 0, keys).clone().requires_grad_(), sinks.clone().requires_grad_()};
    AttentionOptions options{.softmax_plus_one = extra == "softmax plus one", .backend = backend};
    AttentionExtras extras{.weights = Weights::Clean, .logsumexp = true};
    if (extra == "sinks") extras.sinks = leaves[3];
    if (option == "causal") options.causal = Causal::BottomRight;
    if (option == "window") options.window = {2, 0};
    if (option == "softcap") options.softcap = 2.0;
    if (option == "dropout") options.dropout_p = 0.5;
    if (option == "lengths" || keys > 0) extras.mask = Mask::key_lengths(at::zeros({2}, at::kLong));
    const auto result = attention(leaves[0], leaves[1], leaves[2], options, extras);
    CHECK(result.output.sizes() == at::IntArrayRef({2, 4, 5, 6}));
    CHECK(result.output.eq(0).all().item<bool>());
    CHECK(result.logsumexp.eq(-kInfinity).all().item<bool>());
    CHECK(result.weights.eq(0).all().item<bool>());
    const auto logsumexp = result.logsumexp.masked_fill(result.logsumexp.isinf(), 0.0);
    auto gradients = torch::autograd::grad({result.output.sum() + logsumexp.sum()}, leaves, {},
                                           /*retain_graph=*/true, false, /*allow_unused=*/true);
    // The gradient is also right if no -inf is removed from the sum, since -inf is a constant.
    const auto direct = torch::autograd::grad({result.logsumexp}, {leaves[3]},
                                              {at::ones_like(result.logsumexp)}, false, false, true);
    gradients.push_back(direct[0]);
    return gradients;
  };
  const auto none = run(0), hidden = run(1);
  CHECK(none[0].eq(0).all().item<bool>());
  CHECK(hidden[0].eq(0).all().item<bool>());
  for (const auto* gradients : {&none, &hidden}) {
    for (const size_t n : {size_t{3}, size_t{4}}) {
      CHECK((*gradients)[n].defined() == (extra == "sinks"));
      if (extra == "sinks") CHECK((*gradients)[n].eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("a last {} is no mask, and an undefined generator is refused", "[attention][errors]") {
  at::manual_seed(2);
  const auto q = at::randn({1, 2, 3, 4}), packed = at::randn({3, 2, 4});
  const auto ends = at::tensor({0, 3}, at::kInt);
  const AttentionOptions options{.causal = Causal::BottomRight};
  static_assert(std::is_same_v<decltype(attention(q, q, q, options, {})), at::Tensor>);
  CHECK(bit_equal(attention(q, q, q, {.causal = Causal::BottomRight}, {}), attention(q, q, q, options)));
  CHECK(bit_equal(attention(q, q, q, {}, {}), attention(q, q, q)));
  CHECK(explain(q, q, q, {}, {}).to_string() == explain(q, q, q).to_string());
  CHECK(bit_equal(attention_varlen(packed, packed, packed, ends, ends, {}, {}).output,
                  attention_varlen(packed, packed, packed, ends, ends).output));

  const AttentionExtras undefined{.generator = at::Generator()};
  const auto refused = [](const char* caller) {
    return std::string(caller) + ": expected generator to be a CPU generator, got an undefined one";
  };
  using test::value_error;
  CHECK(value_error([&] { attention(q, q, q, {.dropout_p = 0.5}, undefined); }) == refused("attention"));
  CHECK(value_error([&] { attention(q, q, q, {}, undefined); }) == refused("attention"));
  CHECK(value_error([&] { explain(q, q, q, {}, undefined); }) == refused("explain"));
  CHECK(value_error([&] { attention_varlen(packed, packed, packed, ends, ends, {}, undefined); }) ==
        refused("attention_varlen"));
}

TEST_CASE("gradients equal central differences for every option", "[attention][gradcheck]") {
  auto call = random_call({.B = 1, .L = 4, .S = 5, .D = 2, .Dv = 3});
  std::vector<at::Tensor> inputs = {call.q, call.k, call.v};
  SECTION("plain") {}
  SECTION("causal") {
    call.options.causal = Causal::BottomRight;
  }
  SECTION("top-left") {
    call.options.causal = Causal::TopLeft;
  }
  SECTION("window") {
    call.options.window = {1, 1};
  }
  SECTION("scale") {
    call.options.scale = 0.9;
  }
  SECTION("softcap") {
    call.options.softcap = 0.7;
  }
  SECTION("softmax plus one") {
    call.options.softmax_plus_one = true;
  }
  SECTION("keep") {
    call.keep = at::rand({1, 4, 4, 5}).gt(0.5);
  }
  SECTION("bias, sinks and slopes are differentiable too") {
    call.bias = at::randn({1, 4, 4, 5}, at::kDouble);
    call.sinks = at::randn({4}, at::kDouble);
    call.slopes = at::rand({4}, at::kDouble);
    inputs.insert(inputs.end(), {call.bias, call.sinks, call.slopes});
  }
  const auto f = [&](const std::vector<at::Tensor>& x) {
    auto c = call;
    c.q = x[0];
    c.k = x[1];
    c.v = x[2];
    if (x.size() > 3) {
      c.bias = x[3];
      c.sinks = x[4];
      c.slopes = x[5];
    }
    const auto result = result_of(c);
    // Weights and finite logsumexps are part of the result, so that their gradients are checked as well.
    const auto lse = result.logsumexp.masked_fill(result.logsumexp.isinf(), 0.0);
    return at::cat({result.output, result.weights, lse.unsqueeze(3)}, 3);
  };
  CHECK(attentive::test::gradcheck(f, inputs) == "");
}

TEST_CASE("a long window is computed in blocks and equals the whole matrix", "[attention][window]") {
  const auto window = GENERATE(Window{5, 2}, Window{0, 0}, Window{130, 0}, Window{300, 300});
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  auto call = random_call({.B = 1, .H = 2, .Hkv = 1, .L = 200, .S = 230, .D = 4, .Dv = 4});
  call.options.causal = causal;
  call.options.window = window;
  call.keep = at::rand({1, 2, 200, 230}).gt(0.1);
  call.slopes = at::rand({2}, at::kDouble);
  const auto want = naive_attention(call);
  AttentionExtras extras;
  extras.mask = Mask::keep(call.keep);
  extras.alibi_slopes = call.slopes;
  extras.logsumexp = true;
  call.options.backend = Backend::Reference;
  const auto got = attention(call.q, call.k, call.v, call.options, extras);
  CHECK_CLOSE(got.output, want.output);
  CHECK_CLOSE(got.logsumexp, want.logsumexp);
}

TEST_CASE("counter dropout is a function of key and positions alone", "[attention][dropout]") {
  auto call = random_call({.L = 9, .S = 150});
  call.options.dropout_p = 0.3;
  call.options.dropout_stream = DropoutStream::Counter;
  at::manual_seed(99);
  const auto key = kernels::draw_dropout_key(std::nullopt);
  at::manual_seed(99);
  const auto got = result_of(call);
  call.survivors = at::zeros({2, 4, 9, 150}, at::kBool);
  auto survivors = call.survivors.accessor<bool, 4>();
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 9; ++i)
        for (int64_t j = 0; j < 150; ++j)
          survivors[b][h][i][j] = kernels::dropout_words(key, b, h, static_cast<uint32_t>(i + 150 - 9), j)
                                      .survives(static_cast<int>(j / 16 % 8), kernels::keep_threshold(0.3));
  CHECK_CLOSE(got.output, naive_attention(call).output);
  const double kept = call.survivors.to(at::kDouble).mean().item<double>();
  CHECK(std::abs(kept - 0.7) < 0.02);
}

TEST_CASE("philox with the published key and counter", "[dropout]") {
  // Philox4x32-7 known answers of the Random123 distribution (kat_vectors).
  const auto words = kernels::philox({}, 0);
  CHECK(std::to_array(words.words) ==
        std::array<uint32_t, 4>{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
}

TEST_CASE("windowed and whole counter dropout agree", "[attention][dropout]") {
  auto call = random_call({.B = 1, .L = 200, .S = 200, .D = 4, .Dv = 4});
  call.options.window = {20, 0};
  call.options.dropout_p = 0.5;
  call.options.backend = Backend::Reference;
  at::manual_seed(3);
  const auto blocks = attention(call.q, call.k, call.v, call.options);
  at::manual_seed(3);
  CHECK_CLOSE(result_of(call).output, blocks);  // weights are requested, so the whole matrix is computed
}

TEST_CASE("the aten stream draws what softmax and nn::Dropout draw", "[attention][dropout]") {
  auto call = random_call({.H = 2});
  const auto q = call.q.to(at::kFloat), k = call.k.to(at::kFloat), v = call.v.to(at::kFloat);
  const auto weights = at::softmax(at::matmul(q, k.transpose(2, 3)) / std::sqrt(3.0), -1);
  at::manual_seed(21);
  const auto want = at::matmul(at::dropout(weights, 0.4, true), v);
  const auto after = at::rand({4});
  at::manual_seed(21);
  const AttentionOptions options{.dropout_p = 0.4, .dropout_stream = DropoutStream::Aten};
  CHECK_CLOSE(attention(q, k, v, options), want);
  CHECK(bit_equal(at::rand({4}), after));
  auto generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(21);
  AttentionExtras extras;
  extras.generator = generator;
  CHECK_CLOSE(attention(q, k, v, options, extras).output, want);
}

TEST_CASE("dropout of 0 and 1 draws nothing", "[attention][dropout]") {
  auto call = random_call();
  const auto stream = GENERATE(DropoutStream::Any, DropoutStream::Aten, DropoutStream::Counter);
  call.options.dropout_stream = stream;
  at::manual_seed(1);
  const auto expected = at::rand({3});
  at::manual_seed(1);
  result_of(call);
  call.options.dropout_p = 1.0;
  CHECK(result_of(call).output.eq(0).all().item<bool>());
  CHECK(bit_equal(at::rand({3}), expected));
}

TEST_CASE("clean and dropped weights", "[attention][dropout]") {
  auto call = random_call();
  call.options.dropout_p = 0.5;
  AttentionExtras extras;
  extras.weights = Weights::Clean;
  CHECK_CLOSE(attention(call.q, call.k, call.v, call.options, extras).weights.sum(-1),
              at::ones({2, 4, 5}, at::kDouble));
  extras.weights = Weights::Dropped;
  const auto dropped = attention(call.q, call.k, call.v, call.options, extras);
  CHECK(dropped.weights.eq(0).any().item<bool>());
  CHECK_CLOSE(at::matmul(dropped.weights, call.v.repeat_interleave(2, 1)), dropped.output);
}
