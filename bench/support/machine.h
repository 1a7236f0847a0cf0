#pragma once

#include <string>

#include <ATen/Parallel.h>
#include <c10/core/Device.h>

namespace bench {

/// The instruction sets that LibTorch and this package use on this machine: those of the CPU, restricted by
/// ATEN_CPU_CAPABILITY.
struct Isa {
  std::string capability;  ///< LibTorch's name for its vector instructions
  bool avx2 = false;       ///< with FMA
  bool avx512 = false;
  bool newest = false;  ///< bfloat16 vectors and the matrix unit, if the CPU has them
};

Isa isa_in_use();

/// The properties of the machine without which a measurement cannot be interpreted later.
struct Machine {
  std::string cpu;         ///< as /proc/cpuinfo names it
  std::string isa;         ///< the relevant instruction sets in use
  std::string capability;  ///< LibTorch's name for the vector instructions that it uses
  int cores = 0;
  std::string libtorch;
  std::string compiler;  ///< that compiled this program
  std::string package;   ///< version of attentive
  std::string device;    ///< the GPU that computes; empty if the CPU does
};

Machine describe_machine(std::string device = "");

/// Describes the machine and `threads` in one line.
std::string to_string(const Machine& machine, int threads);

/// Sets ATen's number of threads during its lifetime.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : previous_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~ThreadCount() { at::set_num_threads(previous_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int previous_;
};

/// Waits until the device has finished its queued work. Does nothing on the CPU.
void finish(at::Device device);

}  // namespace bench
