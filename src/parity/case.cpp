#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include <attentive/parity/case.h>

#include "base/refusal.h"
#include "parity/case_arguments.h"

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

}  // namespace

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

Case read_case(const std::filesystem::path& path) {
  return make_case(load_safetensors(path), path.string());
}

bool CaseReport::passed() const {
  if (!skipped.empty()) return false;
  for (const auto& tensor : tensors) {
    if (!tensor.passed) return false;
  }
  return true;
}

}  // namespace attentive
