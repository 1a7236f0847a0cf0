#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/distributed/data_parallel.h>

#include "distributed/connection.h"
#include "distributed/model_text.h"

namespace attentive {
namespace {

constexpr const char* kWho = "DataParallel";
constexpr const char* kBackward = "DataParallel::backward";

using distributed::Connection;
using distributed::ModelParts;

// All processes throw the same, and none has changed anything.
void check_same_models(Connection& connection, const ModelParts& parts) {
  const auto difference = distributed::first_difference(connection.gather_texts(kWho, parts.text));
  TORCH_CHECK_VALUE(!difference, kWho, ": the models differ: ", *difference);
}

// What all processes have alike by now.
void check_devices(const Connection& connection, const ModelParts& parts) {
  TORCH_CHECK_VALUE(!parts.trainable.empty(), kWho, ": no parameter of the model requires a gradient");
  const auto& device = connection.device();
  for (const auto& tensor : parts.state) {
    TORCH_CHECK_VALUE(connection.takes(tensor.device()), kWho, ": expected a model on the CPU",
                      device.is_cpu() ? "" : " or on " + device.str(),
                      ", the group's device, got a tensor on ", tensor.device(),
                      "; move the model there: to(group->device())");
  }
  for (size_t i = 1; i < parts.trainable.size(); ++i) {
    TORCH_CHECK_VALUE(parts.trainable[i].device() == parts.trainable[0].device(), kWho,
                      ": expected all parameters on one device, got ", parts.names[0], " on ",
                      parts.trainable[0].device(), " and ", parts.names[i], " on ",
                      parts.trainable[i].device());
  }
}

std::string unused_line(const std::string& name, int64_t rank) {
  return fmt::format(
      "{}: the parameter {} gets no gradient on rank {}: the loss does not depend on it; use it, or freeze "
      "it "
      "(set_requires_grad(false)) before DataParallel is made",
      kBackward, name, rank);
}

}  // namespace

struct DataParallel::State {
  std::shared_ptr<Group> group;
  Connection* connection = nullptr;
  ModelParts parts;
  std::unique_ptr<c10d_internals::Reducer> reducer;
  bool agreed = false;  // all processes know that every parameter of each gets a gradient
  uint64_t collectives = 0;

  std::optional<size_t> first_unused(const at::Tensor& loss) const {
    const auto reached = reducer->reached_by(loss);
    for (size_t i = 0; i < reached.size(); ++i) {
      if (!reached[i]) return i;
    }
    return std::nullopt;
  }

  // A parameter without a gradient would leave its bucket unsent, and the others waiting for it.
  void check_used(const at::Tensor& loss) {
    const auto unused = first_unused(loss);
    if (!agreed) {
      const auto all = connection->gather_texts(kBackward, unused ? parts.names[*unused] : "");
      for (size_t rank = 0; rank < all.size(); ++rank) {
        TORCH_CHECK_VALUE(all[rank].empty(), unused_line(all[rank], static_cast<int64_t>(rank)));
      }
      agreed = true;
    }
    TORCH_CHECK_VALUE(!unused, unused_line(parts.names[*unused], group->rank()));
  }
};

DataParallel::DataParallel(torch::nn::Module& model, std::shared_ptr<Group> group,
                           const DataParallelOptions& options)
    : state_(std::make_unique<State>()) {
  TORCH_CHECK_VALUE(group != nullptr, kWho, ": expected a group, got none");
  TORCH_CHECK_VALUE(options.bucket_bytes > 0 && options.first_bucket_bytes > 0, kWho,
                    ": expected positive sizes of buckets, got bucket_bytes ", options.bucket_bytes,
                    " and first_bucket_bytes ", options.first_bucket_bytes);
  state_->group = std::move(group);
  if (state_->group->size() == 1) return;
  state_->connection = distributed::connection_of(*state_->group).get();
  state_->parts = distributed::model_parts(model, state_->group->device());
  auto& parts = state_->parts;
  check_same_models(*state_->connection, parts);
  check_devices(*state_->connection, parts);
  for (const auto& tensor : parts.state) state_->connection->broadcast(kWho, tensor, 0);
  state_->connection->call(kWho, [&](auto& collectives) {
    state_->reducer = std::make_unique<c10d_internals::Reducer>(
        parts.trainable, parts.names, collectives, options.bucket_bytes, options.first_bucket_bytes);
  });
}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& loss, bool last) {
  if (state_->reducer == nullptr || !last) return loss.backward();
  if (loss.requires_grad()) state_->check_used(loss);
  state_->connection->call(kBackward, [&](auto& collectives) {
    state_->reducer->prepare();
    const auto before = collectives.count();
    loss.backward();
    state_->reducer->wait();
    state_->collectives = collectives.count() - before;
  });
}

DataParallelStatistics DataParallel::statistics() const {
  if (state_->reducer == nullptr) return {};
  return {static_cast<int64_t>(state_->parts.trainable.size()), state_->reducer->buckets(),
          static_cast<int64_t>(state_->collectives), state_->reducer->overlap()};
}

}  // namespace attentive
