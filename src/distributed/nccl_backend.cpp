// The only source that includes c10d's NCCL header, and through it CUDA's headers.

#include "distributed/c10d_internals.h"

#ifndef USE_C10D_NCCL  // a build without NCCL (cmake/AttentiveNccl.cmake)

namespace attentive::c10d_internals {

std::string nccl_lack() {
  return "this build has no NCCL; configure it with -DATTENTIVE_NCCL=ON";
}

std::string nccl_address(const at::Device& /*device*/) {
  return "";  // a process alone does not ask
}

c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                               const Collectives::Options& /*options*/) {
  TORCH_CHECK(false, nccl_lack());
}

}  // namespace attentive::c10d_internals

#else

#include <cstdlib>

#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "distributed/failures.h"

namespace attentive::c10d_internals {
namespace {

std::string release(uint64_t major, uint64_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

// The versions must agree: c10d's options contain a struct of NCCL that this code allocates with the layout
// of the headers it was compiled with, but that LibTorch fills with the layout of its own NCCL.
std::string nccl_lack() {
  const uint64_t version = torch::cuda::nccl::version();
  const auto headers = release(NCCL_MAJOR, NCCL_MINOR),
             of_torch = release(version >> 32, version >> 16 & 0xffff);
  if (headers == of_torch) return "";
  return "this build has the headers of NCCL " + headers + ", LibTorch was built with NCCL " + of_torch +
         "; configure it with the folder of those, -DATTENTIVE_NCCL_INCLUDE=<folder>";
}

std::string nccl_address(const at::Device& device) {
  char text[32] = "";
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device.index()));
  return text;
}

c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Collectives::Options& options) {
  c10::cuda::set_device(options.device.index());
  // By default, c10d watches calls in a thread that ends the process by a signal when a call is late or
  // fails. This variable, read once for each backend, disables that thread; the waiting thread then detects
  // the failure.
  constexpr const char* kWaiting = "TORCH_NCCL_BLOCKING_WAIT";
  const char* before = std::getenv(kWaiting);
  const auto restore = c10::make_scope_exit([was = std::string(before ? before : ""), before] {
    before ? ::setenv(kWaiting, was.c_str(), 1) : ::unsetenv(kWaiting);
  });
  ::setenv(kWaiting, "1", 1);
  auto settings = c10d::ProcessGroupNCCL::Options::create();
  settings->timeout = options.timeout;
  // c10d fills these in only for the first backend of a process, but a process may join several times.
  for (int64_t rank = 0; rank < options.size; ++rank) settings->global_ranks_in_group.push_back(rank);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(options.rank),
                                                             static_cast<int>(options.size), settings);
  try {
    // Connects at once, not in the first call, so that what prevents a connection is an error of Group::join.
    backend->eagerConnectSingleDevice(options.device);
  } catch (const std::exception&) {
    // The backend's destructor would abort NCCL, which may block for ever, and which then ends the process.
    distributed::exit_at_once();
    static_cast<void>(backend.release());
    throw;
  }
  return backend;
}

}  // namespace attentive::c10d_internals

#endif
