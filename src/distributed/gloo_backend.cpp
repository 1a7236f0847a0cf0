// The only source that includes c10d's Gloo header, which needs gloo_declarations.h.

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/c10d_backends.h"

namespace attentive::c10d_internals {

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                               int64_t size, std::chrono::milliseconds timeout) {
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      store, static_cast<int>(rank), static_cast<int>(size),
      c10d::ProcessGroupGloo::Options::create_default(timeout));
}

}  // namespace attentive::c10d_internals
