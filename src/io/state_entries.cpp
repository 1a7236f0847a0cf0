#include "io/state_entries.h"

namespace attentive {
namespace {

bool is_tensor(const TorchValue& value) {
  return value.is<at::Tensor>() || value.is<TorchValue::Parameter>();
}

const std::vector<TorchValue>* items_of(const TorchValue& value) {
  if (value.is<TorchValue::List>()) return &value.as<TorchValue::List>().items;
  if (value.is<TorchValue::Tuple>()) return &value.as<TorchValue::Tuple>().items;
  if (value.is<TorchValue::Set>()) return &value.as<TorchValue::Set>().items;
  return nullptr;
}

class Search {
 public:
  // Whether there is a tensor in `value`. It is reached by `path`, or by no path if that is null.
  bool run(const TorchValue& value, const std::string* path) {
    if (is_tensor(value)) return true;
    if (value.is<TorchValue::Dict>()) return run_dict(value, path);
    bool any = false;
    if (const auto* items = items_of(value)) {
      for (const auto& item : *items) any |= run(item, nullptr);
    }
    return any;
  }

  std::vector<StateEntry> found;

 private:
  bool run_dict(const TorchValue& value, const std::string* path) {
    bool named = path != nullptr, direct = false, nested = false;
    const auto place = found.size();  // an entry comes before those in it
    for (const auto& [key, item] : value.as<TorchValue::Dict>().items) {
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

std::vector<TorchValue> without_tensors(const std::vector<TorchValue>& items) {
  std::vector<TorchValue> kept;
  kept.reserve(items.size());
  for (const auto& item : items) kept.push_back(attentive::without_tensors(item));
  return kept;
}

}  // namespace

std::vector<StateEntry> state_entries(const TorchValue& value) {
  Search search;
  const std::string root;
  search.run(value, &root);
  return std::move(search.found);
}

TorchValue without_tensors(const TorchValue& value) {
  if (is_tensor(value)) return {};
  if (value.is<TorchValue::List>()) {
    return TorchValue::List{without_tensors(value.as<TorchValue::List>().items)};
  }
  if (value.is<TorchValue::Tuple>()) {
    return TorchValue::Tuple{without_tensors(value.as<TorchValue::Tuple>().items)};
  }
  if (!value.is<TorchValue::Dict>()) return value;
  TorchValue::Dict dict;
  dict.ordered = value.as<TorchValue::Dict>().ordered;
  for (const auto& [key, item] : value.as<TorchValue::Dict>().items) {
    if (!is_tensor(item)) dict.items.emplace_back(key, without_tensors(item));
  }
  return dict;
}

}  // namespace attentive
