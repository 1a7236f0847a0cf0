#include "distributed/ring_attention.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "distributed/zigzag.h"

namespace attentive::distributed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The forward pass, in the letters of the paper. Keys and values K, V of all ranks come by, each time those of the rank before:
//
//   O = 0, LSE = -inf
//   for each rank's K, V:
//     O', LSE' = attention of our Q over K, V alone, and its logsumexp
//     LSE" = log(exp LSE + exp LSE')
//     O    = O exp(LSE - LSE") + O' exp(LSE' - LSE")
//     LSE  = LSE"
//
// The backward pass runs the ring once more. With P' = exp(LSE' - LSE), the share of these keys, the gradients of O' and LSE' are
// P' dO and P' (dO . (O' - O) + dLSE); they lead to dQ, which stays, and to dK and dV, which travel one step behind their K, V
// and come home after the last step.
//
// K, V and dK, dV travel in slices, each while it is computed with: beyond the K, V at hand there is one slice under way.

struct Ring : torch::CustomClassHolder {
  Messages messages;
  WholeAttention whole;
  int64_t kv_heads;
  Ring(Messages sent, const WholeAttention& attention, int64_t heads)
      : messages(std::move(sent)), whole(attention), kv_heads(heads) {}

  int64_t rank() const { return messages.connection->environment().rank; }
  int64_t size() const { return messages.connection->environment().size; }
};

// Some heads of some keys of one half; the rows are counted from the half's first.
struct Slice {
  int64_t half, row, rows, head, heads;
};

// [0, all) in at most `most` parts of one length, the last one maybe shorter: the beginning and length of each.
std::vector<std::pair<int64_t, int64_t>> parts_of(int64_t all, int64_t most) {
  const int64_t length = (all + most - 1) / most;
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t begin = 0; begin < all; begin += length)
    parts.emplace_back(begin, std::min(length, all - begin));
  return parts;
}

std::vector<Slice> slices_of(const at::Tensor& k) {
  // Enough that a slice is small beside the whole, few enough for all threads to have a head.
  constexpr int64_t kHeadGroups = 4, kRowGroups = 4;
  constexpr int64_t kFewestRows = 16;  // fewer keys are not worth a message
  const int64_t rows_of_half = k.size(2) / 2;
  const auto of_rows = parts_of(rows_of_half, std::clamp<int64_t>(rows_of_half / kFewestRows, 1, kRowGroups));
  const auto of_heads = parts_of(k.size(1), kHeadGroups);
  std::vector<Slice> slices;
  for (int64_t half = 0; half < 2; ++half) {
    for (const auto& [row, rows] : of_rows) {
      for (const auto& [head, heads] : of_heads) slices.push_back({half, row, rows, head, heads});
    }
  }
  return slices;
}

// Keys and values, or their gradients; a slice of them is one message.
struct KeysAndValues {
  at::Tensor k, v;

  KeysAndValues of(const Slice& slice) const {
    const auto cut = [&](const at::Tensor& x) {
      return half_of(x, slice.half, 2).narrow(1, slice.head, slice.heads).narrow(2, slice.row, slice.rows);
    };
    return {cut(k), cut(v)};
  }
  at::Tensor message() const { return at::cat({k.reshape({-1}), v.reshape({-1})}); }
  KeysAndValues from(const at::Tensor& message) const {
    return {message.narrow(0, 0, k.numel()).view(k.sizes()),
            message.narrow(0, k.numel(), v.numel()).view(v.sizes())};
  }
};

// exp(x - y), and 0 where x is -inf, whatever y is: a factor for rows of features.
at::Tensor share(const at::Tensor& x, const at::Tensor& y, at::ScalarType dtype) {
  const auto shares = (x - y).exp().masked_fill(x == -std::numeric_limits<double>::infinity(), 0.0);
  return shares.to(dtype).unsqueeze(3);
}

// A slice of the keys and values of rank `owner`, beside our queries q.
struct Visit {
  const Ring& ring;
  const at::Tensor& q;
  size_t index;  // of the slice
  Slice slice;
  KeysAndValues their;
  int64_t owner;

  // Those of our queries, or of what belongs to them, that are in one half and have the slice's heads.
  at::Tensor ours(const at::Tensor& x, int64_t half) const {
    return half_of(x, half, 2).narrow(1, slice.head * group(), slice.heads * group());
  }
  // Calls `work` with each half of our queries that sees something of the slice, and the place of the two.
  void for_each_half(const std::function<void(int64_t, const PartPlace&)>& work) const {
    const int64_t chunk = q.size(2) / 2;
    const auto chunks = chunks_of(ring.rank(), ring.size());
    const int64_t key = chunks_of(owner, ring.size())[slice.half] * chunk + slice.row;
    for (int64_t half = 0; half < 2; ++half) {
      const PartPlace place{.query = chunks[half] * chunk, .key = key, .head = slice.head * group()};
      if (!ring.whole.hides(place, chunk, slice.rows)) work(half, place);
    }
  }

 private:
  int64_t group() const { return q.size(1) / ring.kv_heads; }
};

