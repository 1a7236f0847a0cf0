#include "io/pickle_check.h"

#include <algorithm>
#include <vector>

#include "io/pickle_keys.h"
#include "io/refusal.h"

namespace attentive::pickle {
namespace {

// A container on the way from the root to the value that is being looked at.
struct Frame {
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
    Frame above{kNoRef, graph_.no_items(), /*values=*/0};
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
  // A leaf counts at once, a container when all in it was counted.
  void visit(Ref ref, Frame& parent) {
    const auto& node = graph_[ref];
    if (!graph_.is_container(ref)) return count(parent, 1, text_of(node), 0);
    auto& container = graph_.container(ref);
    if (container.open) refuse("it holds {} that contains itself", kind_name(node.kind));
    if (container.values > 0) return count(parent, container.values, container.text, container.depth);
    if (frames_.size() >= static_cast<size_t>(limits_.max_depth)) too_deep();
    container.open = true;
    frames_.push_back({ref, graph_.items(ref)});
  }

  void leave(const Frame& frame, Frame& parent) {
    auto& container = graph_.container(frame.container);
    container.open = false;
    container.values = static_cast<uint32_t>(frame.values);
    container.text = frame.text;
    container.depth = frame.depth;
    keys_.check(frame.container);
    count(parent, frame.values, frame.text, frame.depth);
  }

  void count(Frame& parent, uint64_t values, uint64_t text, uint16_t depth) {
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
        return uint64_t{3} * node.size;  // decimals
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
  std::vector<Frame> frames_;
};

}  // namespace

void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits) {
  Check(graph, input, limits).run(root);
}

}  // namespace attentive::pickle
