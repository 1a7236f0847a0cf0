#include "support/cells.h"

namespace attentive::test {

std::string Cell::refusal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          AttentionOptions options, const AttentionExtras& extras) const {
  if (backend == Backend::Auto) return "";
  options.backend = Backend::Auto;
  for (const auto& candidate : explain(q, k, v, options, extras).candidates) {
    if (candidate.backend == backend) return candidate.available ? "" : candidate.reason;
  }
  return "this build does not have it";
}

bool takes(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
           const AttentionOptions& options, const AttentionExtras& extras) {
  return Cell{backend, q.scalar_type(), q.device()}.refusal(q, k, v, options, extras).empty();
}

std::ostream& operator<<(std::ostream& out, const Cell& cell) {
  return out << "backend " << to_string(cell.backend) << ", " << c10::toString(cell.type) << ", "
             << cell.device;
}

const std::vector<Cell>& cells() {
  static const std::vector<Cell> all = [] {
    std::vector<Cell> result;
    for (const auto& device : devices()) {
      for (const auto backend : kAllBackends) {
        for (const auto type : kAllTypes) result.push_back({backend, type, device});
      }
    }
    return result;
  }();
  return all;
}

}  // namespace attentive::test
