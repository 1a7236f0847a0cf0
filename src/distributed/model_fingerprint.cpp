#include "distributed/model_fingerprint.h"

#include <sstream>
#include <unordered_map>

#include <fmt/format.h>

#include "train/agreement.h"

namespace attentive::distributed {
namespace {

std::string line_of(const char* kind, const std::string& name, const at::Tensor& tensor,
                    const at::Device& device) {
  std::ostringstream line;
  line << kind << " " << name << " " << tensor.scalar_type() << " " << tensor.sizes();
  if (!tensor.is_cpu()) line << (tensor.device() == device ? " on the group's device" : " on another device");
  if (tensor.requires_grad()) line << ", requires a gradient";
  return line.str();
}

}  // namespace

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
    if (!tensor.requires_grad()) return;
    parts.trainable.push_back(tensor);
    parts.names.push_back(name);
  };
  for (const auto& item : model.named_parameters()) add("parameter", item.key(), item.value());
  for (const auto& item : model.named_buffers()) add("buffer", item.key(), item.value());
  parts.text += printed_options(model);
  return parts;
}

}  // namespace attentive::distributed
