#pragma once

// The arguments of a case, the module that it runs, and the registry of modules.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <attentive/core/options.h>
#include <attentive/parity/case.h>

namespace attentive {

/// Throws CaseError `<name>: <reason>`.
[[noreturn]] inline void fail_case(const std::string& name, const std::string& reason) {
  throw CaseError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, fmt::format("{}: {}", name, reason));
}

/// The keyword arguments of a Python constructor or call, from JSON. A null or absent argument has Python's
/// default. Every getter throws CaseError naming the argument if its value has another type.
class CaseArguments {
 public:
  /// `what` describes an argument in messages: "option" or "call argument".
  CaseArguments(std::string case_name, std::string what, const std::string& json);

  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  const nlohmann::json& json() const { return values_; }

  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  std::optional<double> optional_number(std::string_view name) const;
  std::optional<int64_t> optional_integer(std::string_view name) const;
  bool boolean(std::string_view name, bool otherwise) const;
  /// Returns an argument that must be one of `known`; otherwise throws CaseError naming them.
  std::string choice(std::string_view name, std::string_view otherwise,
                     const std::vector<std::string_view>& known) const;

 private:
  const nlohmann::json* find(std::string_view name) const;  // null: absent, or null in the file
  [[noreturn]] void wrong_type(std::string_view name, std::string_view expected) const;
  [[noreturn]] void missing(std::string_view name) const;

  std::string case_name_;
  std::string what_;
  nlohmann::json values_;
};

/// The tensor arguments of a call. Floating-point ones are autograd leaves in the dtype of the arithmetic.
class CaseInputs {
 public:
  CaseInputs(std::string case_name, std::map<std::string, at::Tensor> leaves)
      : case_name_(std::move(case_name)), leaves_(std::move(leaves)) {}

  /// Throws CaseError if the tensor is absent.
  const at::Tensor& required(const std::string& name) const;
  /// Undefined if the tensor is absent.
  at::Tensor optional(const std::string& name) const;

  const std::string& case_name() const { return case_name_; }

 private:
  std::string case_name_;
  std::map<std::string, at::Tensor> leaves_;
};

struct CaseOutput {
  at::Tensor output;
  at::Tensor weights = {};  // set if they were requested
};

/// A module or function built for one case, with a way to call it.
struct CaseRunner {
  std::shared_ptr<torch::nn::Module> module;  // null for a function
  std::function<CaseOutput(const CaseInputs& inputs, const CaseArguments& call, Weights which)> forward;
  std::string output_bias = {};          // the parameter that an output row without keys equals; empty: zeros
  bool sequence_first = false;           // a batched output is (L, N, E), while weights begin with N
  std::vector<std::string> normal = {};  // the parameters with normal initial values; all others are uniform
};

/// Makes a runner for a module whose options have no backend, so that one is only preferred.
template <class Holder, class Output>
CaseRunner preferring(Backend backend, Holder module, Output output) {
  return {module.ptr(),
          [=](const CaseInputs& inputs, const CaseArguments& call, Weights) mutable -> CaseOutput {
            const BackendGuard guard(backend);
            return {output(module, inputs, call)};
          }};
}

/// One entry of the registry: a Python name and the arguments that it accepts.
struct CaseModule {
  std::string_view name;
  std::vector<std::string_view> options;
  std::vector<std::string_view> inputs;
  bool returns_weights = false;  // as Python's class does
  std::function<CaseRunner(const CaseArguments& options, Backend backend)> build;
  std::vector<std::string_view> call = {};
};

/// The registry's entries: the notebooks' classes; PyTorch's attention, its transformer layers and stacks of
/// them; whole models.
std::vector<CaseModule> notebook_case_modules();
std::vector<CaseModule> torch_case_modules();
std::vector<CaseModule> model_case_modules();

/// Finds the entry for the case's module. If a name stands for two classes, the options decide. Throws
/// CaseError for an unknown module, option, call argument or input.
const CaseModule& find_case_module(const Case& test_case, const CaseArguments& options,
                                   const CaseArguments& call);

}  // namespace attentive
