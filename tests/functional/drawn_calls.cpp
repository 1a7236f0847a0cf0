// Compares random calls of attention(), forward and backward, with scalar loops in float64
// (tools/checks/drawn_calls).
//
//   drawn_calls --calls 10000 --seed 1            exit status 1 if a call failed
//   drawn_calls --calls 1 --seed 1 --first 4711   only that call of the run
//
// A call that fails is printed as a program. A backend that the call names may refuse it with an error that
// names the backend.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/parity/compare.h>

#include "kernels/dropout_counter.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/naive_attention.h"

using namespace attentive;
using namespace attentive::test;

namespace {

class Draw {
 public:
  Draw(uint64_t seed, int64_t number) {
    std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                           static_cast<uint32_t>(number)};
    random_.seed(sequence);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<int64_t>(values.size())));
  }

 private:
  std::mt19937_64 random_;
};

std::string name_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "at::kDouble";
    case at::kFloat:
      return "at::kFloat";
    case at::kHalf:
      return "at::kHalf";
    default:
      return "at::kBFloat16";
  }
}

std::string name_of(Causal causal) {
  return causal == Causal::None      ? "Causal::None"
         : causal == Causal::TopLeft ? "Causal::TopLeft"
                                     : "Causal::BottomRight";
}

std::string name_of(Backend backend) {
  constexpr std::array names = {"Auto", "Reference", "Torch", "Native"};
  return std::string("Backend::") + names[static_cast<size_t>(backend)];
}

std::string name_of(DropoutStream stream) {
  constexpr std::array names = {"Any", "Aten", "Counter"};
  return std::string("DropoutStream::") + names[static_cast<size_t>(stream)];
}

std::string name_of(Weights weights) {
  constexpr std::array names = {"None", "Clean", "Dropped"};
  return std::string("Weights::") + names[static_cast<size_t>(weights)];
}

std::string number(double x) {
  if (std::isnan(x)) return "NAN";
  if (std::isinf(x)) return x < 0 ? "-INFINITY" : "INFINITY";
  return fmt::format("{}", x);
}

std::string list(at::IntArrayRef sizes) {
  return fmt::format("{{{}}}", fmt::join(sizes.begin(), sizes.end(), ", "));
}

// Makes tensors and records the program that makes them.
class Program {
 public:
  explicit Program(Draw& draw) : draw_(draw) {}

  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  const std::string& text() const { return text_; }

