#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <attentive/core/options.h>
#include <attentive/functional/activation_checkpoint.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/recording.h"
#include "kernels/pytorch/aten_internals.h"

namespace attentive {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr const char* kActivationCheckpoint = "activation_checkpoint";

// A function that runs a second time must find the conditions of its first run: everything besides its inputs
// that its result depends on.

// Generators, and the states that they had at one time.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators) : generators_(generators) {
    for (auto& generator : generators_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  void restore() const {
    for (size_t i = 0; i < states_.size(); ++i) {
      auto generator = generators_[i];
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(states_[i]);
    }
  }
  const std::vector<at::Generator>& generators() const { return generators_; }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

// The settings of a thread that change how operations compute.
struct ThreadSettings {
  static constexpr at::DeviceType kDevices[] = {at::kCPU, at::kCUDA};
  struct Autocast {
    bool enabled;
    at::ScalarType type;
  };
  std::vector<Autocast> autocast;
  Backend backend = BackendGuard::current();
  DropoutStream stream = DropoutStreamGuard::current();

  ThreadSettings() {
    for (const auto device : kDevices) {
      autocast.push_back(
          {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
    }
  }
  void set_autocast() const {
    for (size_t i = 0; i < autocast.size(); ++i) {
      at::autocast::set_autocast_enabled(kDevices[i], autocast[i].enabled);
      at::autocast::set_autocast_dtype(kDevices[i], autocast[i].type);
    }
  }
};

// Autocast keeps the casts of weights, with their place in the graph. The two runs must not find casts of
// the code around them, or each other's.
class NoCastCache {
 public:
  NoCastCache() : enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoCastCache() { at::autocast::set_autocast_cache_enabled(enabled_); }
  NoCastCache(const NoCastCache&) = delete;
  NoCastCache& operator=(const NoCastCache&) = delete;

 private:
  bool enabled_;
};

// Whether modules and their children are in training mode, parents first.
class TrainingFlags {
 public:
  explicit TrainingFlags(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    for (const auto& module : modules) {
      for (const auto& one : module->modules()) flags_.emplace_back(one, one->is_training());
    }
  }
  // Sets them, and returns those before.
  TrainingFlags exchange() const {
    auto before = *this;
    bool differ = false;
    for (auto& [module, flag] : before.flags_) {
      differ |= flag != module->is_training();
      flag = module->is_training();
    }
    if (differ) set();
    return before;
  }
  void set() const {
    for (const auto& [module, flag] : flags_) {
      if (module->is_training() != flag) module->train(flag);
    }
  }

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> flags_;
};

// The conditions of one run.
struct RunConditions {
  RunConditions(const std::vector<at::Generator>& generators_,
                const std::vector<std::shared_ptr<torch::nn::Module>>& modules)
      : generators(generators_), training(modules) {}

  ThreadSettings settings;
  GeneratorStates generators;
  TrainingFlags training;
};

// The conditions of the first run, for the duration of the second.
class SecondRun {
 public:
  explicit SecondRun(const RunConditions& first)
      : backend_(first.settings.backend),
        stream_(first.settings.stream),
        generators_(first.generators.generators()),
        training_(first.training.exchange()),
        listeners_(std::exchange(recording::listeners, nullptr)) {
    first.settings.set_autocast();
    first.generators.restore();
  }
  ~SecondRun() {
    recording::listeners = listeners_;
    training_.set();
    generators_.restore();
    settings_.set_autocast();
  }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  ThreadSettings settings_;
  BackendGuard backend_;
  DropoutStreamGuard stream_;
  at::AutoGradMode gradients_{true};
  NoCastCache no_cache_;
  GeneratorStates generators_;
  TrainingFlags training_;
  recording::Listeners* listeners_;
};

// Detects that a tensor was changed in place. Views share the version, and the copy here outlives the tensor.
class SeenVersion {
 public:
  explicit SeenVersion(const at::Tensor& x) {
    if (!x.defined() || x.is_inference()) return;
    version_ = x.unsafeGetTensorImpl()->version_counter();
    seen_ = version_->current_version();
  }
  bool changed() const { return version_ && version_->current_version() != seen_; }

 private:
  std::optional<c10::VariableVersion> version_;
  uint32_t seen_ = 0;
};

struct CapturedTensor {
  Edge edge;  // into the graph outside the function
  std::string description;
  SeenVersion version;  // of a leaf
};

// A call, as its second run needs it.
struct CheckpointedCall : torch::CustomClassHolder {
  CheckpointedCall(const CheckpointedFunction& function_, const std::vector<at::Generator>& generators,
                   const std::vector<std::shared_ptr<torch::nn::Module>>& modules)
      : function(function_), first(generators, modules) {}

  CheckpointedFunction function;
  RunConditions first;
  std::vector<SeenVersion> versions;  // of the inputs
  std::vector<bool> differentiable;   // which inputs require a gradient
  variable_list unsaved;              // inputs that autograd cannot save, or undefined
  std::vector<CapturedTensor> captured;
  std::vector<bool> outputs;  // which outputs require a gradient
};

// The nodes that this thread has recorded since the construction.
class RecordedNodes {
 public:
  RecordedNodes() : first_(at::sequence_number::peek()), thread_(at::RecordFunction::currentThreadId()) {}

  // Calls visit(edge) for every edge that leads from these nodes to others, from the given outputs on.
  template <class Visit>
  void for_each_leaving_edge(const variable_list& outputs, const Visit& visit) const {
    std::unordered_set<Node*> seen;
    std::vector<Node*> open;
    const auto enter = [&](Node* node) {
      if (seen.insert(node).second) open.push_back(node);
    };
    for (const auto& output : outputs) {
      if (output.defined() && output.requires_grad()) enter(output.grad_fn().get());
    }
    while (!open.empty()) {
      auto* node = open.back();
      open.pop_back();
      for (auto& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        if (holds(*edge.function)) {
          enter(edge.function.get());
        } else {
          visit(edge);
        }
      }
    }
  }

 private:
  bool holds(const Node& node) const {
    constexpr auto kOfLeaf = std::numeric_limits<uint64_t>::max();
    return node.sequence_nr() != kOfLeaf && node.sequence_nr() >= first_ && node.thread_id() == thread_;
  }

  uint64_t first_, thread_;
};

// Runs the function. Every output that requires a gradient becomes a view, whose node was recorded by this
// run even if the function returned one of its inputs.
variable_list run_function(const CheckpointedFunction& function, const variable_list& inputs) {
  auto outputs = function(inputs);
  for (auto& output : outputs) {
    if (output.defined() && output.requires_grad()) output = output.view_as(output);
  }
  return outputs;
}

// Cuts a graph off where its edges leave it: they then lead to leaves that stand for the tensors outside.
// Hooks of those tensors and the nodes behind them thus see nothing of the second run's gradients; they see
// what the node of the first run returns. The edges are put back at the end, for second derivatives.
class CutEdges {
 public:
  CutEdges() = default;
  ~CutEdges() {
    for (auto& [edge, original] : cut_) *edge = std::move(original);
  }
  CutEdges(const CutEdges&) = delete;
  CutEdges& operator=(const CutEdges&) = delete;

  void add(const Edge& edge) {
    const auto& metadata = edge.function->input_metadata(edge.input_nr);
    // The shape without the memory.
    const auto leaf =
        at::empty({}, metadata.options()).expand_symint(metadata.shape_as_dim_vector()).requires_grad_(true);
    ends_.push_back({edge, leaf, torch::autograd::impl::gradient_edge(leaf)});
  }
  void cut(const RecordedNodes& nodes, const variable_list& outputs) {
    nodes.for_each_leaving_edge(outputs, [&](Edge& edge) {
      for (const auto& end : ends_) {
        if (end.original == edge) {
          cut_.emplace_back(&edge, std::exchange(edge, end.to_leaf));
          return;
        }
      }
      TORCH_CHECK_VALUE(false, kActivationCheckpoint,
                        ": expected the function to read the tensors that its first run read, got another "
                        "one that requires a gradient in its second run");
    });
  }
  const at::Tensor& leaf(size_t i) const { return ends_[i].leaf; }
  size_t size() const { return ends_.size(); }

 private:
  struct End {
    Edge original;
    at::Tensor leaf;
    Edge to_leaf;
  };
  std::vector<End> ends_;
  std::vector<std::pair<Edge*, Edge>> cut_;
};

// Connects the outputs of the first run with its differentiable inputs and with the tensors it captured.
class ActivationCheckpoint : public torch::autograd::Function<ActivationCheckpoint> {
 public:
  // `sources` are the inputs that require a gradient, then a tensor for each captured edge. `inputs` are all
  // inputs, `outputs` those outputs that require a gradient, without a history.
  static variable_list forward(AutogradContext* context, const at::TensorList& /*sources*/,
                               const c10::intrusive_ptr<CheckpointedCall>& call, const variable_list* inputs,
                               const variable_list* outputs) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    variable_list saved;
    for (const auto& input : *inputs) {
      const bool can_be_saved = input.defined() && !input.is_inference();
      saved.push_back(can_be_saved ? input : at::Tensor());
      call->unsaved.push_back(can_be_saved ? at::Tensor() : input);
    }
    context->save_for_backward(std::move(saved));
    context->set_materialize_grads(false);
    return *outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto held =
        c10::static_intrusive_pointer_cast<CheckpointedCall>(context->saved_data["call"].toCapsule());
    auto& call = *held;
    const bool create_graph = at::GradMode::is_enabled();
    check_unchanged(call);
    auto inputs = context->get_saved_variables();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (call.unsaved[i].defined()) inputs[i] = call.unsaved[i];
    }

    variable_list outputs;
    std::optional<RecordedNodes> nodes;
    CutEdges ends;
    {
      const SecondRun conditions(call.first);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!call.differentiable[i]) continue;
        auto& x = inputs[i];
        x = create_graph ? x.view_as(x) : x.detach().requires_grad_(true);
        ends.add(torch::autograd::impl::gradient_edge(x));
      }
      nodes.emplace();
      outputs = run_function(call.function, inputs);
    }
    for (const auto& captured : call.captured) ends.add(captured.edge);
    check_outputs(call, outputs);
    ends.cut(*nodes, outputs);

    variable_list roots, gradients, leaves;
    size_t next = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!call.outputs[i]) continue;
      const auto& gradient = incoming[next++];
      if (!gradient.defined()) continue;
      roots.push_back(outputs[i]);
      gradients.push_back(gradient);
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      if (context->needs_input_grad(i)) leaves.push_back(ends.leaf(i));
    }
    variable_list computed(leaves.size());
    if (!roots.empty() && !leaves.empty()) {
      computed = torch::autograd::grad(roots, leaves, gradients, /*retain_graph=*/create_graph, create_graph,
                                       /*allow_unused=*/true);
    }
    variable_list found(ends.size());
    for (size_t i = 0, offset = 0; i < found.size(); ++i) {
      if (context->needs_input_grad(i)) found[i] = computed[offset++];
    }
    found.resize(found.size() + 3);  // for the other arguments of `forward`
    return found;
  }

 private:
  static void check_unchanged(const CheckpointedCall& call) {
    for (size_t i = 0; i < call.versions.size(); ++i) {
      TORCH_CHECK_VALUE(!call.versions[i].changed(), kActivationCheckpoint, ": input ", i,
                        " was changed in place after the forward pass; the backward pass reads it");
    }
    for (const auto& captured : call.captured) {
      TORCH_CHECK_VALUE(
          !captured.version.changed(), kActivationCheckpoint, ": ", captured.description,
          ", which the function reads, was changed in place after the forward pass; the backward "
          "pass reads it");
    }
  }

  static void check_outputs(const CheckpointedCall& call, const variable_list& outputs) {
    TORCH_CHECK_VALUE(outputs.size() == call.outputs.size(), kActivationCheckpoint,
                      ": expected the function to return ", call.outputs.size(),
                      " tensors again in its second run, got ", outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool requires_gradient = outputs[i].defined() && outputs[i].requires_grad();
      TORCH_CHECK_VALUE(requires_gradient == call.outputs[i], kActivationCheckpoint, ": expected output ", i,
                        call.outputs[i] ? " to require" : " not to require",
                        " a gradient in the second run of the function, as in the first");
    }
  }
};

