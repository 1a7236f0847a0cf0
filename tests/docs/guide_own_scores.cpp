// Examples of docs/guide/own_scores.md and docs/guide/from_another_framework.md.

#include <ATen/ATen.h>

#include <attentive/attention.h>

#include "docs/examples.h"

using namespace attentive;

namespace {

struct Inputs {
  at::Tensor q, k, v;
};

Inputs draw(int64_t heads, int64_t tokens) {
  const auto one = [&] { return at::randn({2, heads, tokens, 32}).requires_grad_(); };
  return {one(), one(), one()};
}

}  // namespace

EXAMPLE(own_score) {
  const auto q = at::randn({2, 4, 100, 32}), k = at::randn({2, 4, 100, 32}), v = at::randn({2, 4, 100, 32});
  const auto slopes = at::rand({4}).requires_grad_();

  const auto slope = captured(slopes);
  const auto score = score_mod(
      [=](auto s, auto pair) { return s + slope(pair.head) * (pair.key - pair.query) - 0.5f * softplus(s); });
  const auto y =
      attention(q, k, v, {.causal = Causal::BottomRight, .dropout_p = 0.1}, {.score = score}).output;
  y.sum().backward();
  std::cout << "output " << y.sizes() << ", gradient of the slopes " << slopes.grad().sizes() << "\n";
}

EXAMPLE(own_score_gallery) {
  const auto [q, k, v] = draw(4, 64);
  const auto slope = captured(at::rand({4})), table = captured(at::randn({4, 128})),
             width = captured(at::rand({4}) + 1);
  const auto hops = captured_indices(at::randint(8, {64, 64}, at::kLong)),
             document = captured_indices(at::arange(64).div(20, "floor"));
  const auto graph = captured(at::randn({8}));

  const std::vector<std::pair<std::string, AttentionExtras>> variants = {
      {"relative distance",
       {.score = score_mod([](auto s, auto pair) { return s + 0.01f * (pair.query - pair.key); })}},
      {"ALiBi", {.score = score_mod([=](auto s, auto pair) {
                   return s + slope(pair.head) * (pair.key - pair.query);
                 })}},
      {"softcap", {.score = score_mod([](auto s, auto) { return 20.0f * tanh(s / 20.0f); })}},
      {"learned table", {.score = score_mod([=](auto s, auto pair) {
                           return s + table(pair.head, pair.query - pair.key + pair.keys);
                         })}},
      {"Gaussian", {.score = score_mod([=](auto s, auto pair) {
                      const auto d = (pair.query - pair.key) / width(pair.head);
                      return s - 0.5f * d * d;
                    })}},
      {"graph distance",
       {.score = score_mod([=](auto s, auto pair) { return s + graph(hops(pair.query, pair.key)); })}},
      {"causal", {.block_mask = mask_mod([](auto pair) { return pair.key <= pair.query; })}},
      {"window", {.block_mask = mask_mod([](auto pair) {
                    return (pair.key <= pair.query) & (pair.query - pair.key < 16);
                  })}},
      {"prefix LM",
       {.block_mask = mask_mod([](auto pair) { return (pair.key <= pair.query) | (pair.key < 8); })}},
      {"documents",
       {.block_mask = mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); })}},
      {"dilated", {.block_mask = mask_mod([](auto pair) { return (pair.query - pair.key) % 4 == 0; })}},
      {"sigmoid",
       {.score = score_mod([](auto s, auto pair) { return sigmoid(s - log(pair.keys)); }),
        .normalise = Normalise::None}},
  };
  int equal = 0;
  for (const auto& [name, extras] : variants) {
    const auto y = attention(q, k, v, {}, extras).output;
    const auto definition = attention(q, k, v, {.backend = Backend::Reference}, extras).output;
    equal += y.allclose(definition, 1e-4, 1e-5);
  }
  std::cout << equal << " of " << variants.size() << " equal their definitions\n";
}

EXAMPLE(own_score_learned) {
  const auto [q, k, v] = draw(4, 64);
  auto table = at::zeros({4, 128}).requires_grad_();
  const auto number = captured(table);  // reads what `table` holds at each call
  const auto score =
      score_mod([=](auto s, auto pair) { return s + number(pair.head, pair.query - pair.key + pair.keys); });
  const auto target = at::randn({2, 4, 64, 32});
  for (int step = 0; step < 3; ++step) {
    const auto loss =
        (attention(q.detach(), k.detach(), v.detach(), {}, {.score = score}).output - target).square().mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    table.sub_(table.grad(), 50.0);
    table.mutable_grad().zero_();
  }
  std::cout << "the table has learned: " << (table.abs().max() > 0).item<bool>() << "\n";
}

EXAMPLE(own_block_mask) {
  const auto [q, k, v] = draw(4, 1024);
  const auto document = captured_indices(at::arange(1024).div(256, "floor"));
  const auto mask =
      mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); }, "documents");
  const auto blocks = BlockMask::kept(mask, /*batch=*/1, /*heads=*/1, /*queries=*/1024, /*keys=*/1024);
  const auto count = blocks.count();
  std::cout << count.empty << " of " << count.tiles << " tiles are empty, " << count.full << " are full\n";
  for (int layer = 0; layer < 2; ++layer)
    attention(q, k, v, {.causal = Causal::BottomRight}, {.block_mask = blocks}).output.sum().backward();
}

EXAMPLE(own_block_mask_tensor) {
  const auto [q, k, v] = draw(4, 1024);
  const auto place = at::arange(1024);
  const auto visible = (place.unsqueeze(1) - place).abs().lt(200);  // true: may attend
  const auto blocks = BlockMask::kept(visible);
  const auto count = blocks.count();
  std::cout << count.empty << " of " << count.tiles << " tiles are empty, " << count.full << " are full\n";
  for (int layer = 0; layer < 2; ++layer)
    attention(q, k, v, {}, {.block_mask = blocks}).output.sum().backward();
}

EXAMPLE(frameworks_recipes) {
  const auto bias = captured(at::randn({4, 64, 64})), scale = captured(at::full({4}, 10.0));
  const auto padding = captured_indices(at::tensor({0, 5}));
  const auto slopes = alibi_slopes(4).to(at::kBFloat16).view({4, 1});
  const auto table = captured((slopes * at::arange(64)).to(at::kFloat) / std::sqrt(32.0));

  // x-transformers: the bias inside the cap
  const auto capped = score_mod(
      [=](auto s, auto pair) { return 50.0f * tanh((s + bias(pair.head, pair.query, pair.key)) / 50.0f); });
  // Llama 4: blocks of 16 tokens, counted from the first that is no padding
  const auto blocks = mask_mod([=](auto pair) {
    return (pair.query - padding(pair.batch)) / 16 == (pair.key - padding(pair.batch)) / 16;
  });
  // Falcon: slopes and their products rounded to bfloat16, scaled with the scores
  const auto falcon = score_mod([=](auto s, auto pair) { return s + table(pair.head, pair.key); });
  // Swin v2: the cosine of q and k of length 1, with {.scale = 1.0}
  const auto cosine = score_mod([=](auto s, auto pair) { return s * scale(pair.head); });

  const auto x = at::randn({2, 4, 64, 32}), unit = x / x.norm(2, -1, /*keepdim=*/true);
  for (const auto& score : {capped, falcon}) attention(x, x, x, {}, {.score = score});
  attention(x, x, x, {.causal = Causal::BottomRight}, {.block_mask = blocks});
  attention(unit, unit, x, {.scale = 1.0}, {.score = cosine});
}
