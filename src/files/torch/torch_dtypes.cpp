#include "files/torch/torch_dtypes.h"

#include <algorithm>
#include <iterator>

namespace attentive {
namespace {

using at::ScalarType;

constexpr TorchDtype kTorchDtypes[] = {
    {"float64", ScalarType::Double, "DoubleStorage"},
    {"float32", ScalarType::Float, "FloatStorage"},
    {"float16", ScalarType::Half, "HalfStorage"},
    {"bfloat16", ScalarType::BFloat16, "BFloat16Storage"},
    {"int64", ScalarType::Long, "LongStorage"},
    {"int32", ScalarType::Int, "IntStorage"},
    {"int16", ScalarType::Short, "ShortStorage"},
    {"int8", ScalarType::Char, "CharStorage"},
    {"uint8", ScalarType::Byte, "ByteStorage"},
    {"bool", ScalarType::Bool, "BoolStorage"},
    {"complex128", ScalarType::ComplexDouble, "ComplexDoubleStorage"},
    {"complex64", ScalarType::ComplexFloat, "ComplexFloatStorage"},
    {"complex32", ScalarType::ComplexHalf, ""},
    {"uint64", ScalarType::UInt64, ""},
    {"uint32", ScalarType::UInt32, ""},
    {"uint16", ScalarType::UInt16, ""},
    {"float8_e4m3fn", ScalarType::Float8_e4m3fn, ""},
    {"float8_e4m3fnuz", ScalarType::Float8_e4m3fnuz, ""},
    {"float8_e5m2", ScalarType::Float8_e5m2, ""},
    {"float8_e5m2fnuz", ScalarType::Float8_e5m2fnuz, ""},
    {"float8_e8m0fnu", ScalarType::Float8_e8m0fnu, ""},
#if __has_include(<c10/util/Float4_e2m1fn_x2.h>)  // LibTorch has it since 2.8
    {"float4_e2m1fn_x2", ScalarType::Float4_e2m1fn_x2, ""},
#endif
    {"bits8", ScalarType::Bits8, ""},
    {"bits16", ScalarType::Bits16, ""},
    {"bits1x8", ScalarType::Bits1x8, ""},
    {"bits2x4", ScalarType::Bits2x4, ""},
    {"bits4x2", ScalarType::Bits4x2, ""},
    {"uint1", ScalarType::UInt1, "", false},
    {"uint2", ScalarType::UInt2, "", false},
    {"uint3", ScalarType::UInt3, "", false},
    {"uint4", ScalarType::UInt4, "", false},
    {"uint5", ScalarType::UInt5, "", false},
    {"uint6", ScalarType::UInt6, "", false},
    {"uint7", ScalarType::UInt7, "", false},
    {"int1", ScalarType::Int1, "", false},
    {"int2", ScalarType::Int2, "", false},
    {"int3", ScalarType::Int3, "", false},
    {"int4", ScalarType::Int4, "", false},
    {"int5", ScalarType::Int5, "", false},
    {"int6", ScalarType::Int6, "", false},
    {"int7", ScalarType::Int7, "", false},
};

template <class Matches>
const TorchDtype* find_first(Matches matches) {
  const auto* found = std::find_if(std::begin(kTorchDtypes), std::end(kTorchDtypes), matches);
  return found == std::end(kTorchDtypes) ? nullptr : found;
}

}  // namespace

const TorchDtype* find_torch_dtype(std::string_view name) {
  return find_first([&](const TorchDtype& known) { return known.name == name; });
}

const TorchDtype* find_torch_dtype(at::ScalarType dtype) {
  return find_first([&](const TorchDtype& known) { return known.dtype == dtype; });
}

const TorchDtype* find_torch_storage(std::string_view storage) {
  return find_first([&](const TorchDtype& known) { return !storage.empty() && known.storage == storage; });
}

bool are_bools(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  unsigned char all = 0;
  for (size_t i = 0; i < size; ++i) all |= bytes[i];
  return all <= 1;
}

}  // namespace attentive
