#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "files/pickle/graph.h"
#include "files/pickle/input.h"

namespace attentive::pickle {

struct CallOptions {
  /// The number of items that describe a storage: 5 in a zip archive, 6 in the format before PyTorch 1.6, 0
  /// if the pickle may not have storages.
  size_t storage_items = 0;
  int64_t max_tensors = 0;
};

/// Evaluates the classes and functions that a pickle calls. Throws Refusal for arguments that `torch.save`
/// would not have written. Does not check that a tensor fits into its storage.
class Calls {
 public:
  Calls(Graph& graph, const PickleInput& input, const CallOptions& options)
      : graph_(graph), input_(input), options_(options) {}

  /// Calls `global`; `arguments` is a tuple.
  Ref call(Ref global, Ref arguments);
  /// The storage that a persistent id describes.
  Ref storage(Ref id);

 private:
  Ref ordered_dict(Ref pairs);
  Ref bytearray(Ref arguments, size_t count);
  Ref encode(Ref characters, Ref encoding);
  Ref size(Ref tuple);
  Ref device(Ref type, int64_t index);
  Ref parameter(Ref arguments);
  Ref tensor_with_attributes(Ref arguments);

  // Defined in values.cpp:
  Ref tensor(Ref arguments, size_t count);
  Ref tensor_of_dtype(Ref arguments, size_t count);
  TensorSpec geometry(Ref arguments) const;
  Ref add_tensor(const TensorSpec& spec);
  void check_gradient(at::ScalarType dtype, bool requires_grad) const;
  void check_hooks(Ref hooks) const;
  void set_metadata(Ref dict, TensorSpec& spec) const;
  void set_view(Ref view, StorageMention& mention) const;

  std::string_view text(Ref ref) const { return input_.text(graph_[ref].offset, graph_[ref].size); }
  int64_t integer(Ref ref, const char* what) const;
  int64_t count_of(Ref ref, const char* what) const;
  bool boolean(Ref ref, const char* what) const;
  void expect(Ref ref, Kind kind, const char* what) const;

  Graph& graph_;
  const PickleInput& input_;
  CallOptions options_;
};

}  // namespace attentive::pickle
