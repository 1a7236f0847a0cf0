#include "files/state_entries.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "core/check.h"

namespace attentive {
namespace {

bool is_tensor(const FileValue& value) {
  return value.is<at::Tensor>() || value.is<FileValue::Parameter>();
}

const std::vector<FileValue>* items_of(const FileValue& value) {
  if (value.is<FileValue::List>()) return &value.as<FileValue::List>().items;
  if (value.is<FileValue::Tuple>()) return &value.as<FileValue::Tuple>().items;
  if (value.is<FileValue::Set>()) return &value.as<FileValue::Set>().items;
  return nullptr;
}

class Search {
 public:
  // Whether `value` holds a tensor. `path` leads to it, or is null if no path of string keys does.
  bool run(const FileValue& value, const std::string* path) {
    if (is_tensor(value)) return true;
    if (value.is<FileValue::Dict>()) return run_dict(value, path);
    bool any = false;
    if (const auto* items = items_of(value)) {
      for (const auto& item : *items) any |= run(item, nullptr);
    }
    return any;
  }

  std::vector<StateEntry> found;

 private:
  bool run_dict(const FileValue& value, const std::string* path) {
    bool named = path != nullptr, direct = false, nested = false;
    const auto place = found.size();  // an entry comes before the entries inside it
    for (const auto& [key, item] : value.as<FileValue::Dict>().items) {
      const bool text = key.is<std::string>();
      named = named && text;
      if (is_tensor(item)) {
        direct = true;
      } else if (path != nullptr && text) {
        const auto below = path->empty() ? key.as<std::string>() : *path + '/' + key.as<std::string>();
        nested |= run(item, &below);
      } else {
        nested |= run(item, nullptr);
      }
    }
    if (named && direct && !nested) {
      found.insert(found.begin() + static_cast<std::ptrdiff_t>(place), {*path, &value});
    }
    return direct || nested;
  }
};

std::vector<FileValue> without_tensors(const std::vector<FileValue>& items) {
  std::vector<FileValue> kept;
  kept.reserve(items.size());
  for (const auto& item : items) kept.push_back(attentive::without_tensors(item));
  return kept;
}

}  // namespace

std::vector<StateEntry> state_entries(const FileValue& value) {
  Search search;
  const std::string root;
  search.run(value, &root);
  return std::move(search.found);
}

FileValue without_tensors(const FileValue& value) {
  if (is_tensor(value)) return {};
  if (value.is<FileValue::List>()) {
    return FileValue::List{without_tensors(value.as<FileValue::List>().items)};
  }
  if (value.is<FileValue::Tuple>()) {
    return FileValue::Tuple{without_tensors(value.as<FileValue::Tuple>().items)};
  }
  if (!value.is<FileValue::Dict>()) return value;
  FileValue::Dict dict;
  dict.ordered = value.as<FileValue::Dict>().ordered;
  for (const auto& [key, item] : value.as<FileValue::Dict>().items) {
    if (!is_tensor(item)) dict.items.emplace_back(key, without_tensors(item));
  }
  return dict;
}

namespace {

// Whether LibTorch can convert between the dtypes. Some dtypes are only stored, never converted.
bool converts(const at::Tensor& got, at::ScalarType type) {
  if (got.scalar_type() == type) return true;
  try {
    (void)at::empty({1}, got.options()).to(type);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

std::string refuse_source(const at::Tensor& got) {
  if (layout_name(got) != "dense")
    return fmt::format("expected a dense tensor, got a {} one", layout_name(got));
  if (got.is_quantized()) {
    return fmt::format("expected plain numbers, got a quantized tensor ({}); dequantize() it first",
                       c10::toString(got.scalar_type()));
  }
  if (got.is_meta()) return "expected a tensor with data, got one on the meta device";
  return {};
}

std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want) {
  const auto reason = refuse_source(got);
  if (!reason.empty()) return reason;
  if (got.sizes() != want.sizes()) {
    return fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  }
  if (want.is_meta()) return "expected a module with data, but it is on the meta device";
  if (got.is_complex() != want.is_complex() || !converts(got, want.scalar_type())) {
    return fmt::format("expected dtype {}, got {}", c10::toString(want.scalar_type()),
                       c10::toString(got.scalar_type()));
  }
  return {};
}

}  // namespace attentive
