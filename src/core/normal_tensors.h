#pragma once

// Helpers for state that outlives a call: normal tensors under InferenceMode, and out-of-memory errors that
// begin with a public name.

#include <new>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace attentive {

/// Tensors made while this object lives are normal tensors without a history, also under
/// `c10::InferenceMode`. An inference tensor could neither be saved for a backward pass nor be written
/// outside that mode.
class NormalTensorsGuard {
 private:
  c10::InferenceMode normal_{false};  ///< switches gradients on, so the other guard comes after it
  at::NoGradGuard no_gradients_;
};

/// Throws c10::OutOfMemoryError "<caller>: cannot reserve <what>: <reason>".
[[noreturn]] void fail_allocation(std::string_view caller, std::string_view what, std::string_view reason);

/// Runs `make`, which allocates memory, and rethrows a failure to allocate as an error that begins with the
/// public name `caller`. Errors of bad values and types, which already have a public name, are passed on
/// unchanged.
template <class Make>
decltype(auto) with_allocation_errors(std::string_view caller, std::string_view what, Make make) {
  try {
    return make();
  } catch (const c10::ValueError&) {
    throw;
  } catch (const c10::TypeError&) {
    throw;
  } catch (const c10::Error& error) {
    fail_allocation(caller, what, error.what_without_backtrace());
  } catch (const std::bad_alloc& error) {
    fail_allocation(caller, what, error.what());
  } catch (const std::length_error& error) {
    fail_allocation(caller, what, error.what());
  }
}

}  // namespace attentive
