#include "files/pickle/checks.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/refusal.h"
#include "files/pickle/graph.h"
#include "files/torch/torch_dtypes.h"

namespace attentive::pickle {
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

// A container on the path from the root to the current value.
struct CheckFrame {
  Ref container;
  Graph::Items items;
  uint64_t values = 1;
  uint64_t text = 0;
  uint16_t depth = 1;
};

class Check {
 public:
  Check(Graph& graph, const PickleInput& input, const TorchFileLimits& limits)
      : graph_(graph), keys_(graph, input), limits_(limits) {}

  void run(Ref root) {
    CheckFrame above{kNoRef, graph_.no_items(), /*values=*/0};
    visit(root, above);
    while (!frames_.empty()) {
      auto& frame = frames_.back();
      Ref item = 0;
      if (frame.items.next(item)) {
        visit(item, frame);
      } else {
        const auto done = frame;
        frames_.pop_back();
        leave(done, frames_.empty() ? above : frames_.back());
      }
    }
  }

 private:
  // A leaf is counted at once; a container is counted when all its items have been.
  void visit(Ref ref, CheckFrame& parent) {
    const auto& node = graph_[ref];
    if (!graph_.is_container(ref)) return count(parent, 1, text_of(node), 0);
    auto& container = graph_.container(ref);
    if (container.open) refuse("it holds {} that contains itself", kind_name(node.kind));
    if (container.values > 0) return count(parent, container.values, container.text, container.depth);
    if (frames_.size() >= static_cast<size_t>(limits_.max_depth)) too_deep();
    container.open = true;
    frames_.push_back({ref, graph_.items(ref)});
  }

  void leave(const CheckFrame& frame, CheckFrame& parent) {
    auto& container = graph_.container(frame.container);
    container.open = false;
    container.values = static_cast<uint32_t>(frame.values);
    container.text = frame.text;
    container.depth = frame.depth;
    keys_.check(frame.container);
    count(parent, frame.values, frame.text, frame.depth);
  }

  void count(CheckFrame& parent, uint64_t values, uint64_t text, uint16_t depth) {
    parent.values += values;
    parent.text += text;
    parent.depth = std::max<uint16_t>(parent.depth, depth + 1);
    if (parent.values > static_cast<uint64_t>(limits_.max_values)) {
      refuse("it holds more than {} values (max_values)", limits_.max_values);
    }
    if (parent.text > limits_.max_pickle_bytes) {
      refuse("its strings exceed {} bytes together (max_pickle_bytes)", limits_.max_pickle_bytes);
    }
    if (frames_.size() + depth > static_cast<size_t>(limits_.max_depth)) too_deep();
  }

  [[noreturn]] void too_deep() const {
    refuse("it nests containers more than {} deep (max_depth)", limits_.max_depth);
  }

  static uint64_t text_of(const Node& node) {
    switch (node.kind) {
      case Kind::Text:
      case Kind::Bytes:
      case Kind::Latin1:
        return node.size;
      case Kind::LongInt:
        return uint64_t{3} * node.size;  // at most 3 decimal digits for each byte
      case Kind::Storage:
        refuse("it holds a storage that is not part of a tensor");
      case Kind::Global:
        refuse("it holds a class or function as a value");
      default:
        return 0;
    }
  }

  Graph& graph_;
  Keys keys_;
  const TorchFileLimits& limits_;
  std::vector<CheckFrame> frames_;
};

}  // namespace

void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits) {
  Check(graph, input, limits).run(root);
}

}  // namespace attentive::pickle
