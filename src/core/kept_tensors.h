#pragma once

// What is kept between calls: tensors of a normal kind, and memory that is refused under a public name.

#include <new>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace attentive {

/// Tensors made while this object lives are normal tensors without a history, also under
/// `c10::InferenceMode`. An inference tensor that is kept could neither be saved for a backward nor be
/// written outside that mode.
class KeptTensors {
 private:
  c10::InferenceMode normal_{false};  // switches gradients on, so the other guard comes after it
  at::NoGradGuard no_gradients_;
};

/// Throws c10::OutOfMemoryError "<who>: cannot reserve <what>: <reason>".
[[noreturn]] void fail_reserving(std::string_view who, std::string_view what, std::string_view reason);

/// Runs `make`, which reserves memory, and throws the library's refusal again under the public name `who`.
/// Errors of bad values and types, which carry a public name already, pass.
template <class Make>
decltype(auto) reserving(std::string_view who, std::string_view what, Make make) {
  try {
    return make();
  } catch (const c10::ValueError&) {
    throw;
  } catch (const c10::TypeError&) {
    throw;
  } catch (const c10::Error& error) {
    fail_reserving(who, what, error.what_without_backtrace());
  } catch (const std::bad_alloc& error) {
    fail_reserving(who, what, error.what());
  } catch (const std::length_error& error) {
    fail_reserving(who, what, error.what());
  }
}

}  // namespace attentive
