#include "io/pickle.h"

#include <string>

#include "io/pickle_globals.h"
#include "io/pickle_opcodes.h"

namespace attentive::pickle {
namespace {

constexpr int kOldestProtocol = 2;
constexpr int kNewestProtocol = 5;
constexpr uint64_t kLongestName = 200;

}  // namespace

// Says where in the pickle the refusal of a call is.
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

// Picklers number from 0 on, old ones from 1 on.
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
      return true;  // attributes of the OrderedDict, such as _metadata
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

// Where the values above the last mark begin.
size_t Unpickler::pop_mark() {
  if (marks_.empty()) fail("it takes up to a mark that is not there");
  const auto mark = marks_.back();
  marks_.shrink(marks_.size() - 1);
  return mark;
}

}  // namespace attentive::pickle
