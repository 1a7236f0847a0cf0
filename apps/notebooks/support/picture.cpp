#include "support/picture.h"

namespace notebooks {

bool pictures_available() {
  return false;
}

std::vector<Drawing> draw(const Picture& /*picture*/) {
  return {};
}

}  // namespace notebooks
