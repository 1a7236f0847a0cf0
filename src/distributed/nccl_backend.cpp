// The only source that includes c10d's NCCL header, and through it CUDA's headers.

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

// Sets an environment variable during its lifetime.
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
  // The versions must agree: c10d's options contain a struct of NCCL that this code allocates with the layout
  // of the headers it was compiled with, but that LibTorch fills with the layout of its own NCCL.
  std::string lack() const override {
    const uint64_t version = torch::cuda::nccl::version();
    const auto headers = release(NCCL_MAJOR, NCCL_MINOR),
               of_torch = release(version >> 32, version >> 16 & 0xffff);
    if (headers == of_torch) return "";
    return "this build has the headers of NCCL " + headers + ", LibTorch was built with NCCL " + of_torch +
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
      // The backend's destructor would abort NCCL, which may block for ever, and which then ends the process.
      distributed::exit_at_once();
      static_cast<void>(backend.release());
      throw;
    }
    return backend;
  }

 private:
  static c10::intrusive_ptr<c10d::Backend> made(const c10::intrusive_ptr<c10d::Store>& store,
                                                const Collectives::Options& options) {
    // By default, c10d watches calls in a thread that ends the process by a signal when a call is late or
    // fails. This variable, read once for each backend, disables that thread; the waiting thread then detects
    // the failure and can say which process is missing.
    const Variable waiting("TORCH_NCCL_BLOCKING_WAIT", "1");
    auto settings = c10d::ProcessGroupNCCL::Options::create();
    settings->timeout = options.timeout;
    // c10d fills these in only for the first backend of a process, but a process may join a group several
    // times.
    for (int64_t rank = 0; rank < options.size; ++rank) settings->global_ranks_in_group.push_back(rank);
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(options.rank),
                                                       static_cast<int>(options.size), std::move(settings));
  }

  // Connects at once, not in the first call, so that what prevents a connection is an error of Group::join.
  // NCCL waits without limit for a stopped process, so this runs in a thread that may be left behind.
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
