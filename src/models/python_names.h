#pragma once

// Translates the names of tensors between Python and this package, by the rules of a family (families.h).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/files/state_dict.h>

#include "models/families.h"

namespace attentive {

/// A pair of corresponding names; "#" stands for the number of a layer.
struct NamePair {
  std::string python_name, our_name;
  unsigned flags = 0;
  size_t part = 0, parts = 1;
  /// True: our tensor joins several of Python's; false with parts > 1: Python's splits into several of ours.
  bool joined = false;
};

/// A name whose layer number, if any, is separate: "h.3.ln_1.weight" -> "h.#.ln_1.weight", 3.
struct LayeredName {
  std::string pattern;
  std::optional<int64_t> layer;
};
LayeredName layered(std::string_view name);
std::string with_layer(std::string_view pattern, std::optional<int64_t> layer);

class NameTable {
 public:
  explicit NameTable(const NameRules& rules);

  /// Finds the pairs of a Python name (several if its tensor is split), and its layer; none if it is unknown.
  std::vector<const NamePair*> of_python_name(std::string_view plain, std::optional<int64_t>& layer) const;
  /// Finds the pairs to write for one of this package's names, and its layer.
  std::vector<const NamePair*> of_our_name(std::string_view name, std::optional<int64_t>& layer) const;
  bool is_ignored(std::string_view plain) const;
  /// Also without what wrappers put into the name.
  std::string without_prefix(std::string_view python_name) const;
  /// The Python name of a pair as a file has it: with the layer, and with the prefix if `prefixed`.
  std::string name_in_file(const NamePair& pair, std::optional<int64_t> layer, bool prefixed) const;
  const std::vector<NamePair>& pairs() const { return pairs_; }

 private:
  using Index = std::multimap<std::string, size_t, std::less<>>;
  std::vector<const NamePair*> find(const Index& index, std::string_view name,
                                    std::optional<int64_t>& layer) const;

  const NameRules* rules_;
  std::vector<NamePair> pairs_;
  Index by_python_name_, by_our_name_;
  std::set<std::string, std::less<>> ignored_;
};

/// The least number of insertions, deletions and replacements that turn `b` into `a`. Both are cut after 200
/// characters.
size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest of `names`; empty if each differs in more than a third of its characters.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

struct NameFaults {
  struct Line {
    std::string name, comment;
  };
  std::vector<Line> missing, unexpected, misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// One line per name, at most ten of each kind, followed by the number of the remaining ones.
  std::string text() const;
};

/// The tensors of a Python state dict under this package's names, and whatever does not fit the table.
struct RenamedState {
  struct Tensor {
    at::Tensor value;
    std::vector<std::string> python_names;  // as in the file
    bool whole = true;                      // whether value is the file's tensor itself, not a view or copy
    bool fresh = false;                     // whether value is a new copy, to which nothing else refers
  };
  std::map<std::string, Tensor> tensors;  // by this package's names
  std::vector<std::string> missing;       // missing parts, by their Python names
  std::vector<std::string> unexpected;    // by their Python names
  std::vector<NameFaults::Line> misshapen;
  bool prefixed = false;  // whether any name had the family's prefix
};
RenamedState rename_from_python(const NameTable& table, const StateDict& state);

/// Converts the faults to messages; each unknown name comes with the nearest known one.
NameFaults faults_of(const NameTable& table, const RenamedState& renamed);

}  // namespace attentive
