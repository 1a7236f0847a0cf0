#include "models/rename_state.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include "base/refusal.h"
#include "core/check.h"
#include "files/state_entries.h"
#include "models/name_rules.h"

namespace attentive {

size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 200;
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> row(b.size() + 1);  // the distances of a's first i characters to b's first j
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

// Reads tensor after tensor, then what consists of several of them.
class Renaming {
 public:
  explicit Renaming(const NameTable& table) : table_(table) {}

  void take(const std::string& name, const at::Tensor& tensor) {
    const auto plain = table_.without_prefix(name);
    result_.prefixed = result_.prefixed || plain.size() != name.size();
    std::optional<int64_t> layer;
    const auto pairs = table_.of_theirs(plain, layer);
    if (pairs.empty()) {
      if (!table_.is_ignored(plain)) result_.unexpected.push_back(name);
      return;
    }
    const auto value = turned(name, tensor, pairs.front()->flags);
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
    std::string theirs;
  };
  struct Copy {
    std::string ours;
    Part part;
  };

  // The tensor as it is here; nothing if its rank is wrong.
  std::optional<at::Tensor> turned(const std::string& name, const at::Tensor& tensor, unsigned flags) {
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

  void place(const std::string& theirs, const at::Tensor& value, const NamePair& pair,
             std::optional<int64_t> layer, bool whole) {
    const auto ours = with_layer(pair.ours, layer);
    if ((pair.flags & kCopy) != 0) {
      copies_.push_back({ours, {value, theirs}});
    } else if (pair.joined) {
      auto& parts = joined_[ours];
      parts.resize(pair.parts);
      if (parts[pair.part].value.defined()) {
        result_.unexpected.push_back(theirs);
      } else {
        parts[pair.part] = {value, theirs};
      }
    } else if (pair.parts == 1) {
      put(ours, {value, {theirs}, whole, false});
    } else if (value.size(0) % static_cast<int64_t>(pair.parts) == 0) {
      const auto rows = value.size(0) / static_cast<int64_t>(pair.parts);
      put(ours, {value.narrow(0, static_cast<int64_t>(pair.part) * rows, rows), {theirs}, false, false});
    } else if (pair.part == 0) {
      result_.misshapen.push_back(
          {theirs, fmt::format(": expected a size that {} divides, got {}", pair.parts, value.size(0))});
    }
  }

  void put(const std::string& ours, RenamedState::Tensor tensor) {
    const auto [place, fresh] = result_.tensors.emplace(ours, tensor);
    if (!fresh && tensor.theirs != place->second.theirs) result_.unexpected.push_back(tensor.theirs.front());
  }

  void join(const std::string& ours, const std::vector<Part>& parts) {
    RenamedState::Tensor whole;
    whole.whole = false;
    whole.fresh = true;
    std::vector<at::Tensor> values;
    for (const auto& part : parts) {
      if (part.value.defined()) {
        values.push_back(part.value);
        whole.theirs.push_back(part.theirs);
      }
    }
    if (values.size() < parts.size()) return add_missing(ours, parts);
    const auto& first = values.front();
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i].sizes() == first.sizes() && values[i].scalar_type() == first.scalar_type()) continue;
      result_.misshapen.push_back(
          {whole.theirs[i], fmt::format(": expected a {}, as {}, got a {}", describe(first), whole.theirs[0],
                                        describe(values[i]))});
      return;
    }
    if (first.dim() > 0) whole.value = at::cat(values);
    put(ours, std::move(whole));
  }

  void add_missing(const std::string& ours, const std::vector<Part>& parts) {
    std::optional<int64_t> layer;
    for (const auto* pair : table_.of_ours(ours, layer)) {
      if (!parts[pair->part].value.defined()) result_.missing.push_back(with_layer(pair->theirs, layer));
    }
  }

  void compare(Copy& copy) {
    const auto found = result_.tensors.find(copy.ours);
    if (found == result_.tensors.end()) {
      put(copy.ours, {copy.part.value, {copy.part.theirs}, true, false});
      return;
    }
    const auto& original = found->second;
    if (original.value.sizes() == copy.part.value.sizes() && at::equal(original.value, copy.part.value)) {
      return;
    }
    result_.misshapen.push_back(
        {copy.part.theirs, fmt::format(": expected the numbers of {}, got other ones", original.theirs[0])});
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
    if (!table.of_theirs(plain, layer).empty()) {
      faults.unexpected.push_back({name, ": it is there twice, under several names"});
      continue;
    }
    layer = layered(plain).layer;
    std::vector<std::string> known;
    for (const auto& pair : table.pairs()) known.push_back(table.their_name(pair, layer, renamed.prefixed));
    const auto nearest = nearest_name(name, known);
    faults.unexpected.push_back({name, nearest == name ? ": it is there twice, under several names"
                                       : nearest.empty()
                                           ? std::string()
                                           : fmt::format(" (the nearest known name is {})", nearest)});
  }
  return faults;
}

}  // namespace attentive
