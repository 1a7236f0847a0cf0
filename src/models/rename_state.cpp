#include "models/rename_state.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include "base/refusal.h"
#include "core/check.h"
#include "files/state_fit.h"
#include "models/name_rules.h"

namespace attentive {

size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 200;
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> row(b.size() + 1);  // distances between a's first i characters and b's first j
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const auto replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string nearest;
  auto least = std::min<size_t>(name.size(), 200) / 3 + 1;
  for (const auto& other : names) {
    const auto distance = edit_distance(name, other);
    if (distance < least) {
      least = distance;
      nearest = other;
    }
  }
  return nearest;
}

std::string NameFaults::text() const {
  constexpr size_t kMost = 10;
  std::string text;
  const auto add = [&](std::string_view kind, const std::vector<Line>& lines) {
    for (size_t i = 0; i < std::min(kMost, lines.size()); ++i) {
      text += fmt::format("\n{} {}{}", kind, quoted_name(lines[i].name), lines[i].comment);
    }
    if (lines.size() > kMost) text += fmt::format("\n... and {} more {}", lines.size() - kMost, kind);
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("misshapen", misshapen);
  return text;
}

namespace {

// Renames tensors one by one, and finally joins those that are parts of one of ours.
class Renaming {
 public:
  explicit Renaming(const NameTable& table) : table_(table) {}

  void take(const std::string& name, const at::Tensor& tensor) {
    const auto plain = table_.without_prefix(name);
    result_.prefixed = result_.prefixed || plain.size() != name.size();
    std::optional<int64_t> layer;
    const auto pairs = table_.of_python_name(plain, layer);
    if (pairs.empty()) {
      if (!table_.is_ignored(plain)) result_.unexpected.push_back(name);
      return;
    }
    const auto value = in_our_layout(name, tensor, pairs.front()->flags);
    if (!value) return;
    for (const auto* pair : pairs) place(name, *value, *pair, layer, value->is_same(tensor));
  }

  RenamedState finish() {
    for (auto& [name, parts] : joined_) join(name, parts);
    for (auto& copy : copies_) compare(copy);
    return std::move(result_);
  }

 private:
  struct Part {
    at::Tensor value;
    std::string python_name;
  };
  struct Copy {
    std::string our_name;
    Part part;
  };

  // Converts a tensor to this package's layout; nothing if its rank is wrong.
  std::optional<at::Tensor> in_our_layout(const std::string& name, const at::Tensor& tensor, unsigned flags) {
    TORCH_CHECK_VALUE(tensor.defined(), "from_python_names: expected ", name,
                      " to be a tensor, got an undefined one");
    if (const auto reason = refuse_source(tensor); !reason.empty()) {
      result_.misshapen.push_back({name, ": " + reason});
      return std::nullopt;
    }
    if ((flags & kTransposed) != 0 && tensor.dim() == 2) return tensor.t();
    if ((flags & kFlattened) != 0 && tensor.dim() == 4) return tensor.flatten(1);
    if ((flags & (kTransposed | kFlattened)) == 0 || tensor.dim() == 1) return tensor;
    result_.misshapen.push_back({name, fmt::format(": expected rank 1 or {}, got {}",
                                                   (flags & kTransposed) != 0 ? 2 : 4, describe(tensor))});
    return std::nullopt;
  }

  void place(const std::string& python_name, const at::Tensor& value, const NamePair& pair,
             std::optional<int64_t> layer, bool whole) {
    const auto our_name = with_layer(pair.our_name, layer);
    if ((pair.flags & kCopy) != 0) {
      copies_.push_back({our_name, {value, python_name}});
    } else if (pair.joined) {
      auto& parts = joined_[our_name];
      parts.resize(pair.parts);
      if (parts[pair.part].value.defined()) {
        result_.unexpected.push_back(python_name);
      } else {
        parts[pair.part] = {value, python_name};
      }
    } else if (pair.parts == 1) {
      put(our_name, {value, {python_name}, whole, false});
    } else if (value.size(0) % static_cast<int64_t>(pair.parts) == 0) {
      const auto rows = value.size(0) / static_cast<int64_t>(pair.parts);
      put(our_name,
          {value.narrow(0, static_cast<int64_t>(pair.part) * rows, rows), {python_name}, false, false});
    } else if (pair.part == 0) {
      result_.misshapen.push_back(
          {python_name, fmt::format(": expected a size that {} divides, got {}", pair.parts, value.size(0))});
    }
  }

  void put(const std::string& our_name, RenamedState::Tensor tensor) {
    const auto [place, fresh] = result_.tensors.emplace(our_name, tensor);
    if (!fresh && tensor.python_names != place->second.python_names)
      result_.unexpected.push_back(tensor.python_names.front());
  }

  void join(const std::string& our_name, const std::vector<Part>& parts) {
    RenamedState::Tensor whole;
    whole.whole = false;
    whole.fresh = true;
    std::vector<at::Tensor> values;
    for (const auto& part : parts) {
      if (part.value.defined()) {
        values.push_back(part.value);
        whole.python_names.push_back(part.python_name);
      }
    }
    if (values.size() < parts.size()) return add_missing(our_name, parts);
    const auto& first = values.front();
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i].sizes() == first.sizes() && values[i].scalar_type() == first.scalar_type()) continue;
      result_.misshapen.push_back(
          {whole.python_names[i], fmt::format(": expected a {}, as {}, got a {}", describe(first),
                                              whole.python_names[0], describe(values[i]))});
      return;
    }
    if (first.dim() > 0) whole.value = at::cat(values);
    put(our_name, std::move(whole));
  }

  void add_missing(const std::string& our_name, const std::vector<Part>& parts) {
    std::optional<int64_t> layer;
    for (const auto* pair : table_.of_our_name(our_name, layer)) {
      if (!parts[pair->part].value.defined()) result_.missing.push_back(with_layer(pair->python_name, layer));
    }
  }

  void compare(Copy& copy) {
    const auto found = result_.tensors.find(copy.our_name);
    if (found == result_.tensors.end()) {
      put(copy.our_name, {copy.part.value, {copy.part.python_name}, true, false});
      return;
    }
    const auto& original = found->second;
    if (original.value.sizes() == copy.part.value.sizes() && at::equal(original.value, copy.part.value)) {
      return;
    }
    result_.misshapen.push_back(
        {copy.part.python_name,
         fmt::format(": expected the numbers of {}, got other ones", original.python_names[0])});
  }

  const NameTable& table_;
  RenamedState result_;
  std::map<std::string, std::vector<Part>> joined_;
  std::vector<Copy> copies_;
};

}  // namespace

RenamedState rename_from_python(const NameTable& table, const StateDict& state) {
  Renaming renaming(table);
  for (const auto& [name, tensor] : state) renaming.take(name, tensor);
  return renaming.finish();
}

NameFaults faults_of(const NameTable& table, const RenamedState& renamed) {
  NameFaults faults;
  for (const auto& name : renamed.missing) faults.missing.push_back({name, {}});
  faults.misshapen = renamed.misshapen;
  for (const auto& name : renamed.unexpected) {
    const auto plain = table.without_prefix(name);
    std::optional<int64_t> layer;
    if (!table.of_python_name(plain, layer).empty()) {
      faults.unexpected.push_back({name, ": it is there twice, under several names"});
      continue;
    }
    layer = layered(plain).layer;
    std::vector<std::string> known;
    for (const auto& pair : table.pairs()) known.push_back(table.name_in_file(pair, layer, renamed.prefixed));
    const auto nearest = nearest_name(name, known);
    faults.unexpected.push_back({name, nearest == name ? ": it is there twice, under several names"
                                       : nearest.empty()
                                           ? std::string()
                                           : fmt::format(" (the nearest known name is {})", nearest)});
  }
  return faults;
}

}  // namespace attentive
