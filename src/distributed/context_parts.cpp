#include "distributed/context_parts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

namespace attentive::distributed {
namespace {

using c10d_internals::Collectives;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Kept : torch::CustomClassHolder {
  Messages messages;
  at::ScalarType dtype = at::kFloat;
};

c10::intrusive_ptr<Kept> kept_in(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
}

// In round n every process sends to the rank n places further on, so no two processes wait for each other.
at::Tensor exchanged(const Messages& messages, const at::Tensor& given) {
  auto& connection = *messages.connection;
  const at::NoGradGuard no_grad;
  const auto rows = given.contiguous();
  auto received = at::empty_like(rows);
  const int64_t rank = connection.environment().rank, size = connection.environment().size;
  received[rank].copy_(rows[rank]);
  if (rows.numel() == 0) return received;
  connection.call(kContextAttention, [&](Collectives& collectives) {
    for (int64_t n = 1; n < size; ++n) {
      const int64_t to = (rank + n) % size, from = (rank + size - n) % size;
      collectives.exchange(rows[to], to, received[from], from, messages.tag)();
    }
  });
  return received;
}

class ExchangeRows : public torch::autograd::Function<ExchangeRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const c10::intrusive_ptr<Kept>& kept) {
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return exchanged(kept->messages, rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return first_derivative_of_parts(gradients, [&]() -> variable_list {
      return {exchanged(kept_in(context)->messages, gradients[0]), at::Tensor()};
    });
  }
};

class GatherRows : public torch::autograd::Function<GatherRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& row,
                            const c10::intrusive_ptr<Kept>& kept) {
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->saved_data["dtype"] = row.scalar_type();
    return at::stack(kept->messages.connection->gather(kContextAttention, row)).to(kept->dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return first_derivative_of_parts(gradients, [&] { return sum_of_parts(context, gradients[0]); });
  }

 private:
  static variable_list sum_of_parts(AutogradContext* context, const at::Tensor& gradient) {
    const auto parts = exchanged(kept_in(context)->messages, gradient);
    auto sum = parts[0].clone();
    for (int64_t rank = 1; rank < parts.size(0); ++rank) sum.add_(parts[rank]);
    return {sum.to(context->saved_data["dtype"].toScalarType()), at::Tensor()};
  }
};

}  // namespace

at::Tensor in_order(const std::vector<at::Tensor>& parts, int64_t dim) {
  const auto size = static_cast<int64_t>(parts.size());
  std::vector<at::Tensor> chunks(static_cast<size_t>(2 * size));
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto places = chunks_of(rank, size);
    for (int64_t half = 0; half < 2; ++half)
      chunks[static_cast<size_t>(places[half])] = half_of(parts[static_cast<size_t>(rank)], half, dim);
  }
  return at::cat(chunks, dim);
}

at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t size, int64_t dim) {
  const int64_t length = whole.size(dim) / (2 * size);
  const auto [early, late] = chunks_of(rank, size);
  return at::cat({whole.narrow(dim, early * length, length), whole.narrow(dim, late * length, length)}, dim);
}

at::Tensor exchange_rows(const Messages& messages, const at::Tensor& rows) {
  auto kept = c10::make_intrusive<Kept>();
  kept->messages = messages;
  return ExchangeRows::apply(rows, kept);
}

at::Tensor gather_rows(const Messages& messages, const at::Tensor& row, at::ScalarType dtype) {
  auto kept = c10::make_intrusive<Kept>();
  kept->messages = messages;
  kept->dtype = dtype;
  return GatherRows::apply(row, kept);
}

}  // namespace attentive::distributed
