#pragma once

#include <string>

#include <fmt/format.h>

#include <attentive/parity/case.h>

namespace attentive {

/// Throws CaseError `<name>: <reason>`.
[[noreturn]] inline void fail_case(const std::string& name, const std::string& reason) {
  throw CaseError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, fmt::format("{}: {}", name, reason));
}

}  // namespace attentive
