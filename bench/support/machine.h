#pragma once

#include <string>

namespace bench {

/// What a measurement has to name to be read later.
struct Machine {
  std::string cpu;
  std::string isa;  ///< instruction sets that matter here
  int cores = 0;
  std::string libtorch;
  std::string compiler;  ///< of this program
  std::string package;   ///< version of attentive
};

Machine describe_machine();

}  // namespace bench
