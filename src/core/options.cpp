#include <attentive/core/options.h>

namespace attentive {

std::string_view to_string(Causal value) {
  switch (value) {
    case Causal::None:
      return "none";
    case Causal::BottomRight:
      return "bottom-right";
    case Causal::TopLeft:
      return "top-left";
  }
  return "unknown";
}

std::string_view to_string(Align value) {
  switch (value) {
    case Align::BottomRight:
      return "bottom-right";
    case Align::TopLeft:
      return "top-left";
    case Align::Lengths:
      return "lengths";
  }
  return "unknown";
}

std::string_view to_string(DropoutStream value) {
  switch (value) {
    case DropoutStream::Any:
      return "any";
    case DropoutStream::Aten:
      return "aten";
    case DropoutStream::Counter:
      return "counter";
  }
  return "unknown";
}

std::string_view to_string(Backend value) {
  switch (value) {
    case Backend::Auto:
      return "auto";
    case Backend::Reference:
      return "reference";
    case Backend::Torch:
      return "torch";
    case Backend::Native:
      return "native";
  }
  return "unknown";
}

std::string_view to_string(Weights value) {
  switch (value) {
    case Weights::None:
      return "none";
    case Weights::Clean:
      return "clean";
    case Weights::Dropped:
      return "dropped";
  }
  return "unknown";
}

std::string_view to_string(Normalise value) {
  switch (value) {
    case Normalise::Softmax:
      return "softmax";
    case Normalise::None:
      return "none";
  }
  return "unknown";
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
