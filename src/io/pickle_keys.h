#pragma once

#include <compare>
#include <string>

#include "io/pickle_graph.h"
#include "io/pickle_input.h"

namespace attentive::pickle {

/// Whether the keys of a dict, or the items of a set, can be hashed in Python and are distinct.
class Keys {
 public:
  Keys(Graph& graph, const PickleInput& input) : graph_(graph), input_(input) {}

  /// Throws Refusal. Other containers have no keys.
  void check(Ref container) const;

 private:
  struct Comparable;

  void check_hashable(Ref key, Ref container) const;
  Comparable comparable(Ref scalar) const;
  std::strong_ordering compare(Ref a, Ref b) const;
  std::string describe(Ref key) const;

  Graph& graph_;
  const PickleInput& input_;
};

}  // namespace attentive::pickle
