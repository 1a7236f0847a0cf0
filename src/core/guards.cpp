#include <attentive/core/guards.h>

namespace attentive {
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
