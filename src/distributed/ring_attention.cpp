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
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/functional/merge_attention.h>

#include "distributed/connection.h"
#include "distributed/context_parts.h"

namespace attentive::distributed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The forward pass, in the notation of the paper. In each step, the keys and values K, V of the next lower
// rank arrive:
//
//   O = 0, LSE = -inf
//   for each rank's K, V:
//     O', LSE' = attention of our Q over K, V alone, and its logsumexp
//     O, LSE   = merge_attention of O, LSE and O', LSE'
//
// The backward pass runs the ring once more. With P' = exp(LSE' - LSE), the share of these keys, the
// gradients of O' and LSE' are P' dO and P' (dO . (O' - O) + dLSE). They give dQ, which stays in this
// process, and dK and dV, which travel one step behind their K, V and return to their owner after the last
// step.
//
// K, V and dK, dV travel in slices, each while it is used in a computation: besides the K, V of the current
// step, at most one slice is in transit.

struct Ring : torch::CustomClassHolder {
  Messages messages;
  WholeAttention whole;
  int64_t kv_heads;
  Ring(Messages sent, const WholeAttention& attention, int64_t heads)
      : messages(std::move(sent)), whole(attention), kv_heads(heads) {}

  int64_t rank() const { return messages.connection->environment().rank; }
  int64_t size() const { return messages.connection->environment().size; }
};

// Sends a tensor to the next rank and receives one from the previous rank, while the caller continues.
class RingStep {
 public:
  RingStep(const Messages& messages, const at::Tensor& sent)
      : connection_(*messages.connection), received_(at::empty_like(sent)) {
    if (sent.numel() == 0) return;
    const auto& environment = std::as_const(connection_).environment();
    const int64_t rank = environment.rank, size = environment.size;
    connection_.call(kContextAttention, [&](c10d_internals::Collectives& collectives) {
      exchanged_ =
          collectives.exchange(sent, (rank + 1) % size, received_, (rank + size - 1) % size, messages.tag);
    });
  }

  /// Waits for the received tensor, which has the shape and dtype of the sent one.
  at::Tensor wait() {
    if (received_.numel() == 0) return received_;
    connection_.call(kContextAttention, [&](c10d_internals::Collectives&) { exchanged_(); });
    return received_;
  }

 private:
  Connection& connection_;
  at::Tensor received_;
  std::function<void()> exchanged_;
};

// Some heads of some keys in one half of a part; rows are counted from the beginning of that half.
struct Slice {
  int64_t half, row, rows, head, heads;
};

// Splits [0, all) into at most `most` parts of equal length (the last may be shorter), each as (beginning,
// length).
std::vector<std::pair<int64_t, int64_t>> parts_of(int64_t all, int64_t most) {
  const int64_t length = (all + most - 1) / most;
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t begin = 0; begin < all; begin += length)
    parts.emplace_back(begin, std::min(length, all - begin));
  return parts;
}

