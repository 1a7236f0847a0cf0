// Replaces nccl_backend.cpp in a build without NCCL (cmake/AttentiveNccl.cmake).

#include "distributed/nccl_backend.h"

namespace attentive::c10d_internals {

const Nccl* nccl() {
  return nullptr;
}

}  // namespace attentive::c10d_internals
