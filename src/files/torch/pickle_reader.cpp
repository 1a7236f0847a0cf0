#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "files/dtypes.h"
#include "files/torch/pickle.h"

namespace attentive::pickle {

// Reserves space once for all bytes that may ever be taken. Only address space is used until bytes are read;
// an array that grew instead would have to be copied.
void PickleInput::reserve() {
  if (bytes_) return;
  bytes_.reset(static_cast<char*>(std::malloc(std::max<uint64_t>(std::min(size_, limit_), 1))));
  if (!bytes_) throw std::bad_alloc();
}

uint32_t PickleInput::load_all() {
  if (size_ > limit_) {
    refuse("a description of {} bytes exceeds the limit of {} (max_pickle_bytes)", size_, limit_);
  }
  reserve();
  loaded_ = size_;
  return source_.read_and_sum(begin_, bytes_.get(), size_);
}

void PickleInput::load(uint64_t count) {
  constexpr uint64_t kFirst = 4096;
  const auto wanted = std::min({std::max({count, 2 * loaded_, kFirst}), size_, limit_});
  if (count > wanted) {
    refuse("its description exceeds the limit of {} bytes (max_pickle_bytes)", limit_);
  }
  reserve();
  source_.read(begin_ + loaded_, bytes_.get() + loaded_, wanted - loaded_);
  loaded_ = wanted;
}

const char* PickleInput::take(uint64_t count) {
  if (count > remaining()) {
    refuse("its pickle is truncated: {} bytes are needed at byte {}, {} are left", count, position_,
           remaining());
  }
  if (position_ + count > loaded_) load(position_ + count);
  const auto* bytes = bytes_.get() + position_;
  position_ += count;
  return bytes;
}

std::string_view PickleInput::take_line(uint64_t longest) {
  const auto begin = position_;
  while (position_ - begin <= longest) {
    if (*take(1) == '\n') return text(begin, position_ - 1 - begin);
  }
  refuse("its pickle holds a name of more than {} bytes at byte {}", longest, begin);
}

namespace {

constexpr uint32_t kBase = 1'000'000'000;
constexpr size_t kDigits = 9;  // decimal digits of kBase

// Negates a number in two's complement.
void negate(std::string& bytes) {
  unsigned carry = 1;
  for (auto& byte : bytes) {
    const unsigned sum = (~static_cast<unsigned>(static_cast<unsigned char>(byte)) & 0xFF) + carry;
    byte = static_cast<char>(sum & 0xFF);
    carry = sum >> 8;
  }
}

bool is_negative(std::string_view bytes) {
  return !bytes.empty() && (bytes.back() & 0x80) != 0;
}

}  // namespace

std::string decimal_of(std::string_view bytes) {
  const bool negative = is_negative(bytes);
  std::string magnitude(bytes);
  if (negative) negate(magnitude);
  std::string digits;  // the lowest first
  for (auto end = magnitude.size(); end > 0;) {
    uint64_t remainder = 0;
    for (auto i = end; i-- > 0;) {
      remainder = (remainder << 8) | static_cast<unsigned char>(magnitude[i]);
      magnitude[i] = static_cast<char>(remainder / kBase);
      remainder %= kBase;
    }
    for (size_t k = 0; k < kDigits; ++k, remainder /= 10) digits += static_cast<char>('0' + remainder % 10);
    while (end > 0 && magnitude[end - 1] == 0) --end;
  }
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string bytes_of(std::string_view decimal, size_t max_bytes) {
  const bool negative = !decimal.empty() && decimal.front() == '-';
  if (negative) decimal.remove_prefix(1);
  const bool valid = !decimal.empty() &&
                     std::all_of(decimal.begin(), decimal.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!valid || decimal.size() > 3 * max_bytes) return {};
  std::string bytes;
  for (const char digit : decimal) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (auto& byte : bytes) {
      carry += 10 * static_cast<unsigned char>(byte);
      byte = static_cast<char>(carry & 0xFF);
      carry >>= 8;
    }
    if (carry > 0) bytes += static_cast<char>(carry);
  }
  bytes += '\0';  // room for the sign bit
  if (negative) negate(bytes);
  while (bytes.size() > 1) {
    const auto below = static_cast<unsigned char>(bytes[bytes.size() - 2]);
    const auto sign = static_cast<unsigned char>(bytes.back());
    if (sign != ((below & 0x80) ? 0xFF : 0)) break;
    bytes.pop_back();
  }
  return bytes.size() > max_bytes ? std::string() : bytes;
}

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
  std::string_view beginning;  // how the name begins
  std::string_view what;
};

// Only consulted for names that are not recognised above; explains why they are refused.
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

