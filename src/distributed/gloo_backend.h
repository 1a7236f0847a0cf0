#pragma once

#include <chrono>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace attentive::c10d_internals {

/// LibTorch's backend over Gloo, connected to all other processes. The device is the one that GLOO_SOCKET_IFNAME names, or that
/// of this machine's host name.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                               int64_t size, std::chrono::milliseconds timeout);

}  // namespace attentive::c10d_internals
