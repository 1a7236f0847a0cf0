#include "io/pickle_build.h"

#include <string>

#include "io/big_integer.h"

namespace attentive::pickle {
namespace {

std::string from_latin1(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    // Above U+007F, two bytes: 110000xx 10xxxxxx.
    bytes.push_back(lead < 0x80 ? text[i] : static_cast<char>((lead << 6) | (text[++i] & 0x3F)));
  }
  return bytes;
}

// A container whose items are being made.
struct Frame {
  Graph::Items items;
  std::vector<TorchValue> made;
  Ref container;
};

class Builder {
 public:
  Builder(const Graph& graph, const PickleInput& input, const std::vector<at::Tensor>& tensors)
      : graph_(graph), input_(input), tensors_(tensors) {}

  TorchValue run(Ref root) {
    std::vector<Frame> frames;
    const auto open = [&](Ref ref) {
      frames.push_back({graph_.items(ref), {}, ref});
      frames.back().made.reserve(graph_[ref].size);
    };
    if (!graph_.is_container(root)) return leaf(root);
    open(root);
    while (true) {
      Ref item = 0;
      if (frames.back().items.next(item)) {
        if (graph_.is_container(item)) {
          open(item);
        } else {
          frames.back().made.push_back(leaf(item));
        }
        continue;
      }
      auto done = std::move(frames.back());
      frames.pop_back();
      auto value = container(done);
      if (frames.empty()) return value;
      frames.back().made.push_back(std::move(value));
    }
  }

 private:
  TorchValue container(Frame& frame) const {
    switch (graph_[frame.container].kind) {
      case Kind::List:
        return TorchValue::List{std::move(frame.made)};
      case Kind::Tuple:
        return TorchValue::Tuple{std::move(frame.made)};
      case Kind::Set:
        return TorchValue::Set{std::move(frame.made)};
      default: {
        TorchValue::Dict dict;
        dict.ordered = graph_.is(frame.container, Kind::OrderedDict);
        dict.items.reserve(frame.made.size() / 2);
        for (size_t i = 0; i < frame.made.size(); i += 2) {
          dict.items.emplace_back(std::move(frame.made[i]), std::move(frame.made[i + 1]));
        }
        return dict;
      }
    }
  }

  TorchValue leaf(Ref ref) const {
    const auto& node = graph_[ref];
    switch (node.kind) {
      case Kind::Bool:
        return node.detail != 0;
      case Kind::Int:
        return node.integer;
      case Kind::LongInt:
        return TorchValue::Integer{decimal_of(text(node))};
      case Kind::Float:
        return node.real;
      case Kind::Complex:
        return std::complex<double>(graph_[node.size].real, graph_[static_cast<Ref>(node.index)].real);
      case Kind::Text:
        return std::string(text(node));
      case Kind::Bytes:
        return TorchValue::Bytes{std::string(text(node))};
      case Kind::Latin1:
        return TorchValue::Bytes{from_latin1(text(node))};
      case Kind::Tensor:
        return tensors_[node.index];
      case Kind::Parameter:
        return parameter(node);
      case Kind::Dtype:
        return static_cast<at::ScalarType>(node.detail);
      case Kind::Device:
        return c10::Device(static_cast<c10::DeviceType>(node.detail),
                           static_cast<c10::DeviceIndex>(node.integer));
      case Kind::Layout:
        return at::kStrided;
      default:
        return {};
    }
  }

  TorchValue parameter(const Node& node) const {
    return TorchValue::Parameter{tensors_[graph_[static_cast<Ref>(node.index)].index], node.detail != 0};
  }

  std::string_view text(const Node& node) const { return input_.text(node.offset, node.size); }

  const Graph& graph_;
  const PickleInput& input_;
  const std::vector<at::Tensor>& tensors_;
};

}  // namespace

TorchValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                       const std::vector<at::Tensor>& tensors) {
  return Builder(graph, input, tensors).run(root);
}

}  // namespace attentive::pickle
