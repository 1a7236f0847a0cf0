#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "io/pickle.h"
#include "io/pickle_opcodes.h"
#include "io/utf8.h"

namespace attentive::pickle {
namespace {

constexpr uint64_t kLongestInteger = 1024;  // bytes; making decimals of one costs their square

}  // namespace

bool Unpickler::push_number(unsigned char opcode) {
  switch (opcode) {
    case op::None:
      push(graph_.add(Kind::None));
      return true;
    case op::NewFalse:
    case op::NewTrue:
      push(graph_.add(Kind::Bool, opcode == op::NewTrue));
      return true;
    case op::BinInt:
      push(graph_.add_int(number<int32_t>()));
      return true;
    case op::BinInt1:
      push(graph_.add_int(number<uint8_t>()));
      return true;
    case op::BinInt2:
      push(graph_.add_int(number<uint16_t>()));
      return true;
    case op::Long1:
      push_long(number<uint8_t>());
      return true;
    case op::Long4:
      push_long(number<uint32_t>());  // signed; a negative one is beyond the limit
      return true;
    case op::BinFloat: {
      auto bytes = number<std::array<char, 8>>();
      std::reverse(bytes.begin(), bytes.end());  // big-endian
      push(graph_.add_float(std::bit_cast<double>(bytes)));
      return true;
    }
    default:
      return false;
  }
}

void Unpickler::push_long(uint64_t size) {
  if (size > kLongestInteger) fail("an integer of {} bytes exceeds the limit of {}", size, kLongestInteger);
  const auto begin = input_.position();
  const auto* bytes = reinterpret_cast<const unsigned char*>(input_.take(size));
  const unsigned char sign = size > 0 && (bytes[size - 1] & 0x80) ? 0xFF : 0;
  // A byte that only repeats the sign of the one below says nothing.
  while (size > 8 && bytes[size - 1] == sign && ((bytes[size - 2] ^ sign) & 0x80) == 0) --size;
  if (size > 8) return push(graph_.add_text(Kind::LongInt, begin, size));
  int64_t value = sign ? -1 : 0;
  std::memcpy(&value, bytes, size);
  push(graph_.add_int(value));
}

bool Unpickler::push_text(unsigned char opcode) {
  switch (opcode) {
    case op::ShortBinString:
    case op::ShortBinUnicode:
      push_text(Kind::Text, number<uint8_t>());
      return true;
    case op::BinString:
    case op::BinUnicode:
      push_text(Kind::Text, number<uint32_t>());
      return true;
    case op::BinUnicode8:
      push_text(Kind::Text, number<uint64_t>());
      return true;
    case op::ShortBinBytes:
      push_text(Kind::Bytes, number<uint8_t>());
      return true;
    case op::BinBytes:
      push_text(Kind::Bytes, number<uint32_t>());
      return true;
    case op::BinBytes8:
    case op::ByteArray8:
      push_text(Kind::Bytes, number<uint64_t>());
      return true;
    default:
      return false;
  }
}

void Unpickler::push_text(Kind kind, uint64_t size) {
  const auto begin = input_.position();
  const std::string_view text(input_.take(size), size);
  if (kind == Kind::Text && !is_utf8(text)) fail("a string that is not UTF-8");
  push(graph_.add_text(kind, begin, size));
}

bool Unpickler::build_container(unsigned char opcode) {
  switch (opcode) {
    case op::EmptyTuple:
      push_tuple(0);
      return true;
    case op::Tuple1:
    case op::Tuple2:
    case op::Tuple3:
      push_tuple(1 + opcode - op::Tuple1);
      return true;
    case op::Tuple:
      push_tuple(stack_.size() - pop_mark());
      return true;
    case op::EmptyList:
      push(graph_.add_container(Kind::List));
      return true;
    case op::EmptyDict:
      push(graph_.add_container(Kind::Dict));
      return true;
    case op::EmptySet:
      push(graph_.add_container(Kind::Set));
      return true;
    case op::FrozenSet: {
      const auto first = pop_mark();
      const auto set = graph_.add_container(Kind::Set, stack_, first, stack_.size() - first);
      stack_.shrink(first);
      push(set);
      return true;
    }
    case op::Append:
      extend(stack_.size() - 1, {Kind::List});
      return true;
    case op::Appends:
      extend(pop_mark(), {Kind::List});
      return true;
    case op::AddItems:
      extend(pop_mark(), {Kind::Set});
      return true;
    case op::SetItem:
      extend(stack_.size() - 2, {Kind::Dict, Kind::OrderedDict});
      return true;
    case op::SetItems:
      extend(pop_mark(), {Kind::Dict, Kind::OrderedDict});
      return true;
    default:
      return false;
  }
}

// Takes the values from `first` on from the stack and puts them into the container below them.
void Unpickler::extend(size_t first, std::initializer_list<Kind> kinds) {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  if (first > stack_.size() || first <= floor) fail("it takes more from its stack than is there");
  const auto container = stack_[first - 1];
  const auto kind = graph_[container].kind;
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    fail("it puts items into a value that is {}", kind_name(kind));
  }
  const auto count = stack_.size() - first;
  if (graph_.is_dict(container) && count % 2 != 0) fail("a key without a value");
  graph_.append(container, stack_, first, count);
  stack_.shrink(first);
}

void Unpickler::push_tuple(size_t count) {
  const auto floor = marks_.empty() ? 0 : marks_.back();
  if (count > stack_.size() - floor) fail("it takes more from its stack than is there");
  const auto first = stack_.size() - count;
  const auto tuple = graph_.add_container(Kind::Tuple, stack_, first, count);
  stack_.shrink(first);
  push(tuple);
}

}  // namespace attentive::pickle