namespace {

constexpr int kOldestProtocol = 2;
constexpr int kNewestProtocol = 5;
constexpr uint64_t kLongestName = 200;
constexpr uint64_t kLongestInteger = 1024;  // bytes; the time to convert one to decimal grows with the square

}  // namespace

// Adds the position in the pickle to the refusal of a call.
template <class Call>
auto Unpickler::located(Call run) {
  try {
    return run();
  } catch (const Refusal& refusal) {
    fail("{}", refusal.what());
  }
}

Unpickler::Unpickler(PickleInput& input, Graph& graph, const CallOptions& options)
    : input_(input),
      graph_(graph),
      calls_(graph, input, options),
      stack_(graph.budget()),
      marks_(graph.budget()),
      memo_(graph.budget()) {}

Ref Unpickler::load() {
  at_ = input_.position();
  if (number<uint8_t>() != op::Proto) fail("expected a pickle of protocol 2 to 5, got none");
  const int protocol = number<uint8_t>();
  if (protocol < kOldestProtocol || protocol > kNewestProtocol) {
    fail("expected protocol 2 to 5, got {}", protocol);
  }
  while (true) {
    at_ = input_.position();
    const auto opcode = number<uint8_t>();
    if (opcode == op::Stop) break;
    step(opcode);
  }
  if (stack_.size() != 1 || !marks_.empty()) fail("expected one value at its end, got {}", stack_.size());
  return stack_[0];
}

void Unpickler::step(unsigned char opcode) {
  switch (opcode) {
    case op::Mark:
      return marks_.push_back(static_cast<uint32_t>(stack_.size()));
    case op::Frame:
      if (number<uint64_t>() > input_.remaining()) fail("a frame beyond its end");
      return;

    case op::None:
      return push(graph_.add(Kind::None));
    case op::NewFalse:
    case op::NewTrue:
      return push(graph_.add(Kind::Bool, opcode == op::NewTrue));
    case op::BinInt:
      return push(graph_.add_int(number<int32_t>()));
    case op::BinInt1:
      return push(graph_.add_int(number<uint8_t>()));
    case op::BinInt2:
      return push(graph_.add_int(number<uint16_t>()));
    case op::Long1:
      return push_long(number<uint8_t>());
    case op::Long4:
      return push_long(number<uint32_t>());  // signed; a negative length exceeds the limit
    case op::BinFloat: {
      auto bytes = number<std::array<char, 8>>();
      std::reverse(bytes.begin(), bytes.end());  // stored as big-endian
      return push(graph_.add_float(std::bit_cast<double>(bytes)));
    }

    case op::ShortBinString:
    case op::ShortBinUnicode:
      return push_text(Kind::Text, number<uint8_t>());
    case op::BinString:
    case op::BinUnicode:
      return push_text(Kind::Text, number<uint32_t>());
    case op::BinUnicode8:
      return push_text(Kind::Text, number<uint64_t>());
    case op::ShortBinBytes:
      return push_text(Kind::Bytes, number<uint8_t>());
    case op::BinBytes:
      return push_text(Kind::Bytes, number<uint32_t>());
    case op::BinBytes8:
    case op::ByteArray8:
      return push_text(Kind::Bytes, number<uint64_t>());

    case op::EmptyTuple:
      return push_tuple(0);
    case op::Tuple1:
    case op::Tuple2:
    case op::Tuple3:
      return push_tuple(1 + opcode - op::Tuple1);
    case op::Tuple:
      return push_items(Kind::Tuple, pop_mark());
    case op::FrozenSet:
      return push_items(Kind::Set, pop_mark());
    case op::EmptyList:
      return push(graph_.add_container(Kind::List));
    case op::EmptyDict:
      return push(graph_.add_container(Kind::Dict));
    case op::EmptySet:
      return push(graph_.add_container(Kind::Set));
    case op::Append:
      return extend(Kind::List, stack_.size() - 1);
    case op::Appends:
      return extend(Kind::List, pop_mark());
    case op::AddItems:
      return extend(Kind::Set, pop_mark());
    case op::SetItem:
      return extend(Kind::Dict, stack_.size() - 2);
    case op::SetItems:
      return extend(Kind::Dict, pop_mark());

    case op::BinGet:
      return get(number<uint8_t>());
    case op::LongBinGet:
      return get(number<uint32_t>());
    case op::BinPut:
      return put(number<uint8_t>());
    case op::LongBinPut:
      return put(number<uint32_t>());
    case op::Memoize:
      return put(memo_.size());

    case op::Global: {
      const std::string module(input_.take_line(kLongestName));
      return push_global(module, input_.take_line(kLongestName));
    }
    case op::StackGlobal: {
      const auto name = graph_[pop()], module = graph_[pop()];
      if (name.kind != Kind::Text || module.kind != Kind::Text) fail("a global without a name");
      return push_global(input_.text(module.offset, module.size), input_.text(name.offset, name.size));
    }
    case op::Reduce:
      return reduce();
    case op::Build: {
      const auto state = pop();
      if (!graph_.is(top(), Kind::OrderedDict) || !graph_.is_dict(state)) {
        fail("a state for a value that is {}", kind_name(graph_[top()].kind));
      }
      return;  // ignored attributes of an OrderedDict, such as _metadata
    }
    case op::BinPersId: {
      const auto id = pop();
      return push(located([&] { return calls_.storage(id); }));
    }
    default:
      fail("opcode {:#04x} is not read here", opcode);
  }
}

