#include "io/pickle_globals.h"

#include <fmt/format.h>

#include "io/refusal.h"
#include "io/safetensors_header.h"
#include "io/torch_dtypes.h"

namespace attentive::pickle {
namespace {

struct Known {
  std::string_view module;
  std::string_view name;
  Global global;
};

constexpr Known kKnown[] = {
    {"torch._utils", "_rebuild_tensor_v2", Global::RebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", Global::RebuildTensorV3},
    {"torch._utils", "_rebuild_tensor", Global::RebuildTensor},
    {"torch._utils", "_rebuild_parameter", Global::RebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Global::RebuildParameterWithState},
    {"torch._tensor", "_rebuild_from_type_v2", Global::RebuildFromType},
    {"torch", "Tensor", Global::TensorType},
    {"torch.nn.parameter", "Parameter", Global::ParameterType},
    {"torch", "Size", Global::Size},
    {"torch", "device", Global::Device},
    {"torch", "UntypedStorage", Global::UntypedStorage},
    {"torch.storage", "UntypedStorage", Global::UntypedStorage},
    {"torch.serialization", "_get_layout", Global::GetLayout},
    {"collections", "OrderedDict", Global::OrderedDict},
    {"collections", "Counter", Global::Counter},
    {"_codecs", "encode", Global::Encode},
    {"builtins", "set", Global::Set},
    {"builtins", "frozenset", Global::FrozenSet},
    {"builtins", "bytes", Global::Bytes},
    {"builtins", "bytearray", Global::ByteArray},
    {"builtins", "complex", Global::Complex},
};

struct Refused {
  std::string_view module;
  std::string_view beginning;  // of the name
  std::string_view what;
};

// What is known by another function, such as a dtype that LibTorch has, is not looked up here.
constexpr Refused kRefused[] = {
    {"torch._utils", "_rebuild_qtensor", "a quantized tensor"},
    {"torch", "q", "a quantized dtype"},
    {"torch", "Q", "a quantized storage"},
    {"torch", "per_", "a quantization scheme"},
    {"torch", "float4_e2m1fn_x2", "a dtype that LibTorch has since 2.8"},
    {"torch._utils", "_rebuild_sparse", "a sparse tensor"},
    {"torch._utils", "_rebuild_nested", "a nested tensor"},
    {"torch._utils", "_rebuild_meta", "a tensor without data (meta device)"},
    {"torch._utils", "_rebuild_wrapper", "a tensor subclass"},
    {"torch._utils", "_rebuild_device", "a tensor of a device without storages"},
};

}  // namespace

NamedGlobal find_global(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";  // as protocol 2 calls it
  for (const auto& known : kKnown) {
    if (known.name == name && known.module == module) return {known.global};
  }
  if (module == "torch") {
    if (const auto* dtype = find_torch_dtype(name)) return {Global::Dtype, dtype->dtype};
  }
  if (module == "torch" || module == "torch.cuda") {
    if (const auto* dtype = find_torch_storage(name)) return {Global::TypedStorage, dtype->dtype};
  }
  const auto full = quoted_name(fmt::format("{}.{}", module, name));
  for (const auto& refused : kRefused) {
    if (refused.module == module && name.substr(0, refused.beginning.size()) == refused.beginning) {
      refuse("{}, {}, is not read here", refused.what, full);
    }
  }
  refuse("it refers to {}, which is not one of the classes and functions that are read here", full);
}

}  // namespace attentive::pickle
