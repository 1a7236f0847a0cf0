#include <algorithm>
#include <cmath>

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <attentive/models/python_names.h>

#include "core/check.h"
#include "models/name_rules.h"
#include "models/rename_state.h"

namespace attentive {
namespace {

NameTable table_of(const char* caller, std::string_view family) {
  const auto* found = find_family(family);
  TORCH_CHECK_VALUE(found != nullptr, caller, ": expected one of the families ", known_families(), "; got \"",
                    family, '"');
  return NameTable(found->rules);
}

// The side length of the square patches in a weight (out, channels * side * side).
int64_t patch_side(const std::string& name, const at::Tensor& weight, int64_t channels) {
  const auto pixels = channels > 0 ? weight.size(1) / channels : 0;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  TORCH_CHECK_VALUE(side > 0 && channels * side * side == weight.size(1), "to_python_names: ", name,
                    ": expected ", channels, " * side^2 columns, got ", weight.size(1));
  return side;
}

at::Tensor in_python_layout(const std::string& name, const at::Tensor& tensor, unsigned flags,
                            int64_t channels) {
  if (tensor.dim() != 2) return tensor;
  if ((flags & kTransposed) != 0) return tensor.t().contiguous();
  if ((flags & kFlattened) == 0) return tensor;
  const auto side = patch_side(name, tensor, channels);
  return tensor.reshape({tensor.size(0), channels, side, side});
}

at::Tensor part_of(const std::string& name, const at::Tensor& tensor, const NamePair& pair) {
  const auto parts = static_cast<int64_t>(pair.parts);
  TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % parts == 0, "to_python_names: ", name,
                    ": expected a first size that ", parts, " divides, got ", describe(tensor));
  const auto rows = tensor.size(0) / parts;
  return tensor.narrow(0, static_cast<int64_t>(pair.part) * rows, rows);
}

void fail_if(const char* caller, std::string_view family, const NameFaults& faults) {
  TORCH_CHECK_VALUE(faults.empty(), caller, ": the state dict does not fit the names of ", family, ':',
                    faults.text());
}

}  // namespace

StateDict from_python_names(std::string_view family, const StateDict& state) {
  constexpr const char* caller = "from_python_names";
  const auto table = table_of(caller, family);
  const auto renamed = rename_from_python(table, state);
  fail_if(caller, family, faults_of(table, renamed));
  StateDict result;
  for (const auto& [name, tensor] : renamed.tensors) result.emplace(name, tensor.value);
  return result;
}

StateDict to_python_names(std::string_view family, const StateDict& state,
                          const PythonNamesOptions& options) {
  constexpr const char* caller = "to_python_names";
  const auto table = table_of(caller, family);
  StateDict result;
  // The parts of Python's fused tensors, by Python name.
  std::map<std::string, std::vector<at::Tensor>> split;
  std::map<std::string, unsigned> flags;
  NameFaults faults;
  for (const auto& [name, tensor] : state) {
    check_defined(caller, '"' + name + '"', tensor);
    std::optional<int64_t> layer;
    const auto pairs = table.of_our_name(name, layer);
    if (pairs.empty()) faults.unexpected.push_back({name, {}});
    for (const auto* pair : pairs) {
      const auto python_name = table.name_in_file(*pair, layer, options.prefix);
      if (pair->parts == 1) {
        result[python_name] = in_python_layout(name, tensor, pair->flags, options.channels);
      } else if (pair->joined) {
        result[python_name] = part_of(name, tensor, *pair);
      } else {
        auto& parts = split[python_name];
        parts.resize(pair->parts);
        parts[pair->part] = tensor;
        flags[python_name] = pair->flags;
      }
    }
  }
  for (const auto& [python_name, parts] : split) {
    const bool whole =
        std::all_of(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
    if (whole) {
      result[python_name] =
          in_python_layout(python_name, at::cat(parts), flags[python_name], options.channels);
    } else {
      faults.missing.push_back({python_name, ": some of its parts"});
    }
  }
  fail_if(caller, family, faults);
  return result;
}

}  // namespace attentive