// Visits every slice of every rank, its own first. What is at hand is under way to the next rank meanwhile.
void for_each_visit(const Ring& ring, const at::Tensor& q, const KeysAndValues& own,
                    const std::function<void(const Visit&)>& work) {
  const auto slices = slices_of(own.k);
  std::vector<at::Tensor> at_hand(slices.size());
  for (int64_t step = 0; step < ring.size(); ++step) {
    const int64_t owner = (ring.rank() + ring.size() - step) % ring.size();
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto mine = own.of(slices[i]);
      const auto message = step == 0 ? mine.message() : std::exchange(at_hand[i], at::Tensor());
      std::optional<RingStep> next;
      if (step + 1 < ring.size()) next.emplace(ring.messages, message);
      work({ring, q, i, slices[i], mine.from(message), owner});
      if (next) at_hand[i] = next->wait();
    }
  }
}

class RingAttention : public torch::autograd::Function<RingAttention> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const c10::intrusive_ptr<Ring>& ring) {
    const at::NoGradGuard no_grad;
    const int64_t length = q.size(2);
    auto output = at::zeros({q.size(0), q.size(1), length, v.size(3)}, q.options());
    // In float64: the shares of the parts are differences of it.
    auto logsumexp = at::full({q.size(0), q.size(1), length}, -std::numeric_limits<double>::infinity(),
                              q.options().dtype(at::kDouble));
    for_each_visit(*ring, q, {k, v}, [&](const Visit& visit) {
      visit.for_each_half([&](int64_t half, const PartPlace& place) {
        const auto part = ring->whole.part(visit.ours(q, half), visit.their.k, visit.their.v, place,
                                           /*with_sinks=*/false);
        auto sum = visit.ours(output, half), old = visit.ours(logsumexp, half);
        const auto both = at::logaddexp(old, part.logsumexp);
        sum.mul_(share(old, both, q.scalar_type()));
        sum.add_(part.output * share(part.logsumexp, both, q.scalar_type()));
        old.copy_(both);
      });
    });
    context->save_for_backward({q, k, v, output, logsumexp});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return {output, logsumexp.to(q.scalar_type())};
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_results) {
    const auto ring = c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    return first_derivative_of_parts({saved[0], saved[1], saved[2], of_results[0], of_results[1]},
                                     [&] { return gradients_of(ring, saved, of_results); });
  }

 private:
  static variable_list gradients_of(const c10::intrusive_ptr<Ring>& ring, const variable_list& saved,
                                    const variable_list& of_results) {
    const at::NoGradGuard no_grad;
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &output = saved[3], &logsumexp = saved[4];
    auto of_q = at::zeros_like(q);
    const KeysAndValues own{k, v};
    const auto slices = slices_of(k);
    // dK and dV of the slices at hand, summed over the ranks that they have passed.
    std::vector<at::Tensor> travelling(slices.size());
    for_each_visit(*ring, q, own, [&](const Visit& visit) {
      auto& sum = travelling[visit.index];
      std::optional<RingStep> arriving;
      if (sum.defined()) arriving.emplace(ring->messages, sum);
      const auto arrived = [&] {
        if (arriving) sum = arriving->wait();
        arriving.reset();
        if (!sum.defined()) sum = at::zeros({visit.their.k.numel() + visit.their.v.numel()}, k.options());
        return visit.their.from(sum);
      };
      visit.for_each_half([&](int64_t half, const PartPlace& place) {
        const auto of_part = [&](const AttentionResult& part) {
          const auto of_output = visit.ours(of_results[0], half);
          const auto weight = share(part.logsumexp, visit.ours(logsumexp, half), q.scalar_type());
          const auto difference = ((part.output - visit.ours(output, half)) * of_output).sum(3);
          return std::pair(of_output * weight,
                           weight.squeeze(3) * (difference + visit.ours(of_results[1], half)));
        };
        const auto of =
            ring->whole.part_gradients(visit.ours(q, half), visit.their.k, visit.their.v, place, of_part);
        visit.ours(of_q, half).add_(of[0]);
        const auto of_their = arrived();
        of_their.k.add_(of[1]);
        of_their.v.add_(of[2]);
      });
      arrived();
    });
    const KeysAndValues home{at::empty(k.sizes(), k.options()), at::empty(v.sizes(), v.options())};
    for (size_t i = 0; i < travelling.size(); ++i) {
      const auto of_ours = home.of(slices[i]);
      const auto arrived = of_ours.from(RingStep(ring->messages, std::exchange(travelling[i], {})).wait());
      of_ours.k.copy_(arrived.k);
      of_ours.v.copy_(arrived.v);
    }
    return {of_q, home.k, home.v, at::Tensor()};
  }
};

}  // namespace

AttentionResult ring_attention(const Messages& messages, const WholeAttention& whole, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v) {
  const auto results = RingAttention::apply(q, k, v, c10::make_intrusive<Ring>(messages, whole, k.size(1)));
  return {results[0], {}, results[1]};
}

}  // namespace attentive::distributed
