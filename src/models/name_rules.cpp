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

// The texts that the first group between these two characters stands for, or the text itself.
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
  const auto theirs = expand_braces(std::string(rule.theirs)), ours = expand_braces(std::string(rule.ours));
  TORCH_INTERNAL_ASSERT(theirs.size() == ours.size(), rule.theirs);
  for (size_t i = 0; i < theirs.size(); ++i) {
    const auto their_parts = expand_group(theirs[i], '[', ']'), our_parts = expand_group(ours[i], '[', ']');
    const auto parts = std::max(their_parts.size(), our_parts.size());
    for (size_t part = 0; part < parts; ++part) {
      pairs.push_back({their_parts[std::min(part, their_parts.size() - 1)],
                       our_parts[std::min(part, our_parts.size() - 1)], rule.flags, part, parts,
                       their_parts.size() > 1});
    }
  }
}

// A layer's number as Python writes it.
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
    theirs_.emplace(pair.theirs, i);
    if ((pair.flags & (kAlias | kCopy)) == 0) ours_.emplace(pair.ours, i);
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

std::vector<const NamePair*> NameTable::of_theirs(std::string_view plain,
                                                  std::optional<int64_t>& layer) const {
  return find(theirs_, plain, layer);
}

std::vector<const NamePair*> NameTable::of_ours(std::string_view name, std::optional<int64_t>& layer) const {
  return find(ours_, name, layer);
}

bool NameTable::is_ignored(std::string_view plain) const {
  return ignored_.contains(plain) || ignored_.contains(layered(plain).pattern);
}

std::string NameTable::without_prefix(std::string_view theirs) const {
  return std::string(theirs.starts_with(rules_->prefix) ? theirs.substr(rules_->prefix.size()) : theirs);
}

std::string NameTable::their_name(const NamePair& pair, std::optional<int64_t> layer, bool prefixed) const {
  const bool head = (pair.flags & kHead) != 0;
  return std::string(prefixed && !head ? rules_->prefix : "") + with_layer(pair.theirs, layer);
}

}  // namespace attentive
