#pragma once

#include <string>

namespace bench {

/// What a measurement has to name to be read later.
struct Machine {
  std::string cpu;         ///< as /proc/cpuinfo names it
  std::string isa;         ///< the instruction sets in use that matter here
  std::string capability;  ///< the vectors that LibTorch uses, in its words
  int cores = 0;
  std::string libtorch;
  std::string compiler;  ///< of this program
  std::string package;   ///< version of attentive
  std::string device;    ///< the GPU that computes; empty: the CPU does
};

Machine describe_machine(std::string device = "");

/// The machine and `threads` in one line.
std::string to_string(const Machine& machine, int threads);

}  // namespace bench
