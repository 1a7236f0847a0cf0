// The one source that includes c10d's header of NCCL, and with it those of CUDA.

#include "distributed/nccl_backend.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <thread>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "distributed/process_effects.h"

namespace attentive::c10d_internals {
namespace {

constexpr std::chrono::milliseconds kPause{10};

// A variable of the environment for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string release(uint64_t major, uint64_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

class CompiledNccl final : public Nccl {
 public:
  // c10d's options hold a structure of NCCL: in the memory that this code allocates, LibTorch writes what its own NCCL defines.
  std::string lack() const override {
    const uint64_t theirs = torch::cuda::nccl::version();
    const auto ours = release(NCCL_MAJOR, NCCL_MINOR),
               of_torch = release(theirs >> 32, theirs >> 16 & 0xffff);
    if (ours == of_torch) return "";
    return "this build has the headers of NCCL " + ours + ", LibTorch was built with NCCL " + of_torch +
           "; configure it with the folder of those, -DATTENTIVE_NCCL_INCLUDE=<folder>";
  }

  std::string address(const at::Device& device) const override {
    char text[32] = "";
    C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device.index()));
    return text;
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Collectives::Options& options) const override {
    c10::cuda::set_device(options.device.index());
    auto backend = made(store, options);
    try {
      await_all(backend, options);
    } catch (const std::exception&) {
      // Its destructor would abort NCCL, which can last for ever, and end the process if it does.
      distributed::exit_at_once();
      static_cast<void>(backend.release());
      throw;
    }
    return backend;
  }

 private:
  static c10::intrusive_ptr<c10d::Backend> made(const c10::intrusive_ptr<c10d::Store>& store,
                                                const Collectives::Options& options) {
    // By default, c10d watches the calls in a thread that ends the process by a signal when one is late or fails. With this variable,
    // which it reads once for each backend, there is no such thread: who waits for a call finds that out, and can say which process
    // is missing.
    const Variable waiting("TORCH_NCCL_BLOCKING_WAIT", "1");
    auto settings = c10d::ProcessGroupNCCL::Options::create();
    settings->timeout = options.timeout;
    // c10d knows these for the first backend of a process alone; a group may be joined, left and joined again.
    for (int64_t rank = 0; rank < options.size; ++rank) settings->global_ranks_in_group.push_back(rank);
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(options.rank),
                                                       static_cast<int>(options.size), std::move(settings));
  }

  // At once, and not in the first call: what keeps the processes apart is an error of Group::join. NCCL itself waits without end for a
  // process that is stopped, so it waits in a thread that may be left behind.
  static void await_all(const c10::intrusive_ptr<c10d::Backend>& backend,
                        const Collectives::Options& options) {
    std::packaged_task<void()> connect(
        [backend, device = options.device] { backend->eagerConnectSingleDevice(device); });
    auto connected = connect.get_future();
    std::thread(std::move(connect)).detach();
    const auto end = std::chrono::steady_clock::now() + options.timeout;
    while (connected.wait_for(kPause) != std::future_status::ready) {
      TORCH_CHECK(!options.given_up() && std::chrono::steady_clock::now() < end,
                  "NCCL has not connected all processes: timed out after ", options.timeout.count(), " ms");
    }
    connected.get();
  }
};

}  // namespace

const Nccl* nccl() {
  static const CompiledNccl compiled;
  return &compiled;
}

}  // namespace attentive::c10d_internals
