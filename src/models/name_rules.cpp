#include "models/name_rules.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

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
  const auto at = pattern.find('#');
  if (at == std::string_view::npos || !layer) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), *layer, pattern.substr(at + 1));
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
  return std::string(python_name.starts_with(rules_->prefix) ? python_name.substr(rules_->prefix.size())
                                                             : python_name);
}

std::string NameTable::name_in_file(const NamePair& pair, std::optional<int64_t> layer, bool prefixed) const {
  const bool head = (pair.flags & kHead) != 0;
  return std::string(prefixed && !head ? rules_->prefix : "") + with_layer(pair.python_name, layer);
}

}  // namespace attentive
