#include "distributed/ring_attention.h"

#include <functional>
#include <limits>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "distributed/sequence_calls.h"
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

struct Ring : torch::CustomClassHolder {
  std::shared_ptr<Connection> connection;
  WholeAttention whole;
  Ring(std::shared_ptr<Connection> connection, const WholeAttention& whole)
      : connection(std::move(connection)), whole(whole) {}

  int64_t rank() const { return connection->environment().rank; }
  int64_t size() const { return connection->environment().size; }
};

// Keys and values as one message.
struct KeysAndValues {
  at::Tensor k, v;

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

// Calls `work` with our half, the other's half and their places, for those that see something of each other.
void for_visible_halves(const Ring& ring, int64_t owner, int64_t length,
                        const std::function<void(int64_t, int64_t, const PartPlace&)>& work) {
  const int64_t chunk = length / 2;
  const auto ours = chunks_of(ring.rank(), ring.size()), theirs = chunks_of(owner, ring.size());
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      const PartPlace place{.query = ours[i] * chunk, .key = theirs[j] * chunk};
      if (!ring.whole.hides(place, chunk, chunk)) work(i, j, place);
    }
  }
}

// Calls `work` with the keys and values of every rank and that rank, its own first; the next ones are under way meanwhile.
void for_each_owner(const Ring& ring, const KeysAndValues& own,
                    const std::function<void(const KeysAndValues&, int64_t)>& work) {
  auto message = own.message();
  for (int64_t step = 0; step < ring.size(); ++step) {
    std::optional<RingStep> next;
    if (step + 1 < ring.size()) next.emplace(*ring.connection, message);
    work(own.from(message), (ring.rank() + ring.size() - step) % ring.size());
    if (next) message = next->wait();
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
    for_each_owner(*ring, {k, v}, [&](const KeysAndValues& their, int64_t owner) {
      for_visible_halves(*ring, owner, length, [&](int64_t i, int64_t j, const PartPlace& place) {
        const auto part =
            ring->whole.part(half_of(q, i, 2), half_of(their.k, j, 2), half_of(their.v, j, 2), place,
                             /*with_sinks=*/false);
        auto sum = half_of(output, i, 2), old = half_of(logsumexp, i, 2);
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
    const at::NoGradGuard no_grad;
    const auto ring = c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &output = saved[3], &logsumexp = saved[4];
    auto of_q = at::zeros_like(q);
    const KeysAndValues own{k, v};
    at::Tensor
        travelling;  // dK and dV of the keys and values at hand, summed over the ranks that they have passed
    for_each_owner(*ring, own, [&](const KeysAndValues& their, int64_t owner) {
      travelling = travelling.defined() ? RingStep(*ring->connection, travelling).wait()
                                        : at::zeros_like(own.message());
      const auto of_their = own.from(travelling);
      for_visible_halves(*ring, owner, q.size(2), [&](int64_t i, int64_t j, const PartPlace& place) {
        const auto of_output = half_of(of_results[0], i, 2), of_logsumexp = half_of(of_results[1], i, 2);
        const auto whole_output = half_of(output, i, 2), whole_logsumexp = half_of(logsumexp, i, 2);
        const auto of_part = [&](const AttentionResult& part) {
          const auto weight = share(part.logsumexp, whole_logsumexp, q.scalar_type());
          const auto difference = ((part.output - whole_output) * of_output).sum(3);
          return std::pair(of_output * weight, weight.squeeze(3) * (difference + of_logsumexp));
        };
        const auto of = ring->whole.part_gradients(half_of(q, i, 2), half_of(their.k, j, 2),
                                                   half_of(their.v, j, 2), place, of_part);
        half_of(of_q, i, 2).add_(of[0]);
        half_of(of_their.k, j, 2).add_(of[1]);
        half_of(of_their.v, j, 2).add_(of[2]);
      });
    });
    const auto home = own.from(RingStep(*ring->connection, travelling).wait());
    return {of_q, home.k, home.v, at::Tensor()};
  }
};

}  // namespace

AttentionResult ring_attention(const std::shared_ptr<Connection>& connection, const WholeAttention& whole,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto results = RingAttention::apply(q, k, v, c10::make_intrusive<Ring>(connection, whole));
  return {results[0], {}, results[1]};
}

}  // namespace attentive::distributed
