#pragma once

#include <cstdint>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace attentive::pickle {

/// What a class or function of a pickle stands for. Nothing is looked up: the name is compared with a list.
enum class Global : uint8_t {
  OrderedDict,
  Counter,
  Set,
  FrozenSet,
  Bytes,
  ByteArray,
  Complex,
  Size,
  Device,
  Encode,
  GetLayout,
  RebuildTensor,
  RebuildTensorV2,
  RebuildTensorV3,
  RebuildParameter,
  RebuildParameterWithState,
  RebuildFromType,
  TensorType,
  ParameterType,
  UntypedStorage,
  TypedStorage,  ///< one class a dtype
  Dtype,         ///< not a class: a value
};

struct NamedGlobal {
  Global global;
  at::ScalarType dtype = at::kByte;  ///< of a typed storage or a dtype
};

/// The global of this name. Throws Refusal, naming it, for any that is not read here.
NamedGlobal find_global(std::string_view module, std::string_view name);

}  // namespace attentive::pickle
