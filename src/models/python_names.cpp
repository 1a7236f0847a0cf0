#include "models/python_names.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <attentive/models/model_folder.h>

#include "base/refusal.h"
#include "core/check.h"
#include "files/state_fit.h"

namespace attentive {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Expands the first group between `open` and `close` into its alternatives; returns the text itself if there
// is no group.
std::vector<std::string> expand_group(const std::string& text, char open, char close) {
  const auto begin = text.find(open);
  if (begin == std::string::npos) return {text};
  const auto end = text.find(close, begin);
  std::vector<std::string> all;
  for (const auto& choice : split(text.substr(begin + 1, end - begin - 1), ',')) {
    all.push_back(text.substr(0, begin) + choice + text.substr(end + 1));
  }
  return all;
}

std::vector<std::string> expand_braces(const std::string& text) {
  std::vector<std::string> all{text};
  while (all.front().find('{') != std::string::npos) {
    std::vector<std::string> longer;
    for (const auto& one : all) {
      for (auto& name : expand_group(one, '{', '}')) longer.push_back(std::move(name));
    }
    all = std::move(longer);
  }
  return all;
}

void add_pairs(const NameRule& rule, std::vector<NamePair>& pairs) {
  const auto python_names = expand_braces(std::string(rule.python_name)),
             our_names = expand_braces(std::string(rule.our_name));
  TORCH_INTERNAL_ASSERT(python_names.size() == our_names.size(), rule.python_name);
  for (size_t i = 0; i < python_names.size(); ++i) {
    const auto python_parts = expand_group(python_names[i], '[', ']'),
               our_parts = expand_group(our_names[i], '[', ']');
    const auto parts = std::max(python_parts.size(), our_parts.size());
    for (size_t part = 0; part < parts; ++part) {
      pairs.push_back({python_parts[std::min(part, python_parts.size() - 1)],
                       our_parts[std::min(part, our_parts.size() - 1)], rule.flags, part, parts,
                       python_parts.size() > 1});
    }
  }
}

// Parses a layer number in the form that Python writes.
std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto* end = text.data() + text.size();
  const bool plain = !text.empty() && text.size() <= 7 && (text == "0" || text.front() != '0');
  if (!plain || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace

LayeredName layered(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const auto end = std::min(name.find('.', begin), name.size());
    if (const auto layer = number_of(name.substr(begin, end - begin))) {
      return {std::string(name.substr(0, begin)) + '#' + std::string(name.substr(end)), layer};
    }
    begin = end + 1;
  }
  return {std::string(name), std::nullopt};
}

std::string with_layer(std::string_view pattern, std::optional<int64_t> layer) {
  const auto offset = pattern.find('#');
  if (offset == std::string_view::npos || !layer) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, offset), *layer, pattern.substr(offset + 1));
}

NameTable::NameTable(const NameRules& rules) : rules_(&rules) {
  for (const auto& some : rules.rules) {
    for (const auto& rule : some) add_pairs(rule, pairs_);
  }
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const auto& pair = pairs_[i];
    by_python_name_.emplace(pair.python_name, i);
    if ((pair.flags & (kAlias | kCopy)) == 0) by_our_name_.emplace(pair.our_name, i);
  }
  for (const auto& name : rules.ignored) {
    for (auto& one : expand_braces(std::string(name))) ignored_.insert(std::move(one));
  }
}

std::vector<const NamePair*> NameTable::find(const Index& index, std::string_view name,
                                             std::optional<int64_t>& layer) const {
  layer.reset();
  auto [begin, end] = index.equal_range(name);
  if (begin == end) {
    const auto numbered = layered(name);
    layer = numbered.layer;
    std::tie(begin, end) = index.equal_range(numbered.pattern);
  }
  std::vector<const NamePair*> found;
  for (; begin != end; ++begin) found.push_back(&pairs_[begin->second]);
  return found;
}

std::vector<const NamePair*> NameTable::of_python_name(std::string_view plain,
                                                       std::optional<int64_t>& layer) const {
  return find(by_python_name_, plain, layer);
}

std::vector<const NamePair*> NameTable::of_our_name(std::string_view name,
                                                    std::optional<int64_t>& layer) const {
  return find(by_our_name_, name, layer);
}

bool NameTable::is_ignored(std::string_view plain) const {
  return ignored_.contains(plain) || ignored_.contains(layered(plain).pattern);
}

std::string NameTable::without_prefix(std::string_view python_name) const {
  const auto name = without_wrappers(python_name);
  return name.starts_with(rules_->prefix) ? name.substr(rules_->prefix.size()) : name;
}

std::string NameTable::name_in_file(const NamePair& pair, std::optional<int64_t> layer, bool prefixed) const {
  const bool head = (pair.flags & kHead) != 0;
  return std::string(prefixed && !head ? rules_->prefix : "") + with_layer(pair.python_name, layer);
}

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
    result_.prefixed = result_.prefixed || plain.size() != without_wrappers(name).size();
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
