#include <attentive/core/options.h>

#include "core/check.h"

namespace attentive {

std::string_view to_string(Causal value) {
  return enum_name(value, {"none", "bottom-right", "top-left"});
}

std::string_view to_string(Align value) {
  return enum_name(value, {"bottom-right", "top-left", "lengths"});
}

std::string_view to_string(DropoutStream value) {
  return enum_name(value, {"any", "aten", "counter"});
}

std::string_view to_string(Backend value) {
  return enum_name(value, {"auto", "reference", "torch", "native"});
}

std::string_view to_string(Weights value) {
  return enum_name(value, {"none", "clean", "dropped"});
}

std::string_view to_string(Normalise value) {
  return enum_name(value, {"softmax", "none"});
}

namespace {

thread_local Backend preferred_backend = Backend::Auto;
thread_local DropoutStream preferred_stream = DropoutStream::Any;

}  // namespace

BackendGuard::BackendGuard(Backend preferred) : previous_(preferred_backend) {
  preferred_backend = preferred;
}
BackendGuard::~BackendGuard() {
  preferred_backend = previous_;
}
Backend BackendGuard::current() {
  return preferred_backend;
}

DropoutStreamGuard::DropoutStreamGuard(DropoutStream stream) : previous_(preferred_stream) {
  preferred_stream = stream;
}
DropoutStreamGuard::~DropoutStreamGuard() {
  preferred_stream = previous_;
}
DropoutStream DropoutStreamGuard::current() {
  return preferred_stream;
}

}  // namespace attentive
