#pragma once

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace attentive::test {

/// Sets the default dtype, as `torch.set_default_dtype` does, for the lifetime of this object.
class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType type) : previous_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { c10::set_default_dtype(previous_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta previous_;
};

}  // namespace attentive::test
