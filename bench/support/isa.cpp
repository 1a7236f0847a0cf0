#include "support/isa.h"

#include <cstdlib>
#include <string_view>

#include <ATen/Version.h>

namespace bench {

Isa isa_in_use() {
  Isa isa;
  isa.capability = at::get_cpu_capability();
  isa.avx512 = isa.capability.starts_with("AVX512");
  isa.avx2 = isa.avx512 || isa.capability == "AVX2";
  const char* limit = std::getenv("ATEN_CPU_CAPABILITY");
  isa.newest = isa.avx512 && !(limit && std::string_view(limit) == "avx512");
  return isa;
}

}  // namespace bench