  at::Tensor normal(const std::string& name, at::IntArrayRef sizes, at::ScalarType type,
                    double factor = 1.0) {
    const int64_t seed = draw_.below(1 << 30);
    at::manual_seed(static_cast<uint64_t>(seed));
    line(fmt::format("at::manual_seed({}); auto {} = (at::randn({}, at::kDouble) * {}).to({});", seed, name,
                     list(sizes), number(factor), name_of(type)));
    return (at::randn(sizes, at::kDouble) * factor).to(type);
  }
  at::Tensor bits(const std::string& name, at::IntArrayRef sizes, double share) {
    const int64_t seed = draw_.below(1 << 30);
    at::manual_seed(static_cast<uint64_t>(seed));
    line(fmt::format("at::manual_seed({}); auto {} = at::rand({}).lt({});", seed, name, list(sizes),
                     number(share)));
    return at::rand(sizes).lt(share);
  }
  // Sets a few places to a number that is not finite.
  void poison(at::Tensor& x, const std::string& name, bool zeros = false) {
    if (x.numel() == 0) return;
    const int64_t places = draw_.one_of<int64_t>({1, 1, 2, 7});
    const double value =
        zeros ? draw_.one_of({0.0, -0.0, -kInfinity}) : draw_.one_of({std::nan(""), kInfinity, -kInfinity});
    for (int64_t n = 0; n < places; ++n) {
      const int64_t place = draw_.below(x.numel());
      line(fmt::format("{}.view(-1)[{}].fill_({});", name, place, number(value)));
      x.view(-1)[place].fill_(value);
    }
  }
  // Makes a tensor (B, H, T, D) with a random memory layout and possibly with numbers that are not finite.
  at::Tensor laid_out(const std::string& name, int64_t B, int64_t H, int64_t T, int64_t D,
                      at::ScalarType type, double factor, bool poisoned) {
    at::Tensor x;
    const auto made = [&](at::IntArrayRef sizes) {
      x = normal(name, sizes, type, factor);
      if (poisoned) poison(x, name);
    };
    const auto then = [&](const std::string& code, const at::Tensor& value) {
      line(fmt::format("{0} = {0}{1};", name, code));
      x = value;
    };
    const auto strided = [&](int64_t b, int64_t h, int64_t t, int64_t d) {
      const int64_t last = (B - 1) * b + (H - 1) * h + (T - 1) * t + (D - 1) * d;
      made({std::max<int64_t>(last, 0) + 4});
      then(fmt::format(".as_strided({}, {}, 3)", list({B, H, T, D}), list({b, h, t, d})),
           x.as_strided({B, H, T, D}, {b, h, t, d}, 3));
    };
    if (B * H * T * D == 0 || draw_.one_in(3)) {
      made({B, H, T, D});
      return x;
    }
    switch (draw_.below(17)) {
      case 0:  // the layout of a projection
        made({B, T, H, D});
        then(".transpose(1, 2)", x.transpose(1, 2));
        break;
      case 1:  // features outside tokens
        made({B, H, D, T});
        then(".transpose(2, 3)", x.transpose(2, 3));
        break;
      case 2:  // every other row
        made({B, H, 2 * T, D});
        then(".slice(2, 1, 1000000, 2)", x.slice(2, 1, 1000000, 2));
        break;
      case 3:  // every third feature
        made({B, H, T, 3 * D});
        then(".slice(3, 1, 1000000, 3)", x.slice(3, 1, 1000000, 3));
        break;
      case 4:  // an offset
        made({B, H, T + 5, D + 3});
        then(fmt::format(".slice(2, 3, {}).slice(3, 1, {})", T + 3, D + 1),
             x.slice(2, 3, T + 3).slice(3, 1, D + 1));
        break;
      case 5:  // stride 0
        made({1, H, T, D});
        then(fmt::format(".expand({})", list({B, H, T, D})), x.expand({B, H, T, D}));
        break;
      case 6:
        made({B, 1, T, D});
        then(fmt::format(".expand({})", list({B, H, T, D})), x.expand({B, H, T, D}));
        break;
      case 7:
        made({B, H, 1, D});
        then(fmt::format(".expand({})", list({B, H, T, D})), x.expand({B, H, T, D}));
        break;
      case 8:
        made({B, H, T, 1});
        then(fmt::format(".expand({})", list({B, H, T, D})), x.expand({B, H, T, D}));
        break;
      case 9:
        made({1, 1, 1, 1});
        then(fmt::format(".expand({})", list({B, H, T, D})), x.expand({B, H, T, D}));
        break;
      case 10:  // rows that overlap: a window that slides by one or by two
        strided(H * (T + D), T + D, 1, 1);
        break;
      case 11:
        strided(H * (2 * T + D), 2 * T + D, 2, 1);
        break;
      case 12:  // heads and items that overlap
        strided(T * D + 7, 1, D, 1);
        break;
      case 13:
        strided(1, T * D, D, 1);
        break;
      case 14:  // overlapping rows with permuted features
        strided(T + D, 2, 1, T);
        break;
      case 15: {  // a pending change of sign, stride 2
        if (type != at::kDouble && type != at::kFloat) {
          made({T, B, D, H});
          then(".permute({1, 3, 0, 2})", x.permute({1, 3, 0, 2}));
          break;
        }
        made({B, H, T, D, 2});
        line(fmt::format("{0} = at::imag(at::conj(at::view_as_complex({0})));", name));
        x = at::imag(at::conj(at::view_as_complex(x)));
        break;
      }
      default:  // tokens outside items
        made({T, B, H, D});
        then(".permute({1, 2, 0, 3})", x.permute({1, 2, 0, 3}));
    }
    return x;
  }

 private:
  Draw& draw_;
  std::string text_;
};

enum class Mode { Gradients, NoGrad, Inference, Autocast };

// One random call: its tensors as given, the equivalent rank-4 call, and its program.
struct Call {
  at::Tensor q, k, v;  // as given
  AttentionOptions options;
  AttentionExtras extras;
  std::vector<at::Tensor> biases;
  std::vector<std::string> bias_names;
  NaiveCall meaning;  // rank 4; the numbers that the backend reads
  Mode mode = Mode::Gradients;
  at::ScalarType type = at::kFloat, autocast = at::kBFloat16;
  at::ScalarType computed = at::kFloat;  // dtype that the backend reads
  bool with_generator = false;
  uint64_t seed = 0;
  bool strided_directions = false;
  std::string text;
};

// Draws sizes of a bool or floating mask, which are (L, S) or broadcast to (B, H, L, S).
std::vector<int64_t> mask_sizes(Draw& draw, int64_t B, int64_t H, int64_t L, int64_t S, bool pairs_only) {
  if (pairs_only || draw.one_in(3)) return {L, S};
  return {draw.one_in(2) ? 1 : B, draw.one_in(2) ? 1 : H, draw.one_in(4) ? 1 : L, S};
}

