#include "files/pickle/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/strings.h"
#include "files/pickle/checks.h"
#include "files/pickle/opcodes.h"

namespace attentive::pickle {
namespace {

constexpr int kOldestProtocol = 2;
constexpr int kNewestProtocol = 5;
constexpr uint64_t kLongestName = 200;

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
  if (opcode == op::Mark) return marks_.push_back(static_cast<uint32_t>(stack_.size()));
  if (opcode == op::Frame) {
    if (number<uint64_t>() > input_.remaining()) fail("a frame beyond its end");
    return;
  }
  if (push_number(opcode) || push_text(opcode) || build_container(opcode) || use_memo(opcode) ||
      call(opcode)) {
    return;
  }
  fail("opcode {:#04x} is not read here", opcode);
}

bool Unpickler::use_memo(unsigned char opcode) {
  switch (opcode) {
    case op::BinGet:
      get(number<uint8_t>());
      return true;
    case op::LongBinGet:
      get(number<uint32_t>());
      return true;
    case op::BinPut:
      put(number<uint8_t>());
      return true;
    case op::LongBinPut:
      put(number<uint32_t>());
      return true;
    case op::Memoize:
      put(memo_.size());
      return true;
    default:
      return false;
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

bool Unpickler::call(unsigned char opcode) {
  switch (opcode) {
    case op::Global: {
      const std::string module(input_.take_line(kLongestName));
      push_global(module, input_.take_line(kLongestName));
      return true;
    }
    case op::StackGlobal: {
      const auto name = graph_[pop()], module = graph_[pop()];
      if (name.kind != Kind::Text || module.kind != Kind::Text) fail("a global without a name");
      push_global(input_.text(module.offset, module.size), input_.text(name.offset, name.size));
      return true;
    }
    case op::Reduce:
      reduce();
      return true;
    case op::Build: {
      const auto state = pop();
      if (!graph_.is(top(), Kind::OrderedDict) || !graph_.is_dict(state)) {
        fail("a state for a value that is {}", kind_name(graph_[top()].kind));
      }
      return true;  // ignored attributes of an OrderedDict, such as _metadata
    }
    case op::BinPersId: {
      const auto id = pop();
      push(located([&] { return calls_.storage(id); }));
      return true;
    }
    default:
      return false;
  }
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

namespace {

constexpr uint64_t kLongestInteger = 1024;  // bytes; the time to convert one to decimal grows with the square

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
      push_long(number<uint32_t>());  // signed; a negative length exceeds the limit
      return true;
    case op::BinFloat: {
      auto bytes = number<std::array<char, 8>>();
      std::reverse(bytes.begin(), bytes.end());  // stored as big-endian
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
  // Drops each high byte that only repeats the sign of the byte below it.
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

// Moves the values from index `first` on from the stack into the container below them.
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
