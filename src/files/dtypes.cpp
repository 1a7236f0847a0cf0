#include "files/dtypes.h"

#include <algorithm>
#include <iterator>

namespace attentive {
namespace {

using at::ScalarType;

constexpr FileDtype kFileDtypes[] = {
    {"uint64", ScalarType::UInt64, "", "U64"},
    {"int64", ScalarType::Long, "LongStorage", "I64"},
    {"float64", ScalarType::Double, "DoubleStorage", "F64"},
    {"complex64", ScalarType::ComplexFloat, "ComplexFloatStorage", "C64"},
    {"float32", ScalarType::Float, "FloatStorage", "F32"},
    {"uint32", ScalarType::UInt32, "", "U32"},
    {"int32", ScalarType::Int, "IntStorage", "I32"},
    {"bfloat16", ScalarType::BFloat16, "BFloat16Storage", "BF16"},
    {"float16", ScalarType::Half, "HalfStorage", "F16"},
    {"uint16", ScalarType::UInt16, "", "U16"},
    {"int16", ScalarType::Short, "ShortStorage", "I16"},
    {"float8_e5m2fnuz", ScalarType::Float8_e5m2fnuz, "", "F8_E5M2FNUZ"},
    {"float8_e4m3fnuz", ScalarType::Float8_e4m3fnuz, "", "F8_E4M3FNUZ"},
    {"float8_e8m0fnu", ScalarType::Float8_e8m0fnu, "", "F8_E8M0"},
    {"float8_e4m3fn", ScalarType::Float8_e4m3fn, "", "F8_E4M3"},
    {"float8_e5m2", ScalarType::Float8_e5m2, "", "F8_E5M2"},
    {"int8", ScalarType::Char, "CharStorage", "I8"},
    {"uint8", ScalarType::Byte, "ByteStorage", "U8"},
#if __has_include(<c10/util/Float4_e2m1fn_x2.h>)  // LibTorch has it since 2.8
    {"float4_e2m1fn_x2", ScalarType::Float4_e2m1fn_x2, "", kFloat4},
#endif
    {"bool", ScalarType::Bool, "BoolStorage", "BOOL"},
    {"complex128", ScalarType::ComplexDouble, "ComplexDoubleStorage", ""},
    {"complex32", ScalarType::ComplexHalf, "", ""},
    {"bits8", ScalarType::Bits8, "", ""},
    {"bits16", ScalarType::Bits16, "", ""},
    {"bits1x8", ScalarType::Bits1x8, "", ""},
    {"bits2x4", ScalarType::Bits2x4, "", ""},
    {"bits4x2", ScalarType::Bits4x2, "", ""},
    {"uint1", ScalarType::UInt1, "", "", false},
    {"uint2", ScalarType::UInt2, "", "", false},
    {"uint3", ScalarType::UInt3, "", "", false},
    {"uint4", ScalarType::UInt4, "", "", false},
    {"uint5", ScalarType::UInt5, "", "", false},
    {"uint6", ScalarType::UInt6, "", "", false},
    {"uint7", ScalarType::UInt7, "", "", false},
    {"int1", ScalarType::Int1, "", "", false},
    {"int2", ScalarType::Int2, "", "", false},
    {"int3", ScalarType::Int3, "", "", false},
    {"int4", ScalarType::Int4, "", "", false},
    {"int5", ScalarType::Int5, "", "", false},
    {"int6", ScalarType::Int6, "", "", false},
    {"int7", ScalarType::Int7, "", "", false},
};

template <class Value>
const FileDtype* find_by(Value FileDtype::*member, const Value& value) {
  const auto* found = std::ranges::find(kFileDtypes, value, member);
  return found == std::end(kFileDtypes) ? nullptr : found;
}

}  // namespace

const FileDtype* find_torch_dtype(std::string_view name) {
  return find_by(&FileDtype::name, name);
}

const FileDtype* find_torch_dtype(at::ScalarType dtype) {
  return find_by(&FileDtype::dtype, dtype);
}

const FileDtype* find_torch_storage(std::string_view storage) {
  return storage.empty() ? nullptr : find_by(&FileDtype::storage, storage);
}

const FileDtype* find_safetensors_dtype(std::string_view name) {
  return name.empty() ? nullptr : find_by(&FileDtype::safetensors, name);
}

}  // namespace attentive