// A tensor whose gradient goes to an edge.
at::Tensor source_at(const Edge& edge) {
  auto source = at::empty({0});
  torch::autograd::impl::set_gradient_edge(source, edge);
  return source;
}

std::vector<at::Generator> generators_for(const std::vector<at::Tensor>& inputs,
                                          const ActivationCheckpointOptions& options) {
  std::vector<at::Generator> found{at::detail::getDefaultCPUGenerator()};
  const auto add = [&](const at::Generator& generator) {
    for (const auto& known : found) {
      if (known == generator) return;
    }
    found.push_back(generator);
  };
  for (const auto& input : inputs) {
    if (input.defined() && input.is_cuda()) add(at::globalContext().defaultGenerator(input.device()));
  }
  for (const auto& generator : options.generators) add(generator);
  return found;
}

// Whether the call is recorded for a backward pass. Tangents and subclasses would be lost in the first run.
bool is_checkpointed(const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  return std::all_of(inputs.begin(), inputs.end(), is_not_subclass);
}

// Runs the function for the first time, and finds the tensors that it captured. If it throws, the generators
// are as before.
variable_list run_first(CheckpointedCall& call, const std::vector<at::Tensor>& inputs) {
  std::vector<Edge> own;  // to the inputs; a leaf does not keep its node alive
  variable_list leaves;
  for (const auto& input : inputs) {
    call.versions.emplace_back(input);
    call.differentiable.push_back(input.defined() && input.requires_grad());
    leaves.push_back(call.differentiable.back() ? input.detach().requires_grad_(true) : input);
    if (call.differentiable.back()) own.push_back(torch::autograd::impl::gradient_edge(leaves.back()));
  }
  const NoCastCache no_cache;
  const RecordedNodes nodes;
  variable_list outputs;
  try {
    outputs = run_function(call.function, leaves);
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK_VALUE(
          !call.versions[i].changed(), kActivationCheckpoint,
          ": expected a function that changes none of its inputs in place, but it changed input ", i);
    }
  } catch (...) {
    call.first.generators.restore();
    throw;
  }
  for (const auto& output : outputs) call.outputs.push_back(output.defined() && output.requires_grad());
  nodes.for_each_leaving_edge(outputs, [&](const Edge& edge) {
    for (const auto& of_input : own) {
      if (edge == of_input) return;
    }
    for (const auto& known : call.captured) {
      if (known.edge == edge) return;
    }
    const auto leaf = kernels::aten::leaf_of(*edge.function);
    call.captured.push_back({edge, leaf.defined() ? "a parameter of shape " + shape_string(leaf.sizes()) : "",
                             SeenVersion(leaf)});
  });
  return outputs;
}

}  // namespace

