#include "distributed/c10d_internals.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "distributed/c10d_backends.h"
#include "distributed/gloo_backend.h"
#include "distributed/nccl_backend.h"
#include "distributed/store_client.h"

namespace attentive::c10d_internals {
namespace {

using distributed::StoreClient;
using std::chrono::milliseconds;

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

milliseconds until(distributed::Deadline end) {
  return std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
}

// Gives the backends access to the store, through which their processes find each other.
class ClientStore final : public c10d::Store {
 public:
  ClientStore(std::shared_ptr<StoreClient> client, milliseconds timeout)
      : Store(timeout), client_(std::move(client)) {}

  c10::intrusive_ptr<Store> clone() override {
    auto client = std::make_shared<StoreClient>(client_->host(), client_->port(),
                                                std::chrono::steady_clock::now() + timeout_);
    client->set_limit(timeout_);
    return c10::make_intrusive<ClientStore>(std::move(client), timeout_);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    client_->set(key, text_of(value));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& value) override {
    return bytes_of(client_->compare_set(key, text_of(expected), text_of(value)));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key});
    return bytes_of(client_->get(key));
  }
  int64_t add(const std::string& key, int64_t value) override { return client_->add(key, value); }
  bool deleteKey(const std::string& key) override { return client_->remove(key); }
  bool check(const std::vector<std::string>& keys) override { return client_->check(keys); }
  int64_t getNumKeys() override { return client_->size(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    TORCH_CHECK_WITH(DistStoreError, client_->wait(keys, timeout), "timed out after ", timeout.count(),
                     " ms: another process has not come");
  }

 private:
  std::shared_ptr<StoreClient> client_;
};

// The serving process connects to its own store by c10d's client: that connection goes to this machine,
// whatever MASTER_ADDR resolves to.
c10::intrusive_ptr<c10d::Store> served_at(uint16_t port, distributed::Deadline end) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = until(end);
  return c10::make_intrusive<c10d::TCPStore>("localhost", options);
}

}  // namespace

struct KeyStore::Store {
  c10::intrusive_ptr<c10d::Store> served;  // destroyed last
  std::shared_ptr<StoreClient> client;
  std::string prefix;
};

KeyStore::KeyStore(const StoreAddress& address, bool serves, distributed::Deadline end)
    : store_(std::make_shared<Store>()) {
  if (serves) store_->served = served_at(address.port, end);
  store_->client = std::make_shared<StoreClient>(address.host, address.port, end);
  store_->prefix = address.prefix;
}

void KeyStore::set_limit(milliseconds limit) {
  store_->client->set_limit(limit);
}

void KeyStore::set(const std::string& key, const std::string& value) {
  store_->client->set(store_->prefix + key, value);
}

std::optional<std::string> KeyStore::find(const std::string& key) {
  const auto name = store_->prefix + key;
  if (!store_->client->check({name})) return std::nullopt;
  return store_->client->get(name);
}

std::string KeyStore::set_first(const std::string& key, const std::string& value) {
  return store_->client->compare_set(store_->prefix + key, "", value);
}

int64_t KeyStore::count(const std::string& key) {
  return store_->client->add(store_->prefix + key, 1);
}

bool KeyStore::wait(const std::string& key, milliseconds timeout) {
  return store_->client->wait({store_->prefix + key}, timeout);
}

std::unique_ptr<Collectives> Collectives::connect(KeyStore& store, Options options) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto rank = static_cast<int>(options.rank), size = static_cast<int>(options.size);
  auto made = std::make_unique<Collectives>();
  made->backends_ = std::make_shared<Backends>();
  auto& backends = *made->backends_;
  const auto all_keys = c10::make_intrusive<ClientStore>(store.store_->client, options.timeout);
  const auto keys_of = [&](const char* backend) {
    return c10::make_intrusive<c10d::PrefixStore>(store.store_->prefix + backend, all_keys);
  };
  const auto keys = keys_of("gloo");
  backends.gloo = gloo_backend(keys, rank, size, options.timeout);
  backends.process_group = c10::make_intrusive<c10d::ProcessGroup>(keys, rank, size);
  backends.process_group->setDefaultBackend(Type::GLOO);
  backends.process_group->setBackend(c10::DeviceType::CPU, Type::GLOO, backends.gloo);
  if (options.device.is_cuda()) {
    backends.nccl = nccl()->connect(keys_of("nccl"), options);
    backends.process_group->setBackend(c10::DeviceType::CUDA, Type::NCCL, backends.nccl);
  }
  backends.options = std::move(options);
  return made;
}

void Collectives::broadcast(at::Tensor tensor, int64_t root) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backends_->wait(*backends_->backend_for(tensors[0]).broadcast(tensors, options), tensors[0]);
}

std::vector<at::Tensor> Collectives::gather(at::Tensor tensor) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t i = 0; i < backends_->options.size; ++i) all[0].push_back(at::empty_like(tensor));
  std::vector<at::Tensor> sent{std::move(tensor)};
  backends_->wait(*backends_->backend_for(sent[0]).allgather(all, sent), sent[0]);
  return all[0];
}

void Collectives::sum(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backends_->wait(*backends_->backend_for(tensors[0]).allreduce(tensors), tensors[0]);
}

struct Exchange::State {
  std::shared_ptr<Backends> backends;
  std::vector<at::Tensor> sent, received;  // c10d takes lists; they must live until the calls are over
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

Exchange Collectives::exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from, int tag) {
  Exchange started;
  started.state_ = std::make_shared<Exchange::State>();
  auto& state = *started.state_;
  state.backends = backends_;
  state.sent = {std::move(sent)};
  state.received = {std::move(received)};
  auto& backend = backends_->backend_for(state.sent[0]);
  const auto send = [&] { return backend.send(state.sent, static_cast<int>(to), tag); };
  const auto receive = [&] { return backend.recv(state.received, static_cast<int>(from), tag); };
  if (state.sent[0].is_cuda()) {
    // Over NCCL, a send occupies the device until its receiver is there, and later calls wait behind it: if
    // all processes sent first, none would reach its receive. Coalesced, both run at the same time.
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
