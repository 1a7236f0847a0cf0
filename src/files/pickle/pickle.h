#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/refusal.h"
#include "files/pickle/calls.h"
#include "files/pickle/graph.h"
#include "files/pickle/input.h"

namespace attentive::pickle {

/// Reads one pickle into a graph: protocols 2 to 5, and the opcodes that CPython's pickler writes for the
/// values of `Kind`. Executes and imports nothing, and does not recurse.
///
/// Throws Refusal, with the byte's position, for anything else: an opcode or a global that is not read here,
/// a stack or memo with fewer values than an opcode needs, a string that is not UTF-8, an integer of more
/// than 1024 bytes.
class Unpickler {
 public:
  Unpickler(PickleInput& input, Graph& graph, const CallOptions& options);

  /// Reads the pickle at the current position of the input, and moves the position behind it.
  Ref load();

 private:
  void step(unsigned char opcode);
  bool push_number(unsigned char opcode);
  bool push_text(unsigned char opcode);
  bool build_container(unsigned char opcode);
  bool use_memo(unsigned char opcode);
  bool call(unsigned char opcode);

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, input_.take(sizeof(value)), sizeof(value));
    return value;
  }
  template <class Call>
  auto located(Call run);
  void push(Ref value) { stack_.push_back(value); }
  Ref pop();
  Ref top();
  size_t pop_mark();
  void push_tuple(size_t count);
  void extend(size_t first, std::initializer_list<Kind> kinds);
  void push_text(Kind kind, uint64_t size);
  void push_long(uint64_t size);
  void push_global(std::string_view module, std::string_view name);
  void get(uint64_t index);
  void put(uint64_t index);
  void reduce();

  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    refuse("its pickle, byte {}: {}", at_, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  PickleInput& input_;
  Graph& graph_;
  Calls calls_;
  ChunkedArray<Ref> stack_;
  ChunkedArray<uint32_t> marks_;
  ChunkedArray<Ref> memo_;
  uint64_t at_ = 0;  // the position of the current opcode
};

}  // namespace attentive::pickle