std::vector<Slice> slices_of(const at::Tensor& k) {
  // Enough groups to make a slice small compared with the whole, few enough to leave each thread a head.
  constexpr int64_t kHeadGroups = 4, kRowGroups = 4;
  constexpr int64_t kFewestRows = 16;  // fewer keys than this are not worth a message
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

// Keys and values, or their gradients. One slice of them is sent as one message.
struct KeysAndValues {
  at::Tensor k, v;

  KeysAndValues cut_to(const Slice& slice) const {
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

// exp(x - y), or 0 where x is -inf whatever y is, as a factor for rows of features.
at::Tensor share(const at::Tensor& x, const at::Tensor& y, at::ScalarType dtype) {
  const auto shares = (x - y).exp().masked_fill(x == -std::numeric_limits<double>::infinity(), 0.0);
  return shares.to(dtype).unsqueeze(3);
}

// Pairs the queries of this process with one slice of the keys and values of rank `owner`.
struct Visit {
  const Ring& ring;
  const at::Tensor& q;
  size_t index;  // the slice's index
  Slice slice;
  KeysAndValues kv;
  int64_t owner;

  // Narrows x, this process's queries or a tensor with the same rows, to one half and to the query heads that
  // read this slice.
  at::Tensor query_rows(const at::Tensor& x, int64_t half) const {
    return half_of(x, half, 2).narrow(1, slice.head * group(), slice.heads * group());
  }
  // Calls `work` for each half of the queries that may see a key of the slice, with the position of the two.
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

// Visits every slice of every rank, starting with this process's own. While a slice is visited, it is also
// sent to the next rank.
void for_each_visit(const Ring& ring, const at::Tensor& q, const KeysAndValues& local,
                    const std::function<void(const Visit&)>& work) {
  const auto slices = slices_of(local.k);
  std::vector<at::Tensor> at_hand(slices.size());
  for (int64_t step = 0; step < ring.size(); ++step) {
    const int64_t owner = (ring.rank() + ring.size() - step) % ring.size();
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto local_slice = local.cut_to(slices[i]);
      const auto message = step == 0 ? local_slice.message() : std::exchange(at_hand[i], at::Tensor());
      std::optional<RingStep> next;
      if (step + 1 < ring.size()) next.emplace(ring.messages, message);
      work({ring, q, i, slices[i], local_slice.from(message), owner});
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
    // Uses float64, because the weights of the parts come from differences of logsumexps.
    auto logsumexp = at::full({q.size(0), q.size(1), length}, -std::numeric_limits<double>::infinity(),
                              q.options().dtype(at::kDouble));
    for_each_visit(*ring, q, {k, v}, [&](const Visit& visit) {
      visit.for_each_half([&](int64_t half, const PartPlace& place) {
        const auto part = ring->whole.part(visit.query_rows(q, half), visit.kv.k, visit.kv.v, place,
                                           /*with_sinks=*/false);
        const auto all = visit.query_rows(output, half), sum = visit.query_rows(logsumexp, half);
        const auto both = merge_attention({{all, {}, sum}, part});
        all.copy_(both.output);
        sum.copy_(both.logsumexp);
      });
    });
    context->save_for_backward({q, k, v, output, logsumexp});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return {output, logsumexp.to(q.scalar_type())};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_results) {
    const auto ring = c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    return first_derivative_of_parts({saved[0], saved[1], saved[2], grad_results[0], grad_results[1]},
                                     [&] { return gradients_of(ring, saved, grad_results); });
  }

 private:
  static variable_list gradients_of(const c10::intrusive_ptr<Ring>& ring, const variable_list& saved,
                                    const variable_list& grad_results) {
    const at::NoGradGuard no_grad;
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &output = saved[3], &logsumexp = saved[4];
    auto grad_q = at::zeros_like(q);
    const KeysAndValues local{k, v};
    const auto slices = slices_of(k);
    // dK and dV of the current slices, summed over the ranks that they have passed.
    std::vector<at::Tensor> travelling(slices.size());
    for_each_visit(*ring, q, local, [&](const Visit& visit) {
      auto& sum = travelling[visit.index];
      std::optional<RingStep> arriving;
      if (sum.defined()) arriving.emplace(ring->messages, sum);
      const auto arrived = [&] {
        if (arriving) sum = arriving->wait();
        arriving.reset();
        if (!sum.defined()) sum = at::zeros({visit.kv.k.numel() + visit.kv.v.numel()}, k.options());
        return visit.kv.from(sum);
      };
      visit.for_each_half([&](int64_t half, const PartPlace& place) {
        const auto part_grads = [&](const AttentionResult& part) {
          const auto grad_output = visit.query_rows(grad_results[0], half);
          const auto weight = share(part.logsumexp, visit.query_rows(logsumexp, half), q.scalar_type());
          const auto difference = ((part.output - visit.query_rows(output, half)) * grad_output).sum(3);
          return std::pair(grad_output * weight,
                           weight.squeeze(3) * (difference + visit.query_rows(grad_results[1], half)));
        };
        const auto grads =
            ring->whole.part_gradients(visit.query_rows(q, half), visit.kv.k, visit.kv.v, place, part_grads);
        visit.query_rows(grad_q, half).add_(grads[0]);
        const auto grad_kv = arrived();
        grad_kv.k.add_(grads[1]);
        grad_kv.v.add_(grads[2]);
      });
      arrived();
    });
    const KeysAndValues home{at::empty(k.sizes(), k.options()), at::empty(v.sizes(), v.options())};
    for (size_t i = 0; i < travelling.size(); ++i) {
      const auto target = home.cut_to(slices[i]);
      const auto arrived = target.from(RingStep(ring->messages, std::exchange(travelling[i], {})).wait());
      target.k.copy_(arrived.k);
      target.v.copy_(arrived.v);
    }
    return {grad_q, home.k, home.v, at::Tensor()};
  }
};

}  // namespace

AttentionResult ring_attention(const Messages& messages, const WholeAttention& whole, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v) {
  const auto results = RingAttention::apply(q, k, v, c10::make_intrusive<Ring>(messages, whole, k.size(1)));
  return {results[0], {}, results[1]};
}

}  // namespace attentive::distributed
