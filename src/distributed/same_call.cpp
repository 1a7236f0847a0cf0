#include "distributed/same_call.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/memory.h"
#include "train/agreement.h"

namespace attentive::distributed {
namespace {

// Describes one process's call to the others.
struct CallText {
  std::string caller;
  std::string refusal;    // the message, if the arguments were refused
  std::string arguments;  // set if they were not

  std::string packed() const { return fmt::format("{}\n{}\n{}", caller, refusal, arguments); }
  static CallText unpacked(const std::string& text) {
    const auto first = text.find('\n'), second = text.find('\n', first + 1);
    return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  }
};

// Removes the name of the function from a refusal's message, because the caller prepends it again.
std::string_view without_name(std::string_view message, const std::string& caller) {
  if (message.starts_with(caller + ": ")) message.remove_prefix(caller.size() + 2);
  return message;
}

// Throws in all processes, because all of them see the same calls.
[[noreturn]] void refuse(const char* caller, const char* things, const std::vector<CallText>& calls) {
  std::vector<std::string> arguments;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    TORCH_CHECK_VALUE(calls[rank].caller == calls[0].caller, caller, ": the calls differ: rank 0 calls ",
                      calls[0].caller, ", rank ", rank, " calls ", calls[rank].caller);
    arguments.push_back(calls[rank].arguments);
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    TORCH_CHECK_VALUE(calls[rank].refusal.empty(), caller, ": on rank ", rank, ": ",
                      without_name(calls[rank].refusal, calls[rank].caller));
  }
  TORCH_CHECK_VALUE(false, caller, ": the ", things,
                    " differ: ", first_difference(arguments).value_or("somewhere"));
}

std::string line_of(const char* kind, const std::string& name, const at::Tensor& tensor,
                    const at::Device& device) {
  std::ostringstream line;
  line << kind << " " << name << " " << tensor.scalar_type() << " " << tensor.sizes();
  if (!tensor.is_cpu()) line << (tensor.device() == device ? " on the group's device" : " on another device");
  if (tensor.requires_grad()) line << ", requires a gradient";
  return line.str();
}

}  // namespace

void begin_call(Connection& connection, const char* caller, const char* things,
                const std::function<std::string()>& arguments) {
  if (connection.environment().alone()) {
    static_cast<void>(arguments());
    return;
  }
  CallText call{caller, {}, {}};
  std::exception_ptr refusal;
  try {
    call.arguments = arguments();
  } catch (const std::exception& error) {
    refusal = std::current_exception();
    call.refusal = first_line(error);
  }
  const auto text = call.packed();
  const auto digest =
      at::tensor({static_cast<int64_t>(text.size()), static_cast<int64_t>(digest_of(text))}, at::kLong);
  const auto all = connection.gather(caller, digest);
  if (std::all_of(all.begin(), all.end(), [&](const auto& other) { return at::equal(other, digest); })) {
    if (refusal) std::rethrow_exception(refusal);
    return;
  }
  std::vector<int64_t> lengths;
  for (const auto& other : all) lengths.push_back(other[0].item<int64_t>());
  std::vector<CallText> calls;
  for (const auto& other : connection.gather_texts(caller, text, lengths))
    calls.push_back(CallText::unpacked(other));
  refuse(caller, things, calls);
}

ModelParts model_parts(const torch::nn::Module& model, const at::Device& device) {
  ModelParts parts;
  std::unordered_map<const void*, std::string> first_names;
  const auto add = [&](const char* kind, const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [first, is_new] = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) {
      parts.text += fmt::format("{} {}, shared with {}\n", kind, name, first->second);
      return;
    }
    parts.text += line_of(kind, name, tensor, device) + "\n";
    parts.state.push_back(tensor);
    if (!tensor.requires_grad()) {
      parts.frozen.emplace_back(name, tensor);
      return;
    }
    parts.trainable.push_back(tensor);
    parts.names.push_back(name);
  };
  for (const auto& item : model.named_parameters()) add("parameter", item.key(), item.value());
  for (const auto& item : model.named_buffers()) add("buffer", item.key(), item.value());
  parts.text += printed_options(model);
  return parts;
}

}  // namespace attentive::distributed