void Unpickler::get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == kNoRef) fail("memo entry {} does not exist", index);
  push(memo_[index]);
}

// Memo indices count from 0 in current picklers and from 1 in old ones.
void Unpickler::put(uint64_t index) {
  if (index > memo_.size() + (memo_.empty() ? 1 : 0))
    fail("memo entry {} follows entry {}", index, memo_.size());
  while (memo_.size() <= index) memo_.push_back(kNoRef);
  memo_[index] = top();
}

void Unpickler::push_global(std::string_view module, std::string_view name) {
  const auto found = located([&] { return find_global(module, name); });
  const auto dtype = static_cast<uint8_t>(found.dtype);
  if (found.global == Global::Dtype) return push(graph_.add(Kind::Dtype, dtype));
  push(graph_.add({.kind = Kind::Global, .detail = dtype, .index = static_cast<uint64_t>(found.global)}));
}

void Unpickler::reduce() {
  const auto arguments = pop(), global = pop();
  if (!graph_.is(global, Kind::Global)) {
    fail("it calls a value that is {}", kind_name(graph_[global].kind));
  }
  if (!graph_.is(arguments, Kind::Tuple)) {
    fail("it calls with arguments that are {}", kind_name(graph_[arguments].kind));
  }
  push(located([&] { return calls_.call(global, arguments); }));
}

Ref Unpickler::top() {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) fail("it takes more from its stack than is there");
  return stack_.back();
}

Ref Unpickler::pop() {
  const auto value = top();
  stack_.shrink(stack_.size() - 1);
  return value;
}

// Removes the last mark and returns the index of the first value above it.
size_t Unpickler::pop_mark() {
  if (marks_.empty()) fail("it takes up to a mark that is not there");
  const auto mark = marks_.back();
  marks_.shrink(marks_.size() - 1);
  return mark;
}

void Unpickler::push_long(uint64_t size) {
  if (size > kLongestInteger) fail("an integer of {} bytes exceeds the limit of {}", size, kLongestInteger);
  const auto begin = input_.position();
  const auto* bytes = reinterpret_cast<const unsigned char*>(input_.take(size));
  const unsigned char sign = size > 0 && (bytes[size - 1] & 0x80) ? 0xFF : 0;
  // Drops each high byte that only repeats the sign of the byte below it.
  while (size > 8 && bytes[size - 1] == sign && ((bytes[size - 2] ^ sign) & 0x80) == 0) --size;
  if (size > 8) return push(graph_.add_text(Kind::LongInt, begin, size));
  int64_t value = sign ? -1 : 0;
  std::memcpy(&value, bytes, size);
  push(graph_.add_int(value));
}

void Unpickler::push_text(Kind kind, uint64_t size) {
  const auto begin = input_.position();
  const std::string_view text(input_.take(size), size);
  if (kind == Kind::Text && !is_utf8(text)) fail("a string that is not UTF-8");
  push(graph_.add_text(kind, begin, size));
}

// Moves the values from index `first` on from the stack into the container below them; a dict may be ordered.
void Unpickler::extend(Kind wanted, size_t first) {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  if (first > stack_.size() || first <= floor) fail("it takes more from its stack than is there");
  const auto container = stack_[first - 1];
  const bool fits = wanted == Kind::Dict ? graph_.is_dict(container) : graph_.is(container, wanted);
  if (!fits) fail("it puts items into a value that is {}", kind_name(graph_[container].kind));
  const auto count = stack_.size() - first;
  if (wanted == Kind::Dict && count % 2 != 0) fail("a key without a value");
  graph_.append(container, stack_, first, count);
  stack_.shrink(first);
}

// Moves the values from index `first` on into a new container.
void Unpickler::push_items(Kind kind, size_t first) {
  const auto made = graph_.add_container(kind, stack_, first, stack_.size() - first);
  stack_.shrink(first);
  push(made);
}

void Unpickler::push_tuple(size_t count) {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  if (count > stack_.size() - floor) fail("it takes more from its stack than is there");
  push_items(Kind::Tuple, stack_.size() - count);
}

}  // namespace attentive::pickle