Call draw_call(Draw& draw) {
  Call call;
  Program program(draw);
  call.type =
      draw.one_of({at::kDouble, at::kDouble, at::kFloat, at::kFloat, at::kHalf, at::kHalf, at::kBFloat16});
  call.mode = draw.one_of({Mode::Gradients, Mode::Gradients, Mode::Gradients, Mode::Gradients, Mode::NoGrad,
                           Mode::Inference, Mode::Autocast});
  call.autocast = draw.one_of({at::kBFloat16, at::kHalf});
  call.computed = call.mode == Mode::Autocast && call.type != at::kDouble ? call.autocast : call.type;
  call.seed = static_cast<uint64_t>(draw.below(1 << 30));
  // Shapes.
  const int64_t rank = draw.one_of<int64_t>({4, 4, 4, 4, 4, 4, 3, 2, 5});
  const auto size = [&](std::initializer_list<int64_t> usual) {
    return draw.one_in(30)  ? 0
           : draw.one_in(8) ? 1
           : draw.one_in(8) ? 1 + draw.below(140)
                            : draw.one_of(usual);
  };
  const int64_t B = rank < 3 ? 1 : draw.one_in(40) ? 0 : draw.one_of<int64_t>({1, 1, 2, 3});
  const int64_t Hkv = rank < 4 ? 1 : draw.one_of<int64_t>({1, 1, 2, 3});
  const int64_t H = rank < 4 ? 1 : Hkv * draw.one_of<int64_t>({1, 1, 2, 3});
  const int64_t L = size({2, 3, 5, 7, 8, 16, 17, 31, 33, 40}),
                S = draw.one_in(3) ? L : size({2, 3, 5, 8, 15, 16, 17, 31, 33, 47, 64, 70});
  const int64_t D = draw.one_of<int64_t>({1, 2, 3, 7, 8, 8, 16, 16, 17, 32, 40, 64, 65}),
                Dv = draw.one_in(6) ? draw.one_of<int64_t>({1, 3, 8, 16, 24, 33}) : D;
  // Half of the calls do without the options that PyTorch's kernels lack.
  const bool plain = draw.one_in(2);
  const auto rare = [&](int64_t n) { return !plain && draw.one_in(n); };
  // Special numbers.
  const bool poisoned = draw.one_in(6);
  const auto poison_here = [&] { return poisoned && draw.one_in(3); };
  const double factor = draw.one_of({1.0, 1.0, 1.0, 0.01, 3.0});
  auto q = program.laid_out("q", B, H, L, D, call.type, factor, poison_here());
  auto k = program.laid_out("k", B, Hkv, S, D, call.type, 1.0, poison_here());
  auto v = program.laid_out("v", B, Hkv, S, Dv, call.type, 1.0, poison_here());
  // Options.
  auto& options = call.options;
  std::string said;
  if (draw.one_in(4)) {
    options.scale = draw.one_of({0.5, 0.1, -0.3, 1.0, -0.125});
    said += fmt::format(".scale = {}, ", number(*options.scale));
  }
  options.causal = draw.one_of({Causal::None, Causal::None, Causal::BottomRight, Causal::TopLeft});
  said += fmt::format(".causal = {}, ", name_of(options.causal));
  if (rare(3)) {
    options.window = {draw.one_of<int64_t>({-1, 0, 2, 9, 50}), draw.one_of<int64_t>({-1, 0, 1, 6, 70})};
    said += fmt::format(".window = {{{}, {}}}, ", options.window.left, options.window.right);
  }
  if (rare(3)) {
    options.align = draw.one_of({Align::TopLeft, Align::Lengths, Align::Lengths});
    said += options.align == Align::Lengths ? ".align = Align::Lengths, " : ".align = Align::TopLeft, ";
  }
  if (rare(4)) {
    options.softcap = draw.one_of({0.5, 2.0, 30.0});
    said += fmt::format(".softcap = {}, ", number(*options.softcap));
  }
  const bool sinks = rare(4);
  if (!sinks && rare(5)) {
    options.softmax_plus_one = true;
    said += ".softmax_plus_one = true, ";
  }
  if (rare(4)) {
    options.dropout_p = draw.one_of({0.1, 0.5, 0.97, 1.0});
    options.dropout_stream = draw.one_of({DropoutStream::Any, DropoutStream::Aten, DropoutStream::Counter});
    said += fmt::format(".dropout_p = {}, .dropout_stream = {}, ", number(options.dropout_p),
                        name_of(options.dropout_stream));
    call.with_generator = draw.one_in(3);
  }
  options.backend = draw.one_of({Backend::Auto, Backend::Auto, Backend::Reference, Backend::Torch,
                                 Backend::Torch, Backend::Native, Backend::Native});
  said += fmt::format(".backend = {}", name_of(options.backend));
  // Masks: `keep` and `bias` are their combined meaning, (B, H, L, S).
  auto keep = at::ones({B, H, L, S}, at::kBool);
  auto bias = at::zeros({B, H, L, S}, at::kDouble);
  auto key_lengths = at::full({B}, S, at::kLong);
  bool biased = false;
  auto& mask = call.extras.mask;
  program.line("Mask mask;");
  const int64_t terms = draw.one_of<int64_t>({0, 0, 1, 1, 1, 2, 3});
  for (int64_t n = 0; n < terms; ++n) {
    const auto name = fmt::format("term{}", n);
    switch (draw.below(rank < 3 || rank > 4 ? 3 : 5)) {
      case 0:
      case 1: {
        const auto sizes = mask_sizes(draw, B, H, L, S, rank != 4);
        if (draw.one_in(2)) {
          auto t = program.bits(name, sizes, draw.one_of({0.8, 0.5, 0.1}));
          const bool wide = draw.one_in(3);
          if (wide) {
            program.line(fmt::format("{0} = {0}.to(at::kInt) * 3;", name));
            t = t.to(at::kInt) * 3;
          }
          if (wide || draw.one_in(2)) {
            program.line(fmt::format("mask &= Mask::keep({});", name));
            mask &= Mask::keep(t);
          } else {
            program.line(fmt::format("mask &= {};", name));
            mask &= t;
          }
          keep = keep.logical_and(t.ne(0));
        } else {
          const auto t = program.bits(name, sizes, draw.one_of({0.2, 0.5}));
          program.line(fmt::format("mask &= Mask::hide({});", name));
          mask &= Mask::hide(t);
          keep = keep.logical_and(t.logical_not());
        }
        break;
      }
      case 2: {
        const auto sizes = mask_sizes(draw, B, H, L, S, rank != 4);
        const auto type = draw.one_in(5) ? draw.one_of({at::kDouble, at::kFloat}) : call.computed;
        auto t = program.normal(name, sizes, type);
        if (draw.one_in(3)) program.poison(t, name, /*zeros=*/true);
        if (poison_here()) program.poison(t, name);
        if (call.mode != Mode::NoGrad && call.mode != Mode::Inference && rare(3)) {
          program.line(fmt::format("{}.requires_grad_(true);", name));
          t.requires_grad_(true);
        }
        program.line(fmt::format("mask &= Mask::bias({});", name));
        mask &= Mask::bias(t);
        call.biases.push_back(t);
        call.bias_names.push_back(name);
        bias = bias + t.detach().to(at::kDouble);
        biased = true;
        break;
      }
      case 3: {
        const auto t = program.bits(name, {B, S}, 0.7);
        program.line(fmt::format("mask &= Mask::key_keep({});", name));
        mask &= Mask::key_keep(t);
        keep = keep.logical_and(t.view({B, 1, 1, S}));
        break;
      }
      default: {
        std::vector<int64_t> lengths;
        for (int64_t b = 0; b < B; ++b) lengths.push_back(draw.below(S + 1));
        const auto type = draw.one_of({at::kLong, at::kInt});
        const auto t = at::tensor(lengths, at::kLong).to(type);
        program.line(fmt::format("auto {} = at::tensor(std::vector<int64_t>{}).to({});", name, list(lengths),
                                 type == at::kLong ? "at::kLong" : "at::kInt"));
        program.line(fmt::format("mask &= Mask::key_lengths({});", name));
        mask &= Mask::key_lengths(t);
        key_lengths = key_lengths.minimum(t.to(at::kLong));
        keep = keep.logical_and(at::arange(S).view({1, 1, 1, S}).lt(t.view({B, 1, 1, 1})));
        if (draw.one_in(2)) {  // hidden numbers beyond the lengths, which must have no effect
          const double most = call.type == at::kDouble ? 1e308 : call.type == at::kHalf ? 6e4 : 3e38;
          const double value = draw.one_of({std::nan(""), kInfinity, most, -most});
          const bool in_keys = draw.one_in(2);
          auto& x = in_keys ? k : v;
          program.line(fmt::format("{0} = {0}.clone(at::MemoryFormat::Contiguous);", in_keys ? "k" : "v"));
          x = x.clone(at::MemoryFormat::Contiguous);
          for (int64_t b = 0; b < B; ++b) {
            program.line(fmt::format("{}.select(0, {}).slice(1, {}).fill_({});", in_keys ? "k" : "v", b,
                                     lengths[b], number(value)));
            x.select(0, b).slice(1, lengths[b]).fill_(value);
          }
        }
      }
    }
  }
  // Lengths and alignments.
  const auto draw_lengths = [&](const char* name, int64_t longest) {
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < B; ++b) lengths.push_back(draw.one_in(3) ? longest : draw.below(longest + 1));
    program.line(fmt::format("mask &= Mask::{}(at::tensor(std::vector<int64_t>{}));", name, list(lengths)));
    return at::tensor(lengths, at::kLong);
  };
  if (options.align == Align::Lengths) {
    const auto t = draw_lengths("key_lengths", S);
    mask &= Mask::key_lengths(t);
    key_lengths = key_lengths.minimum(t);
  }
  if (rare(5)) {
    call.meaning.query_lengths = draw_lengths("query_lengths", L);
    mask &= Mask::query_lengths(call.meaning.query_lengths);
  }
  // The tensors get the rank that the caller passes.
  const auto ranked = [&](at::Tensor& x, const char* name) {
    const auto become = [&](const std::string& code, const at::Tensor& value) {
      program.line(fmt::format("{0} = {0}{1};", name, code));
      x = value;
    };
    if (rank == 2) become(".select(0, 0).select(0, 0)", x.select(0, 0).select(0, 0));
    if (rank == 3) become(".select(1, 0)", x.select(1, 0));
    if (rank == 5) become(".unsqueeze(1)", x.unsqueeze(1));
  };
  call.meaning = {.q = q,
                  .k = k,
                  .v = v,
                  .options = options,
                  .key_lengths = key_lengths,
                  .query_lengths = call.meaning.query_lengths};
  ranked(q, "q");
  ranked(k, "k");
  ranked(v, "v");
  const bool differentiates = call.mode == Mode::Gradients || call.mode == Mode::Autocast;
  for (auto [x, name] : {std::pair{&q, "q"}, std::pair{&k, "k"}, std::pair{&v, "v"}}) {
    const bool wanted = differentiates && !draw.one_in(4);
    program.line(fmt::format("{0} = {0}.detach().requires_grad_({1});", name, wanted));
    *x = x->detach().requires_grad_(wanted);
  }
  call.q = q, call.k = k, call.v = v;
  if (rare(4)) {
    const auto type = draw.one_of({call.computed, at::kFloat});
    auto t = draw.one_in(3) && rank != 5 ? program.normal("slopes", {B, H}, type, 0.2)
                                         : program.normal("slopes", {H}, type, 0.2);
    if (poison_here()) program.poison(t, "slopes");
    if (differentiates && draw.one_in(2)) {
      program.line("slopes.requires_grad_(true);");
      t.requires_grad_(true);
    }
    call.extras.alibi_slopes = t;
    call.meaning.slopes = t;
  }
  if (sinks) {
    auto t = program.normal("sinks", {H}, draw.one_of({call.computed, at::kFloat}));
    if (poison_here()) program.poison(t, "sinks");
    if (differentiates && draw.one_in(2)) {
      program.line("sinks.requires_grad_(true);");
      t.requires_grad_(true);
    }
    call.extras.sinks = t;
    call.meaning.sinks = t;
  }
  if (rare(4)) call.extras.weights = draw.one_of({Weights::Clean, Weights::Dropped});
  call.extras.logsumexp = rare(2) || draw.one_in(12);
  call.meaning.keep = keep;
  if (biased) call.meaning.bias = bias;
  call.strided_directions = draw.one_in(2);
  // The arguments of the call, as text.
  std::string with = ".mask = mask";
  if (call.extras.alibi_slopes.defined()) with += ", .alibi_slopes = slopes";
  if (call.extras.sinks.defined()) with += ", .sinks = sinks";
  if (call.with_generator) with += ", .generator = at::detail::createCPUGenerator(seed)";
  if (call.extras.weights != Weights::None)
    with += fmt::format(", .weights = {}", name_of(call.extras.weights));
  if (call.extras.logsumexp) with += ", .logsumexp = true";
  switch (call.mode) {
    case Mode::NoGrad:
      program.line("const at::NoGradGuard no_grad;");
      break;
    case Mode::Inference:
      program.line("const c10::InferenceMode inference;");
      break;
    case Mode::Autocast:
      program.line(
          fmt::format("at::autocast::set_autocast_enabled(at::kCPU, true); "
                      "at::autocast::set_autocast_dtype(at::kCPU, {});",
                      name_of(call.autocast)));
      break;
    default:
      break;
  }
  program.line(fmt::format("const uint64_t seed = {}; at::manual_seed(seed);", call.seed));
  program.line(fmt::format("const auto result = attention(q, k, v, {{{}}}, {{{}}});", said, with));
  call.text = program.text();
  return call;
}

