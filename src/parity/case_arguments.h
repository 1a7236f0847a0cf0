#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <attentive/parity/case.h>

namespace attentive {

/// The keyword arguments of a Python constructor or call, from JSON. A null or absent argument has Python's
/// default. Every getter throws CaseError naming the argument if its value has another type.
class CaseArguments {
 public:
  /// `what` describes an argument in messages: "option" or "call argument".
  CaseArguments(std::string case_name, std::string what, const std::string& json);
  ~CaseArguments();
  CaseArguments(CaseArguments&&) noexcept;

  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  /// The object as JSON text.
  std::string json() const;

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
  struct Values;

  [[noreturn]] void wrong_type(std::string_view name, std::string_view expected) const;
  [[noreturn]] void missing(std::string_view name) const;

  std::string case_name_;
  std::string what_;
  std::unique_ptr<Values> values_;
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

/// Throws CaseError `<name>: <reason>`.
[[noreturn]] inline void fail_case(const std::string& name, const std::string& reason) {
  throw CaseError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, fmt::format("{}: {}", name, reason));
}

}  // namespace attentive
