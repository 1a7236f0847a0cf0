#pragma once

#include <attentive/core/options.h>

namespace attentive {

/// Sets this thread's preferred backend for the guard's lifetime; guards nest. A call whose options name a
/// backend ignores it. Unlike a backend named by the options, a preferred one that cannot express a call
/// falls back as `Auto` does. A backward pass uses the backend that its forward pass chose, whatever guard is
/// alive then.
///
///   BackendGuard guard(Backend::Reference);
///   model->forward(x);
class BackendGuard {
 public:
  explicit BackendGuard(Backend preferred);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

  /// The preference in force on this thread; `Backend::Auto` without a guard.
  static Backend current();

 private:
  Backend previous_;
};

/// Sets this thread's dropout stream, for the guard's lifetime and for calls whose options leave it at
/// `DropoutStream::Any`; guards nest.
///
///   DropoutStreamGuard guard(DropoutStream::Aten);  // draw what the notebook drew
///   auto y = module->forward(x);
class DropoutStreamGuard {
 public:
  explicit DropoutStreamGuard(DropoutStream stream);
  ~DropoutStreamGuard();
  DropoutStreamGuard(const DropoutStreamGuard&) = delete;
  DropoutStreamGuard& operator=(const DropoutStreamGuard&) = delete;

  /// The stream in force on this thread; `DropoutStream::Any` without a guard.
  static DropoutStream current();

 private:
  DropoutStream previous_;
};

}  // namespace attentive
