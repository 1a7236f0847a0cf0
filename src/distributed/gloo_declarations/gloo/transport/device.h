// See gloo/algorithm.h: names that LibTorch's header holds pointers to.
#pragma once

namespace gloo::transport {

class Device;

/// Complete, because LibTorch's header owns some by std::unique_ptr.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
