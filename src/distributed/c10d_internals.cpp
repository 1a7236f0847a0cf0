#include "distributed/c10d_internals.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "distributed/gloo_backend.h"

namespace attentive::c10d_internals {
namespace {

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

struct KeyStore::Store {
  c10::intrusive_ptr<c10d::Store> keys;
};

KeyStore::KeyStore(const StoreAddress& address, bool serves, std::chrono::milliseconds timeout)
    : store_(std::make_shared<Store>()) {
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  auto served = c10::make_intrusive<c10d::TCPStore>(address.host, options);
  store_->keys = c10::make_intrusive<c10d::PrefixStore>(address.prefix, std::move(served));
}

void KeyStore::set(const std::string& key, const std::string& value) {
  store_->keys->set(key, bytes_of(value));
}

std::optional<std::string> KeyStore::find(const std::string& key) {
  if (!store_->keys->check({key})) return std::nullopt;
  return text_of(store_->keys->get(key));
}

std::string KeyStore::set_first(const std::string& key, const std::string& value) {
  return text_of(store_->keys->compareSet(key, bytes_of(""), bytes_of(value)));
}

int64_t KeyStore::count(const std::string& key) {
  return store_->keys->add(key, 1);
}

bool KeyStore::wait(const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store_->keys->wait({key}, timeout);
    return true;
  } catch (const c10::DistStoreError&) {  // the time is over; a lost connection is another error
    return false;
  }
}

struct Collectives::Group {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
};

std::unique_ptr<Collectives> Collectives::gloo(KeyStore& store, int64_t rank, int64_t size,
                                               std::chrono::milliseconds timeout) {
  auto made = std::make_unique<Collectives>();
  made->group_ = std::make_shared<Group>();
  auto& group = *made->group_;
  const auto keys = c10::make_intrusive<c10d::PrefixStore>("gloo/", store.store_->keys);
  group.backend = gloo_backend(keys, rank, size, timeout);
  group.process_group =
      c10::make_intrusive<c10d::ProcessGroup>(keys, static_cast<int>(rank), static_cast<int>(size));
  group.process_group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group.process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, group.backend);
  return made;
}

void Collectives::broadcast(at::Tensor tensor, int64_t root) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->backend->broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> Collectives::gather(at::Tensor tensor) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t i = 0; i < group_->backend->getSize(); ++i) all[0].push_back(at::empty_like(tensor));
  std::vector<at::Tensor> own{std::move(tensor)};
  group_->backend->allgather(all, own)->wait();
  return all[0];
}

void Collectives::sum(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  group_->backend->allreduce(tensors)->wait();
}

struct Exchange::State {
  std::vector<at::Tensor> sent, received;  // c10d takes lists of one, which must live until then
  c10::intrusive_ptr<c10d::Work> send, receive;
};

Exchange Collectives::exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from) {
  constexpr int kTag = 0;  // messages between two processes arrive in the order in which they were sent
  Exchange started;
  started.state_ = std::make_shared<Exchange::State>();
  auto& state = *started.state_;
  state.sent = {std::move(sent)};
  state.received = {std::move(received)};
  state.send = group_->backend->send(state.sent, static_cast<int>(to), kTag);
  state.receive = group_->backend->recv(state.received, static_cast<int>(from), kTag);
  return started;
}

void Exchange::wait() {
  state_->receive->wait();
  state_->send->wait();
}

uint64_t Collectives::count() const {
  return group_->backend->getSequenceNumberForGroup();
}

struct Reducer::State {
  std::vector<at::Tensor> parameters;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::unordered_map<const torch::autograd::Node*, size_t> accumulators;  // which parameter each belongs to
};

Reducer::Reducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
                 const Collectives& collectives, int64_t bucket_bytes, int64_t first_bucket_bytes)
    : state_(std::make_shared<State>()) {
  const std::vector<bool> sparse(parameters.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(first_bucket_bytes), static_cast<size_t>(bucket_bytes)}, sparse));
  std::reverse(buckets.begin(), buckets.end());  // the last gradients come first

  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t i = 0; i < names.size(); ++i) names_by_index[i] = names[i];
  state_->reducer = std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), collectives.group_->process_group, sparse, bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::move(names_by_index),
      first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  state_->logger = std::make_shared<c10d::Logger>(state_->reducer);
  state_->logger->set_construction_data_and_log("DataParallel", {}, -1, false, false, false);
  state_->reducer->set_logger(state_->logger);

  for (size_t i = 0; i < parameters.size(); ++i) {
    state_->accumulators[torch::autograd::impl::grad_accumulator(parameters[i]).get()] = i;
  }
  state_->parameters = std::move(parameters);
}

std::vector<bool> Reducer::reached_by(const at::Tensor& loss) const {
  std::vector<bool> reached(state_->parameters.size(), false);
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    const auto own = state_->accumulators.find(node);
    if (own == state_->accumulators.end()) {
      open.push_back(node);
    } else {
      reached[own->second] = true;
    }
  };
  visit(torch::autograd::impl::gradient_edge(loss).function.get());
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

void Reducer::prepare() {
  state_->logger->set_runtime_stats_and_log();
  state_->reducer->prepare_for_forward();
  state_->reducer->rebuild_buckets();
  state_->reducer->prepare_for_backward({});
}

int64_t Reducer::buckets() const {
  return static_cast<int64_t>(state_->logger->get_bucket_sizes().size());
}

double Reducer::overlap() const {
  const auto data = state_->logger->get_ddp_logging_data();
  const auto number = [&](const char* key) {
    const auto found = data.ints_map.find(key);
    return found == data.ints_map.end() ? 0.0 : static_cast<double>(found->second);
  };
  const double communication = number("avg_backward_comm_time");
  return communication > 0 ? number("avg_backward_compute_comm_overlap_time") / communication : 0;
}

}  // namespace attentive::c10d_internals
