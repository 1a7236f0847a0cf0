#pragma once

#include <cstdint>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <attentive/files/torch_file.h>

#include "files/pickle/graph.h"
#include "files/pickle/input.h"

namespace attentive::pickle {

/// The known classes and functions of pickles. None is imported: names are compared with a list.
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
  at::ScalarType dtype = at::kByte;  ///< the dtype of a typed storage, or the dtype itself
};

/// Finds a global by name. Throws Refusal, naming the global, if this package does not read it.
NamedGlobal find_global(std::string_view module, std::string_view name);

/// Refuses what cannot become a FileValue: a container that contains itself, containers nested deeper than
/// `max_depth`, more values than `max_values` or longer strings than `max_pickle_bytes` (each mention of a
/// shared value counts), keys that cannot be hashed or that occur twice, and a storage, class or function as
/// a value. Time and memory are proportional to the graph, not to the expanded value.
void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits);

}  // namespace attentive::pickle
