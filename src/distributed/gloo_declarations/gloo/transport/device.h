// See gloo/algorithm.h. LibTorch's header holds pointers to these classes.
#pragma once

namespace gloo::transport {

class Device;

/// Defined, not only declared, because LibTorch's header owns some by std::unique_ptr.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
