#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <attentive/parity/case.h>

#include "base/refusal.h"
#include "parity/case_modules.h"

namespace attentive {
namespace {

std::optional<std::string> find(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return found->second;
}

// Reads a seed as Python's manual_seed does: negative numbers count down from 2^64.
std::optional<uint64_t> find_seed(const Case& result, const std::string& key) {
  const auto text = find(result.metadata, key);
  if (!text) return std::nullopt;
  const bool negative = text->rfind('-', 0) == 0;
  uint64_t value = 0;
  const auto* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data() + negative, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    fail_case(result.name, fmt::format("expected metadata {} to be an integer, got \"{}\"", key, *text));
  }
  return negative ? 0 - value : value;
}

// True unless the file says false.
bool find_flag(const Case& result, const std::string& key) {
  const auto text = find(result.metadata, key).value_or("true");
  if (text != "true" && text != "false") {
    fail_case(result.name,
              fmt::format("expected metadata {} to be \"true\" or \"false\", got \"{}\"", key, text));
  }
  return text == "true";
}

std::optional<at::ScalarType> find_autocast(const Case& result) {
  const auto text = find(result.metadata, "autocast");
  if (!text) return std::nullopt;
  if (*text != "bfloat16" && *text != "float16") {
    fail_case(result.name,
              fmt::format("expected metadata autocast to be \"bfloat16\" or \"float16\", got \"{}\"", *text));
  }
  return *text == "float16" ? at::kHalf : at::kBFloat16;
}

// Stores a tensor in the part of the case that its name selects.
void place(Case& result, const std::string& name, const at::Tensor& tensor) {
  const auto under = [&](std::string_view prefix, std::map<std::string, at::Tensor>& part) {
    if (name.size() <= prefix.size() || name.compare(0, prefix.size(), prefix) != 0) return false;
    part.emplace(name.substr(prefix.size()), tensor);
    return true;
  };
  if (name == "expected.output") {
    result.expected_output = tensor;
  } else if (name == "expected.weights") {
    result.expected_weights = tensor;
  } else if (name == "input.grad_output") {
    result.grad_output = tensor;
  } else if (!under("state.", result.state) && !under("input.", result.inputs) &&
             !under("grad.input.", result.input_gradients) && !under("grad.state.", result.state_gradients)) {
    fail_case(result.name, fmt::format("unknown tensor {}", quoted_name(name)));
  }
}

// Splits `FILE#case`; a place without a case is a file.
std::pair<std::filesystem::path, std::optional<std::string>> split_place(const std::filesystem::path& place) {
  const auto text = place.string();
  const auto mark = text.rfind('#');
  std::error_code unknown;
  if (mark == std::string::npos || std::filesystem::exists(place, unknown)) return {place, std::nullopt};
  return {text.substr(0, mark), text.substr(mark + 1)};
}

bool is_bundle(const SafetensorsFile& file) {
  if (file.metadata.count("module")) return false;
  return std::any_of(file.metadata.begin(), file.metadata.end(),
                     [](const auto& item) { return item.first.find('/') != std::string::npos; });
}

// The contents of each case of a bundle, by name. No case's name holds a slash, so that names which begin
// alike stay apart.
std::map<std::string, SafetensorsFile> split_bundle(const std::string& path, SafetensorsFile bundle) {
  std::map<std::string, SafetensorsFile> cases;
  const auto split = [&](std::string_view what, const std::string& name) {
    const auto slash = name.find('/');
    if (slash == 0 || slash == std::string::npos) {
      fail_case(path, fmt::format("expected {} of a bundle to be named <case>/<name>, got {}", what,
                                  quoted_name(name)));
    }
    return std::pair(name.substr(0, slash), name.substr(slash + 1));
  };
  for (auto& [name, text] : bundle.metadata) {
    const auto [test_case, key] = split("metadata", name);
    cases[test_case].metadata.emplace(key, std::move(text));
  }
  for (auto& [name, tensor] : bundle.tensors) {
    const auto [test_case, key] = split("a tensor", name);
    cases[test_case].tensors.emplace(key, std::move(tensor));
  }
  return cases;
}

// The first names, for a message.
std::string some_names(const std::map<std::string, SafetensorsFile>& cases) {
  std::string names;
  size_t left = 5;
  for (const auto& item : cases) {
    if (left-- == 0) return names + ", ...";
    names += (names.empty() ? "" : ", ") + item.first;
  }
  return names;
}

}  // namespace

std::map<std::string, SafetensorsFile> load_cases(const std::filesystem::path& place) {
  const auto [file, chosen] = split_place(place);
  const auto path = file.string();
  auto content = load_safetensors(file);
  std::map<std::string, SafetensorsFile> result;
  if (!is_bundle(content)) {
    if (chosen)
      fail_case(path, fmt::format("expected a bundle with the case {}, got a file without case names",
                                  quoted_name(*chosen)));
    result.emplace(path, std::move(content));
    return result;
  }
  auto cases = split_bundle(path, std::move(content));
  if (chosen && !cases.count(*chosen)) {
    fail_case(path, fmt::format("expected the name of one of its {} cases ({}), got {}", cases.size(),
                                some_names(cases), quoted_name(*chosen)));
  }
  for (auto& [name, contents] : cases) {
    if (!chosen || name == *chosen) result.emplace(path + '#' + name, std::move(contents));
  }
  return result;
}

Case make_case(SafetensorsFile file, std::string name) {
  Case result;
  result.name = std::move(name);
  result.metadata = std::move(file.metadata);
  const auto module = find(result.metadata, "module");
  if (!module) fail_case(result.name, "no metadata \"module\": this safetensors file is no parity case");
  result.module = *module;
  result.options = find(result.metadata, "options").value_or("{}");
  result.call = find(result.metadata, "call").value_or("{}");
  result.train = find_flag(result, "train");
  result.grads = find_flag(result, "grads");
  result.autocast = find_autocast(result);
  result.init_seed = find_seed(result, "init_seed");
  result.forward_seed = find_seed(result, "forward_seed");
  result.dropout_path = find(result.metadata, "dropout_path").value_or("");
  for (const auto& [key, tensor] : file.tensors) place(result, key, tensor);
  if (!result.expected_output.defined()) fail_case(result.name, "missing tensor expected.output");
  if (!result.grads && !(result.input_gradients.empty() && result.state_gradients.empty())) {
    fail_case(result.name, "metadata grads is \"false\", but the case holds gradients");
  }
  return result;
}

Case read_case(const std::filesystem::path& place) {
  auto cases = load_cases(place);
  auto& [name, content] = *cases.begin();
  if (cases.size() > 1) {
    fail_case(place.string(),
              fmt::format("expected one case, got a bundle of {}: name one, such as {}", cases.size(), name));
  }
  return make_case(std::move(content), name);
}

bool CaseReport::passed() const {
  if (!skipped.empty()) return false;
  for (const auto& tensor : tensors) {
    if (!tensor.passed) return false;
  }
  return true;
}

}  // namespace attentive