std::vector<at::Tensor> activation_checkpoint(const CheckpointedFunction& function,
                                              const std::vector<at::Tensor>& inputs,
                                              const ActivationCheckpointOptions& options) {
  TORCH_CHECK_VALUE(function, kActivationCheckpoint, ": expected a function, got none");
  for (const auto& generator : options.generators)
    check_defined(kActivationCheckpoint, "generators", generator);
  for (const auto& module : options.modules)
    TORCH_CHECK_VALUE(module, kActivationCheckpoint, ": expected modules, got an empty pointer");
  if (!is_checkpointed(inputs)) return function(inputs);

  const auto call =
      c10::make_intrusive<CheckpointedCall>(function, generators_for(inputs, options), options.modules);
  auto outputs = run_first(*call, inputs);
  variable_list sources, results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (call->differentiable[i]) sources.push_back(inputs[i]);
  }
  for (const auto& captured : call->captured) sources.push_back(source_at(captured.edge));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (call->outputs[i]) results.push_back(outputs[i] = outputs[i].detach());
  }
  if (results.empty()) return outputs;
  results = ActivationCheckpoint::apply(at::TensorList(sources), call, &inputs, &results);
  for (size_t i = 0, next = 0; i < outputs.size(); ++i) {
    if (call->outputs[i]) outputs[i] = results[next++];
  }
  return outputs;
}

at::Tensor activation_checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                                 const at::Tensor& input, const ActivationCheckpointOptions& options) {
  TORCH_CHECK_VALUE(function, kActivationCheckpoint, ": expected a function, got none");
  const CheckpointedFunction of_lists = [function](const std::vector<at::Tensor>& inputs) {
    return std::vector{function(inputs[0])};
  };
  return activation_checkpoint(of_lists, std::vector{input}, options)[0];
}

}  // namespace attentive
