#pragma once

// A family's names in Python and here, as data. A rule such as
//
//   {"h.#.attn.c_attn.{weight,bias}", "trf_blocks.#.att.[W_query,W_key,W_value].{weight,bias}", kTransposed}
//
// stands for several pairs of names: `#` is the number of a layer, braces hold alternatives that correspond
// one by one, and brackets (on one side) the parts of which the other side's tensor consists, in order, along
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
  kTransposed = 1,  // matrices are stored as (in, out)
  kFlattened = 2,   // a convolution's weight (out, channels, side, side) is our (out, channels * side * side)
  kHead = 4,        // never behind the family's prefix
  kAlias = 8,       // what other versions wrote; read only
  kCopy = 16,       // the same numbers a second time; read and compared, not written
};

struct NameRule {
  std::string_view theirs, ours;
  unsigned flags = 0;
};

struct NameRules {
  std::string_view prefix;                       // before every name but those of heads; may be absent
  std::vector<std::span<const NameRule>> rules;  // the first one that fits is written
  std::vector<std::string_view> ignored;         // buffers, and heads that no model here has
};

/// A `model_type` of Python.
struct Family {
  std::string_view name;
  std::string_view model;  // the class here that reads its folders: its kName
  NameRules rules;
};
/// Null for one that is not known.
const Family* find_family(std::string_view name);
/// The families that a class reads.
std::vector<std::string_view> families_of_model(std::string_view model);
/// "gpt2, llama, ..."
std::string known_families();

/// One pair of names; "#" is a layer.
struct NamePair {
  std::string theirs, ours;
  unsigned flags = 0;
  size_t part = 0, parts = 1;
  bool joined = false;  // ours consists of the parts `theirs`; otherwise, with parts > 1, theirs of `ours`
};

/// A name with its layer, if it has one: "h.3.ln_1.weight" -> "h.#.ln_1.weight", 3.
struct LayeredName {
  std::string pattern;
  std::optional<int64_t> layer;
};
LayeredName layered(std::string_view name);
std::string with_layer(std::string_view pattern, std::optional<int64_t> layer);

class NameTable {
 public:
  explicit NameTable(const NameRules& rules);

  /// The pairs of one of their names (several if ours are its parts), with the layer; none if it is unknown.
  std::vector<const NamePair*> of_theirs(std::string_view plain, std::optional<int64_t>& layer) const;
  /// The pairs to write for one of our names.
  std::vector<const NamePair*> of_ours(std::string_view name, std::optional<int64_t>& layer) const;
  bool is_ignored(std::string_view plain) const;
  std::string without_prefix(std::string_view theirs) const;
  /// Their name of a pair, as a file has it: with the layer, and behind the prefix if names have it.
  std::string their_name(const NamePair& pair, std::optional<int64_t> layer, bool prefixed) const;
  const std::vector<NamePair>& pairs() const { return pairs_; }

 private:
  using Index = std::multimap<std::string, size_t, std::less<>>;
  std::vector<const NamePair*> find(const Index& index, std::string_view name,
                                    std::optional<int64_t>& layer) const;

  const NameRules* rules_;
  std::vector<NamePair> pairs_;
  Index theirs_, ours_;
  std::set<std::string, std::less<>> ignored_;
};

/// What a state dict under Python's names means here, and what does not fit the table.
struct RenamedState {
  struct Tensor {
    at::Tensor value;
    std::vector<std::string> theirs;  // as the file has them
    bool whole = true;                // whether value is that tensor itself, and no view or copy of it
    bool fresh = false;               // whether nothing else refers to its memory: it is a copy
  };
  std::map<std::string, Tensor> tensors;  // by our names
  std::vector<std::string> missing;       // parts, under their names
  std::vector<std::string> unexpected;    // under their names
  std::vector<NameFaults::Line> misshapen;
  bool prefixed = false;  // whether any name had the family's prefix
};
RenamedState rename_from_python(const NameTable& table, const StateDict& state);

/// The families that know every one of these names.
std::vector<std::string_view> families_of_names(const StateDict& state);

/// The same faults as a message, each unknown name with the nearest known one.
NameFaults faults_of(const NameTable& table, const RenamedState& renamed);

}  // namespace attentive
