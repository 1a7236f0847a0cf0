#include "distributed/c10d_internals.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "distributed/c10d_backends.h"
#include "distributed/gloo_backend.h"
#include "distributed/nccl_backend.h"

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

std::unique_ptr<Collectives> Collectives::connect(KeyStore& store, Options options) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto rank = static_cast<int>(options.rank), size = static_cast<int>(options.size);
  auto made = std::make_unique<Collectives>();
  made->backends_ = std::make_shared<Backends>();
  auto& backends = *made->backends_;
  const auto keys = c10::make_intrusive<c10d::PrefixStore>("gloo/", store.store_->keys);
  backends.gloo = gloo_backend(keys, rank, size, options.timeout);
  backends.process_group = c10::make_intrusive<c10d::ProcessGroup>(keys, rank, size);
  backends.process_group->setDefaultBackend(Type::GLOO);
  backends.process_group->setBackend(c10::DeviceType::CPU, Type::GLOO, backends.gloo);
  if (options.device.is_cuda()) {
    backends.nccl =
        nccl()->connect(c10::make_intrusive<c10d::PrefixStore>("nccl/", store.store_->keys), options);
    backends.process_group->setBackend(c10::DeviceType::CUDA, Type::NCCL, backends.nccl);
  }
  backends.options = std::move(options);
  return made;
}

void Collectives::broadcast(at::Tensor tensor, int64_t root) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backends_->wait(*backends_->of(tensors[0]).broadcast(tensors, options), tensors[0]);
}

std::vector<at::Tensor> Collectives::gather(at::Tensor tensor) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t i = 0; i < backends_->options.size; ++i) all[0].push_back(at::empty_like(tensor));
  std::vector<at::Tensor> own{std::move(tensor)};
  backends_->wait(*backends_->of(own[0]).allgather(all, own), own[0]);
  return all[0];
}

void Collectives::sum(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backends_->wait(*backends_->of(tensors[0]).allreduce(tensors), tensors[0]);
}

struct Exchange::State {
  std::shared_ptr<Backends> backends;
  std::vector<at::Tensor> sent, received;  // c10d takes lists of one, which must live until then
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

Exchange Collectives::exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from, int tag) {
  Exchange started;
  started.state_ = std::make_shared<Exchange::State>();
  auto& state = *started.state_;
  state.backends = backends_;
  state.sent = {std::move(sent)};
  state.received = {std::move(received)};
  auto& backend = backends_->of(state.sent[0]);
  const auto send = [&] { return backend.send(state.sent, static_cast<int>(to), tag); };
  const auto receive = [&] { return backend.recv(state.received, static_cast<int>(from), tag); };
  if (state.sent[0].is_cuda()) {
    // A message over NCCL waits on the device for its receiver, and what comes after it waits too: all processes would send, and none
    // would come to receive. In one group, both go at the same time.
    backend.startCoalescing();
    send();
    receive();
    state.works = {backend.endCoalescing()};
  } else {
    auto sending = send();
    state.works = {receive(), std::move(sending)};
  }
  return started;
}

void Exchange::wait() {
  for (const auto& work : state_->works) state_->backends->wait(*work, state_->sent[0]);
}

uint64_t Collectives::count() const {
  return backends_->gloo->getSequenceNumberForGroup() +
         (backends_->nccl ? backends_->nccl->getSequenceNumberForGroup() : 0);
}

}  // namespace attentive::c10d_internals
