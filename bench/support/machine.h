#pragma once

#include <string>

namespace bench {

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

}  // namespace bench