// The weights that dropout keeps, by the definition of the stream; counter_keep_mask has separate tests.
at::Tensor survivors(const Call& call) {
  const double p = call.options.dropout_p;
  if (p == 0.0 || p == 1.0) return {};
  const auto& q = call.meaning.q;
  const int64_t B = q.size(0), H = q.size(1), L = q.size(2), S = call.meaning.k.size(2);
  const auto& meaning = call.meaning;
  const auto generator = at::detail::createCPUGenerator(call.seed);
  const auto origins = naive_origins(meaning);
  if (call.options.dropout_stream == DropoutStream::Aten) {
    const auto type = call.computed == at::kDouble ? at::kDouble : at::kFloat;
    const auto pass = [&](int64_t items, int64_t rows, int64_t cols) {
      return at::empty({items, H, rows, cols}, type).bernoulli_(1 - p, generator).to(at::kBool);
    };
    // Items of other lengths than the call's draw for their own pairs, one after the other.
    const bool by_lengths = call.options.align == Align::Lengths;
    const auto& queries = meaning.query_lengths;
    bool whole = true;
    auto all = at::zeros({B, H, L, S}, at::kBool);
    const auto each_item = [&](const auto& visit) {
      for (int64_t b = 0; (by_lengths || queries.defined()) && b < B; ++b) {
        const int64_t end = queries.defined() ? queries[b].item<int64_t>() : L,
                      first = by_lengths ? std::min(std::max<int64_t>(-origins[b], 0), end) : 0;
        visit(b, first, end - first, meaning.key_lengths[b].item<int64_t>());
      }
    };
    each_item([&](int64_t, int64_t, int64_t rows, int64_t cols) {
      whole = whole && rows == L && (cols == S || !by_lengths);
    });
    if (whole) return pass(B, L, S);
    each_item([&](int64_t b, int64_t first, int64_t rows, int64_t cols) {
      all[b].narrow(1, first, rows).narrow(2, 0, cols).copy_(pass(1, rows, cols)[0]);
    });
    return all;
  }
  const auto key = kernels::draw_dropout_key(generator);
  std::vector<at::Tensor> items;
  for (int64_t b = 0; b < B; ++b)
    items.push_back(
        kernels::counter_keep_mask(key, p, b, 1, 0, H, static_cast<uint32_t>(origins[b]), L, 0, S));
  return items.empty() ? at::empty({B, H, L, S}, at::kBool) : at::cat(items);
}

