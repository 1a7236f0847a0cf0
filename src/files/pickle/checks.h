#pragma once

#include <cstdint>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <attentive/files/torch_file.h>

#include "files/pickle/graph.h"
#include "files/pickle/input.h"

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

/// Refuses what cannot become a FileValue: a container that contains itself, containers nested deeper than
/// `max_depth`, more values than `max_values` or longer strings than `max_pickle_bytes` (each mention of a
/// shared value counts), keys that cannot be hashed or that come twice, and a storage, class or function as a
/// value. Costs time and memory by what the graph holds, not by what it would become.
void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits);

}  // namespace attentive::pickle
