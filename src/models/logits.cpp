#include <attentive/models/logits.h>

#include "core/check.h"

namespace attentive {

std::string_view to_string(Logits value) {
  return enum_name(value, {"all", "last"});
}

}  // namespace attentive
