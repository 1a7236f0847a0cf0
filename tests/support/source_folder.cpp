#include <cstdlib>

#include "support/files.h"

namespace attentive::test {

std::string source_folder() {
  const char* named = std::getenv("ATTENTIVE_SOURCE_DIR");
  return named != nullptr && *named != '\0' ? named : ATTENTIVE_SOURCE_DIR;
}

}  // namespace attentive::test