// Makes a direction in the shape of the result, with strides that depend on its size, and appends its
// program.
at::Tensor direction_of(const at::Tensor& result, const std::string& name, bool strided, std::string& text) {
  const auto drawn = at::randn(result.sizes(), at::kDouble).to(result.scalar_type());
  text += fmt::format("  auto of_{} = at::randn({}, at::kDouble).to({});\n", name, list(result.sizes()),
                      name_of(result.scalar_type()));
  if (!strided || result.numel() == 0 || result.dim() < 2) return drawn;
  const auto last = result.size(-1), rows = result.size(-2);
  std::string code;
  at::Tensor x;
  switch (result.numel() % 4) {
    case 0:  // like the gradient of sum()
      code = fmt::format(".select(-1, 0).select(-1, 0).unsqueeze(-1).unsqueeze(-1).expand({})",
                         list(result.sizes()));
      x = drawn.select(-1, 0).select(-1, 0).unsqueeze(-1).unsqueeze(-1).expand(result.sizes());
      break;
    case 1:
      code = ".transpose(-1, -2).contiguous().transpose(-1, -2)";
      x = drawn.transpose(-1, -2).contiguous().transpose(-1, -2);
      break;
    case 2:
      code = fmt::format(".transpose(0, -2).contiguous().transpose(0, -2)");
      x = drawn.transpose(0, -2).contiguous().transpose(0, -2);
      break;
    default: {  // rows that overlap
      auto strides = std::vector<int64_t>(static_cast<size_t>(result.dim()), 0);
      strides[strides.size() - 1] = 1;
      if (rows + last <= drawn.numel()) strides[strides.size() - 2] = 1;
      code = fmt::format(".as_strided({}, {})", list(result.sizes()), list(strides));
      x = drawn.as_strided(result.sizes(), strides);
    }
  }
  text += fmt::format("  of_{0} = of_{0}{1};\n", name, code);
  return x;
}

