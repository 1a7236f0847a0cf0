#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/distributed/data_parallel.h>

#include "core/check.h"
#include "distributed/connection.h"
#include "distributed/same_call.h"

namespace attentive {
namespace {

constexpr const char* kDataParallel = "DataParallel";
constexpr const char* kBackward = "DataParallel::backward";

using distributed::Connection;
using distributed::ModelParts;

// Checks properties that are already known to be equal in all processes, so that all of them throw or none.
void check_devices(const Connection& connection, const ModelParts& parts) {
  TORCH_CHECK_VALUE(!parts.trainable.empty(), kDataParallel,
                    ": no parameter of the model requires a gradient");
  const auto& device = connection.device();
  for (const auto& tensor : parts.state) {
    TORCH_CHECK_VALUE(connection.takes(tensor.device()), kDataParallel, ": expected a model on the CPU",
                      device.is_cpu() ? "" : " or on " + device.str(),
                      ", the group's device, got a tensor on ", tensor.device(),
                      "; move the model there: to(group->device())");
  }
  for (size_t i = 1; i < parts.trainable.size(); ++i) {
    TORCH_CHECK_VALUE(parts.trainable[i].device() == parts.trainable[0].device(), kDataParallel,
                      ": expected all parameters on one device, got ", parts.names[0], " on ",
                      parts.trainable[0].device(), " and ", parts.names[i], " on ",
                      parts.trainable[i].device());
  }
}

void check_loss(const at::Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined(), kBackward, ": expected a loss, got an undefined tensor");
  TORCH_CHECK_VALUE(loss.numel() == 1 && loss.requires_grad(), kBackward,
                    ": expected a loss of one element that requires a gradient, got ", describe(loss),
                    loss.requires_grad() ? "" : " that requires none");
}

}  // namespace

struct DataParallel::State {
  std::shared_ptr<Group> group;
  Connection* connection = nullptr;
  ModelParts parts;
  std::unique_ptr<c10d_internals::Reducer> reducer;
  int64_t number = 0;  // its number among the models of the group
  uint64_t collectives = 0;

  // Without this check, a parameter that gets no gradient would leave its bucket unsent, and the other
  // processes would wait for it.
  void check_used(const at::Tensor& loss) const {
    const auto reached = reducer->reached_by(loss);
    for (size_t i = 0; i < reached.size(); ++i) {
      TORCH_CHECK_VALUE(reached[i], kBackward, ": the parameter ", parts.names[i],
                        " gets no gradient: the loss does not depend on it; use it, or freeze it "
                        "(set_requires_grad(false)) before DataParallel is made");
    }
    for (const auto& [name, tensor] : parts.frozen) {
      TORCH_CHECK_VALUE(!tensor.requires_grad(), kBackward, ": ", name,
                        " requires a gradient, but did not when DataParallel was made, and would not be "
                        "averaged; make another DataParallel");
    }
  }
};

DataParallel::DataParallel(torch::nn::Module& model, std::shared_ptr<Group> group,
                           const DataParallelOptions& options)
    : state_(std::make_unique<State>()) {
  TORCH_CHECK_VALUE(group != nullptr, kDataParallel, ": expected a group, got none");
  state_->group = std::move(group);
  state_->connection = distributed::connection_of(*state_->group).get();
  auto& parts = state_->parts;
  distributed::begin_call(*state_->connection, kDataParallel, "models", [&] {
    TORCH_CHECK_VALUE(options.bucket_bytes > 0 && options.first_bucket_bytes > 0, kDataParallel,
                      ": expected positive sizes of buckets, got bucket_bytes ", options.bucket_bytes,
                      " and first_bucket_bytes ", options.first_bucket_bytes);
    if (state_->group->size() > 1) parts = distributed::model_parts(model, state_->group->device());
    return fmt::format("{}bucket_bytes {}\nfirst_bucket_bytes {}\n", parts.text, options.bucket_bytes,
                       options.first_bucket_bytes);
  });
  if (state_->group->size() == 1) return;
  check_devices(*state_->connection, parts);
  for (const auto& tensor : parts.state) state_->connection->broadcast(kDataParallel, tensor, 0);
  state_->connection->call(kDataParallel, [&](auto& collectives) {
    state_->reducer = std::make_unique<c10d_internals::Reducer>(
        parts.trainable, parts.names, collectives, options.bucket_bytes, options.first_bucket_bytes);
  });
  state_->number = state_->connection->next_model();
}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& loss, bool last) {
  if (state_->reducer == nullptr || !last) {
    check_loss(loss);
    return loss.backward();
  }
  distributed::begin_call(*state_->connection, kBackward, "models", [&] {
    check_loss(loss);
    state_->check_used(loss);
    return fmt::format("that of DataParallel {} of the group", state_->number);
  });
  state_->connection->call(kBackward, [&](auto& collectives) {
    const auto before = collectives.count();
    state_->reducer->backward(loss);
    state_->collectives = collectives.count() - before;
  });
}

DataParallelStatistics DataParallel::statistics() const {
  if (state_->reducer == nullptr) return {};
  return {static_cast<int64_t>(state_->parts.trainable.size()), state_->reducer->buckets(),
          static_cast<int64_t>(state_->collectives), state_->reducer->overlap()};
}

}  // namespace attentive
