#include "core/check.h"

#include <sstream>
#include <string>

#include "core/normal_tensors.h"

namespace attentive {

std::string shape_string(at::IntArrayRef sizes) {
  std::ostringstream out;
  out << '(';
  for (size_t i = 0; i < sizes.size(); ++i) out << (i ? ", " : "") << sizes[i];
  if (sizes.size() == 1) out << ',';
  out << ')';
  return out.str();
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  if (tensor.is_nested()) return "a nested " + std::string(c10::toString(tensor.scalar_type())) + " tensor";
  return std::string(c10::toString(tensor.scalar_type())) + " tensor of shape " +
         shape_string(tensor.sizes());
}

void check_defined(std::string_view caller, std::string_view name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), caller, ": expected ", name, " to be a tensor, got an undefined one");
  TORCH_CHECK_TYPE(!tensor.is_nested(), caller, ": expected ", name, " to be a dense tensor, got ",
                   describe(tensor));
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, caller, ": expected ", name,
                   " to be a dense tensor, got ", describe(tensor), " and layout ", tensor.layout());
}

void check_defined(std::string_view caller, std::string_view name, const at::Generator& generator) {
  TORCH_CHECK_VALUE(generator.defined(), caller, ": expected ", name,
                    " to be a CPU generator, got an undefined one");
}

std::string_view layout_name(const at::Tensor& tensor) {
  if (tensor.is_nested()) return "nested";
  switch (tensor.layout()) {
    case at::kStrided:
      return "dense";
    case at::kMkldnn:
      return "MKL-DNN";
    default:
      return "sparse";
  }
}

void check_device(std::string_view caller, std::string_view name, const at::Tensor& tensor,
                  const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(tensor.device() == parameter.device(), caller, ": expected ", name, " on ",
                    parameter.device(), " like the parameters, got it on ", tensor.device());
}

void check_floating(std::string_view caller, std::string_view name, const at::Tensor& tensor) {
  check_defined(caller, name, tensor);
  const auto type = tensor.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf,
                   caller, ": expected ", name, " of dtype Double, Float, BFloat16 or Half, got ",
                   describe(tensor));
}

void check_probability(std::string_view caller, std::string_view name, double p) {
  TORCH_CHECK_VALUE(p >= 0.0 && p <= 1.0, caller, ": expected ", name, " in [0, 1], got ", p);
}

void fail_allocation(std::string_view caller, std::string_view what, std::string_view reason) {
  const auto line = reason.substr(0, reason.find('\n'));
  C10_THROW_ERROR(OutOfMemoryError,
                  std::string(caller) + ": cannot reserve " + std::string(what) + ": " + std::string(line));
}

}  // namespace attentive