int kind_of(double x) {
  return std::isnan(x) ? 3 : std::isinf(x) ? (x > 0 ? 1 : 2) : 0;
}

class Failure : public std::exception {
 public:
  explicit Failure(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// Checks that `got` is of the same kind (finite, NaN, inf) wherever `strict` and `lax` agree on it, and that
// finite numbers differ by at most `allowed` plus, for terms that cancel, some units in the last place of
// their absolute sum.
void compare(const std::string& what, const at::Tensor& got, const at::Tensor& strict, const at::Tensor& lax,
             const at::Tensor& terms, double allowed, at::ScalarType computed) {
  if (got.sizes() != strict.sizes())
    throw Failure(fmt::format("{}: sizes {}, expected {}", what, list(got.sizes()), list(strict.sizes())));
  const auto a = got.detach().to(at::kDouble).contiguous(), b = strict.contiguous(), c = lax.contiguous(),
             t = terms.contiguous();
  const double *x = a.const_data_ptr<double>(), *y = b.const_data_ptr<double>(),
               *z = c.const_data_ptr<double>(), *size = t.const_data_ptr<double>();
  const double most = computed == at::kHalf ? 6.5e4 : computed == at::kDouble ? 1.7e308 : 3.3e38;
  // float16 has no numbers between the multiples of 2^-24 next to 0.
  if (computed == at::kHalf) allowed += std::ldexp(1.0, -24);
  // Half types are summed in float32; the others round at every step.
  const double units = computed == at::kHalf || computed == at::kBFloat16 ? 2.0 : 16.0;
  for (int64_t n = 0; n < a.numel(); ++n) {
    if (kind_of(y[n]) != kind_of(z[n]) || (kind_of(y[n]) == 0 && std::abs(y[n]) > most)) continue;
    const double room = allowed + units * unit_of(computed) * size[n];
    const bool good = kind_of(y[n]) == 0 ? std::abs(x[n] - y[n]) <= room : kind_of(x[n]) == kind_of(y[n]);
    if (good) continue;
    throw Failure(fmt::format("{}: {} at {} of {}, expected {}, allowed difference {:g}", what, x[n], n,
                              list(got.sizes()), y[n], room));
  }
}

void check_call(Call& call, std::map<std::string, int64_t>& counts) {
  std::unique_ptr<c10::InferenceMode> inference;
  std::unique_ptr<at::NoGradGuard> no_grad;
  AttentionResult result;
  bool by_torch = call.options.backend == Backend::Torch;
  at::manual_seed(call.seed);
  if (call.with_generator) call.extras.generator = at::detail::createCPUGenerator(call.seed);
  auto asked = call.options;
  asked.backend = Backend::Auto;
  {
    if (call.mode == Mode::Inference) inference = std::make_unique<c10::InferenceMode>();
    if (call.mode == Mode::NoGrad) no_grad = std::make_unique<at::NoGradGuard>();
    const CpuAutocast autocast(call.mode == Mode::Autocast ? std::optional(call.autocast) : std::nullopt);
    bool available = call.options.backend == Backend::Auto;
    auto chosen = Backend::Auto;
    const auto explained = explain(call.q, call.k, call.v, asked, call.extras);
    chosen = explained.chosen;
    for (const auto& candidate : explained.candidates)
      available = available || (candidate.backend == call.options.backend && candidate.available);
    try {
      result = attention(call.q, call.k, call.v, call.options, call.extras);
    } catch (const c10::ValueError& error) {
      const std::string text = error.what_without_backtrace();
      const auto start = fmt::format("attention: backend {} cannot express this call: ",
                                     std::string(to_string(call.options.backend)));
      if (!text.starts_with(start) || call.options.backend == Backend::Reference ||
          call.options.backend == Backend::Auto)
        throw;
      if (available) throw Failure("refused, though explain() says that it is available: " + text);
      ++counts["refused by " + std::string(to_string(call.options.backend))];
      return;
    }
    if (call.options.backend == Backend::Auto) by_torch = chosen == Backend::Torch;
    if (!available) throw Failure("taken, though explain() says that it is not available");
    ++counts[call.options.backend == Backend::Auto ? "Auto, by " + std::string(to_string(chosen))
                                                   : std::string(to_string(call.options.backend))];
  }
  inference.reset();
  no_grad.reset();
  if (result.output.scalar_type() != call.computed) throw Failure("output of another dtype");

  // Backward.
  auto& meaning = call.meaning;
  NaiveDirections directions;
  std::vector<at::Tensor> outputs, along;
  at::manual_seed(call.seed + 1);
  // Converts x to rank 4, or to rank 3 if it has no last dimension.
  const auto four = [&](const at::Tensor& x, std::optional<int64_t> last) {
    std::vector<int64_t> sizes = {meaning.q.size(0), meaning.q.size(1), meaning.q.size(2)};
    if (last) sizes.push_back(*last);
    return x.reshape(sizes);
  };
  if (result.output.requires_grad()) call.text += "  at::manual_seed(seed + 1);\n";
  std::string differentiated, those;
  const auto differentiate = [&](const at::Tensor& x, at::Tensor& naive, std::optional<int64_t> last,
                                 const char* name) {
    if (!x.defined() || !x.requires_grad()) return;
    const auto direction = direction_of(x, name, call.strided_directions, call.text);
    differentiated += fmt::format("result.{}, ", name);
    those += fmt::format("of_{}, ", name);
    outputs.push_back(x);
    along.push_back(direction);
    naive = four(direction, last);
  };
  const int64_t S = meaning.k.size(2), Dv = meaning.v.size(3);
  differentiate(result.output, directions.output, Dv, "output");
  differentiate(result.weights,
                call.extras.weights == Weights::Clean ? directions.clean_weights : directions.dropped_weights,
                S, "weights");
  differentiate(result.logsumexp, directions.logsumexp, {}, "logsumexp");
  std::vector<at::Tensor> leaves;
  std::vector<std::string> names;
  const auto leaf = [&](const at::Tensor& x, const std::string& name) {
    if (!x.defined() || !x.requires_grad()) return;
    leaves.push_back(x);
    names.push_back(name);
  };
  leaf(call.q, "q");
  leaf(call.k, "k");
  leaf(call.v, "v");
  for (size_t n = 0; n < call.biases.size(); ++n) leaf(call.biases[n], call.bias_names[n]);
  leaf(call.extras.alibi_slopes, "slopes");
  leaf(call.extras.sinks, "sinks");
  std::vector<at::Tensor> gradients;
  if (!outputs.empty()) {
    call.text += fmt::format(
        "  const auto gradients = torch::autograd::grad({{{}}}, {{{}}}, {{{}}}, {{}}, false, true);\n",
        differentiated, fmt::join(names, ", "), those);
    gradients = torch::autograd::grad(outputs, leaves, along, {}, false, /*allow_unused=*/true);
  }

  // The meaning of the call, for tensors rounded as autocast rounds them.
  for (auto* x : {&meaning.q, &meaning.k, &meaning.v}) *x = x->detach().to(call.computed);
  meaning.survivors = survivors(call);
  // ATen's kernel rounds exp(score - largest) to the type of v before it multiplies.
  if (by_torch && call.computed == at::kHalf) meaning.may_underflow = 0x1p-25;
  const auto strict = naive_attention(meaning, directions),
             lax = naive_attention(meaning, directions, HiddenPairs::Multiplied);
  const auto tolerance = tolerance_of(call.computed);
  const auto check = [&](const char* what, const at::Tensor& got, const at::Tensor& want,
                         const at::Tensor& other, const at::Tensor& terms) {
    if (!got.defined()) return;
    compare(what, got, want.reshape(got.sizes()), other.reshape(got.sizes()), terms.reshape(got.sizes()),
            tolerance.allowed(largest_magnitude(want)), call.computed);
  };
  check("output", result.output, strict.forward.output, lax.forward.output, strict.output_terms);
  const bool clean = call.extras.weights == Weights::Clean;
  const auto& weights = clean ? strict.forward.weights : strict.dropped_weights;
  check("weights", result.weights, weights, clean ? lax.forward.weights : lax.dropped_weights,
        at::zeros_like(weights));
  const auto& statistics = strict.forward.logsumexp;
  check("logsumexp", result.logsumexp, statistics, lax.forward.logsumexp, strict.logsumexp_terms);
  if (outputs.empty()) return;
  ++counts["differentiated"];
  // The gradient that belongs to leaf n, in the shape of the leaf.
  const auto gradient_of = [&](const NaiveGradients& g, size_t n) {
    const auto& name = names[n];
    if (name.starts_with("term")) return g.bias.sum_to_size(leaves[n].sizes());
    if (name == "slopes" && leaves[n].dim() == 1) return g.slopes.sum(0);
    const auto& one = name == "q"        ? g.q
                      : name == "k"      ? g.k
                      : name == "v"      ? g.v
                      : name == "slopes" ? g.slopes
                                         : g.sinks;
    return one.reshape(leaves[n].sizes());
  };
  double largest = 0.0;
  for (size_t n = 0; n < leaves.size(); ++n)
    largest = std::max(largest, largest_magnitude(gradient_of(strict.gradients, n)));
  for (size_t n = 0; n < leaves.size(); ++n) {
    const auto got = gradients[n].defined() ? gradients[n] : at::zeros_like(leaves[n]);
    const auto type = unit_of(got.scalar_type()) > unit_of(call.computed) ? got.scalar_type() : call.computed;
    compare("gradient of " + names[n], got, gradient_of(strict.gradients, n), gradient_of(lax.gradients, n),
            gradient_of(strict.terms, n), tolerance_of(type, true).allowed(largest), type);
  }
}

struct Settings {
  int64_t calls = 10000, first = 0, failures = 10;
  uint64_t seed = 0;
};

Settings read(int argc, char** argv) {
  Settings settings;
  settings.seed = std::random_device()();
  for (int n = 1; n < argc; n += 2) {
    const std::string name = argv[n];
    char* end = nullptr;
    const long long value = n + 1 < argc ? std::strtoll(argv[n + 1], &end, 10) : -1;
    if (!end || *end || value < 0 || (name != "--calls" && name != "--seed" && name != "--first")) {
      fmt::print(stderr, "usage: {} [--calls 10000] [--seed N] [--first 0]\n", argv[0]);
      std::exit(2);
    }
    if (name == "--calls") settings.calls = value;
    if (name == "--first") settings.first = value;
    if (name == "--seed") settings.seed = static_cast<uint64_t>(value);
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = read(argc, argv);
  fmt::print("drawn_calls: {} calls, seed {}\n", settings.calls, settings.seed);
  std::fflush(stdout);
  std::map<std::string, int64_t> counts;
  int64_t failed = 0;
  for (int64_t n = settings.first; n < settings.first + settings.calls; ++n) {
    Draw draw(settings.seed, n);
    auto call = draw_call(draw);
    std::string why;
    try {
      check_call(call, counts);
    } catch (const c10::Error& error) {
      why = std::string("error: ") + error.what_without_backtrace();
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (why.empty()) continue;
    if (++failed <= settings.failures)
      fmt::print("\ncall {} of seed {}: {}\n{}", n, settings.seed, why, call.text);
    std::fflush(stdout);
  }
  for (const auto& [what, count] : counts) fmt::print("{:>8}  {}\n", count, what);
  fmt::print("drawn_calls: {} of {} calls failed, seed {}\n", failed, settings.calls, settings.seed);
  return failed ? 1 : 0;
}
