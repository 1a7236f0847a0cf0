#include "core/kept_tensors.h"

#include <string>

namespace attentive {

void fail_reserving(std::string_view who, std::string_view what, std::string_view reason) {
  const auto line = reason.substr(0, reason.find('\n'));
  C10_THROW_ERROR(OutOfMemoryError,
                  std::string(who) + ": cannot reserve " + std::string(what) + ": " + std::string(line));
}

}  // namespace attentive
