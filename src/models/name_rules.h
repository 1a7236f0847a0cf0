#pragma once

// The names of a family's tensors in Python and in this package, as data. A rule such as
//
//   {"h.#.attn.c_attn.{weight,bias}", "trf_blocks.#.att.[W_query,W_key,W_value].{weight,bias}", kTransposed}
//
// stands for several pairs of names: `#` is the number of a layer; braces hold alternatives that correspond
// one by one; brackets (on one side only) list the parts that make up the other side's tensor, in order along
// its first dimension (after the transposition).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/files/state_dict.h>

#include "models/rename_state.h"

namespace attentive {

enum NameFlags : unsigned {
  kTransposed = 1,  // Python stores matrices as (in, out)
  /// Python has a convolution's weight (out, channels, side, side), we have (out, channels * side * side).
  kFlattened = 2,
  kHead = 4,   // never behind the family's prefix
  kAlias = 8,  // a name from other versions of transformers; read, never written
  kCopy = 16,  // a second copy of a tensor; read and compared, not written
};

struct NameRule {
  std::string_view python_name, our_name;
  unsigned flags = 0;
};

struct NameRules {
  std::string_view prefix;                       // before every name except those of heads; files may omit it
  std::vector<std::span<const NameRule>> rules;  // if several rules match, the first is used for writing
  std::vector<std::string_view> ignored;         // buffers, and heads that no model here has
};

/// A `model_type` of transformers.
struct Family {
  std::string_view name;
  std::string_view model;  // the kName of the class here that reads its folders
  NameRules rules;
};
/// Returns null for an unknown family.
const Family* find_family(std::string_view name);
/// The families that a class reads.
std::vector<std::string_view> families_of_model(std::string_view model);
/// The names of all families, for messages: "gpt2, llama, ...".
std::string known_families();

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

/// The families that know all of these names.
std::vector<std::string_view> families_of_names(const StateDict& state);

/// Converts the faults to messages; each unknown name comes with the nearest known one.
NameFaults faults_of(const NameTable& table, const RenamedState& renamed);

}  // namespace attentive
