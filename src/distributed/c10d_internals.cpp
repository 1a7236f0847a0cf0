#include "distributed/c10d_internals.h"

#include <thread>

#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "distributed/c10d_backends.h"

namespace attentive::c10d_internals {
c10::intrusive_ptr<c10d::Store> open_store(const std::string& host, uint16_t port, const std::string& prefix,
                                           bool serves, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(host, options));
}

// NCCL's own wait() either returns at once and only makes later work on the device wait, or it blocks. When
// it blocks, it aborts NCCL after a failure, which may never return. So this thread polls instead.
void wait_for_device(c10d::Work& work, const Collectives::Options& options) {
  constexpr int64_t kBusyLooks = 2000;  // most calls finish sooner than a sleep would
  constexpr std::chrono::microseconds kPause{50};
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  for (int64_t looks = 0; !work.isCompleted(); ++looks) {
    TORCH_CHECK(std::chrono::steady_clock::now() < end, "timed out after ", options.timeout.count(),
                " ms on ", options.device);
    if (looks >= kBusyLooks) std::this_thread::sleep_for(kPause);
  }
  if (const auto error = work.exception()) std::rethrow_exception(error);
  work.synchronize();  // releases the memory that c10d has kept for the call
}

Backends::~Backends() {
  if (!nccl) return;
  try {
    nccl->shutdown();  // otherwise the destructor of a backend would abort what the device still sends
  } catch (const std::exception&) {
    static_cast<void>(nccl.release());  // this process ends in any case; nothing is destroyed
  }
}

void Backends::wait(c10d::Work& work, const at::Tensor& tensor) const {
  communicate([&] {
    if (tensor.is_cuda()) {
      wait_for_device(work, options);
    } else {
      work.wait();
    }
  });
}

std::unique_ptr<Collectives> Collectives::connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                  Options options) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto rank = static_cast<int>(options.rank), size = static_cast<int>(options.size);
  auto made = std::make_unique<Collectives>();
  made->backends_ = std::make_shared<Backends>();
  auto& backends = *made->backends_;
  backends.store = store;
  backends.gloo = gloo_backend(store, rank, size, options.timeout);
  backends.process_group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  backends.process_group->setDefaultBackend(Type::GLOO);
  backends.process_group->setBackend(c10::DeviceType::CPU, Type::GLOO, backends.gloo);
  if (options.device.is_cuda()) {
    backends.nccl = nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store), options);
    backends.process_group->setBackend(c10::DeviceType::CUDA, Type::NCCL, backends.nccl);
  }
  backends.options = std::move(options);
  return made;
}

void Collectives::broadcast(at::Tensor tensor, int64_t root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backends_->call({std::move(tensor)},
                  [&](auto& backend, auto& tensors) { return backend.broadcast(tensors, options); });
}

std::vector<at::Tensor> Collectives::gather(at::Tensor tensor) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int64_t i = 0; i < backends_->options.size; ++i) all[0].push_back(at::empty_like(tensor));
  backends_->call({std::move(tensor)},
                  [&](auto& backend, auto& sent) { return backend.allgather(all, sent); });
  return all[0];
}

void Collectives::sum(at::Tensor tensor) {
  backends_->call({std::move(tensor)},
                  [](auto& backend, auto& tensors) { return backend.allreduce(tensors); });
}

std::function<void()> Collectives::exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from,
                                            int tag) {
  // c10d takes lists, which must live until the calls are over.
  const auto lists = std::make_shared<std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>>();
  lists->first = {std::move(sent)};
  lists->second = {std::move(received)};
  const bool on_cuda = lists->first[0].is_cuda();
  auto& backend = backends_->backend_for(lists->first[0]);
  const auto send = [&] { return backend.send(lists->first, static_cast<int>(to), tag); };
  const auto receive = [&] { return backend.recv(lists->second, static_cast<int>(from), tag); };
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  communicate([&] {
    if (on_cuda) {
      // Over NCCL, a send occupies the device until its receiver is there, and later calls wait behind it: if
      // all processes sent first, none would reach its receive. Coalesced, both run at the same time.
      backend.startCoalescing();
      send();
      receive();
      works = {backend.endCoalescing()};
    } else {
      auto sending = send();
      works = {receive(), std::move(sending)};
    }
  });
  return [backends = backends_, lists, works] {
    for (const auto& work : works) backends->wait(*work, lists->first[0]);
  };
}

uint64_t Collectives::count() const {
  return backends_->gloo->getSequenceNumberForGroup() +
         (backends_->nccl ? backends_->nccl->getSequenceNumberForGroup() : 0);
}

}  // namespace attentive::c10d_internals
