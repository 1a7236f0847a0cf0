#pragma once

#include <chrono>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace attentive::c10d_internals {

/// LibTorch's Gloo backend, connected to all other processes. It uses the network interface that
/// GLOO_SOCKET_IFNAME names, or the one that this machine's host name resolves to.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                               int64_t size, std::chrono::milliseconds timeout);

}  // namespace attentive::c10d_internals
