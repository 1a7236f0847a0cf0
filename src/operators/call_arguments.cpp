#include "operators/call_arguments.h"

#include <span>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace attentive::operators {
namespace {

using torch::jit::Stack;

constexpr std::string_view kCausals[] = {"none", "bottom_right", "top_left"};
constexpr std::string_view kStreams[] = {"any", "aten", "counter"};
constexpr std::string_view kBackends[] = {"auto", "reference", "torch", "native"};
constexpr std::string_view kWeights[] = {"none", "clean", "dropped"};

template <class Enum>
Enum named(std::string_view caller, const char* option, std::span<const std::string_view> names,
           const std::string& name) {
  std::string all;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    all += (i == 0 ? "\"" : i + 1 < names.size() ? ", \"" : " or \"") + std::string(names[i]) + "\"";
  }
  TORCH_CHECK_VALUE(false, caller, ": expected ", option, " to be ", all, ", got \"", name, "\"");
}

template <class Enum>
std::string text_of(std::span<const std::string_view> names, Enum value) {
  return std::string(names[static_cast<size_t>(value)]);
}

// Takes arguments off a stack from the first one on.
class Reader {
 public:
  Reader(std::string_view caller, Stack& stack, size_t arguments)
      : caller_(caller), stack_(stack), next_(stack.size() - arguments) {}

  at::Tensor tensor() {
    auto& value = stack_[next_++];
    return value.isNone() ? at::Tensor() : std::move(value).toTensor();
  }
  std::optional<double> optional_number() { return stack_[next_++].toOptional<double>(); }
  double number() { return stack_[next_++].toDouble(); }
  int64_t integer() { return stack_[next_++].toInt(); }
  bool flag() { return stack_[next_++].toBool(); }
  template <class Enum>
  Enum named(const char* option, std::span<const std::string_view> names) {
    return operators::named<Enum>(caller_, option, names, stack_[next_++].toStringRef());
  }
  void finish(size_t arguments) { torch::jit::drop(stack_, arguments); }

 private:
  std::string_view caller_;
  Stack& stack_;
  size_t next_;
};

at::IValue optional_tensor(const at::Tensor& x) {
  return x.defined() ? at::IValue(x) : at::IValue();
}

// ---- The arguments that every operator of a kind has, in one order.

// Plain arrays, because the library registers its operators while its other variables are being initialised.
constexpr std::string_view kInputs = "Tensor q, Tensor k, Tensor v";
constexpr std::string_view kLengths = ", Tensor cu_seqlens_q, Tensor cu_seqlens_k";
constexpr std::string_view kMasks =
    "Tensor? keep=None, Tensor? bias=None, Tensor? key_keep=None, Tensor? key_lengths=None, ";
constexpr std::string_view kOptions =
    "Tensor? alibi_slopes=None, Tensor? sinks=None, float? scale=None, str causal=\"none\", "
    "int window_left=-1, int window_right=-1, float? softcap=None, bool softmax_plus_one=False, "
    "float dropout_p=0.0, str dropout_stream=\"any\", Tensor? dropout_key=None, str backend=\"auto\"";
constexpr std::string_view kWhichWeights = ", str weights=\"none\"";
constexpr size_t kOptionCount = 12;

std::string options_text(Kind kind) {
  return kind == Kind::Padded ? fmt::format("{}{}{}", kMasks, kOptions, kWhichWeights)
                              : std::string(kOptions);
}
size_t option_count(Kind kind) {
  return kind == Kind::Padded ? 4 + kOptionCount + 1 : kOptionCount;
}

void read_inputs(Kind kind, Reader& from, CallArguments& call) {
  call.q = from.tensor();
  call.k = from.tensor();
  call.v = from.tensor();
  if (kind == Kind::Padded) return;
  call.cu_seqlens_q = from.tensor();
  call.cu_seqlens_k = from.tensor();
}
size_t input_count(Kind kind) {
  return kind == Kind::Padded ? 3 : 5;
}

void read_options(Kind kind, Reader& from, CallArguments& call) {
  if (kind == Kind::Padded) {
    call.keep = from.tensor();
    call.bias = from.tensor();
    call.key_keep = from.tensor();
    call.key_lengths = from.tensor();
  }
  call.alibi_slopes = from.tensor();
  call.sinks = from.tensor();
  auto& options = call.options;
  options.scale = from.optional_number();
  options.causal = from.named<Causal>("causal", kCausals);
  options.window.left = from.integer();
  options.window.right = from.integer();
  options.softcap = from.optional_number();
  options.softmax_plus_one = from.flag();
  options.dropout_p = from.number();
  // The stream that every backend can compute from one key.
  const auto stream = from.named<DropoutStream>("dropout_stream", kStreams);
  options.dropout_stream = stream == DropoutStream::Any ? DropoutStream::Counter : stream;
  call.dropout_key = from.tensor();
  options.backend = from.named<Backend>("backend", kBackends);
  if (kind == Kind::Padded) call.weights = from.named<Weights>("weights", kWeights);
}

void push_inputs(Kind kind, const CallArguments& call, Stack& stack) {
  torch::jit::push(stack, call.q, call.k, call.v);
  if (kind == Kind::Packed) torch::jit::push(stack, call.cu_seqlens_q, call.cu_seqlens_k);
}

void push_options(Kind kind, const CallArguments& call, Stack& stack) {
  if (kind == Kind::Padded) {
    torch::jit::push(stack, optional_tensor(call.keep), optional_tensor(call.bias),
                     optional_tensor(call.key_keep), optional_tensor(call.key_lengths));
  }
  const auto& options = call.options;
  torch::jit::push(stack, optional_tensor(call.alibi_slopes), optional_tensor(call.sinks), options.scale,
                   text_of(kCausals, static_cast<Causal>(options.causal)), options.window.left,
                   options.window.right, options.softcap, options.softmax_plus_one, options.dropout_p,
                   text_of(kStreams, options.dropout_stream), optional_tensor(call.dropout_key),
                   text_of(kBackends, options.backend));
  if (kind == Kind::Padded) torch::jit::push(stack, text_of(kWeights, call.weights));
}

}  // namespace

const char* name_of(Kind kind) {
  return kind == Kind::Padded ? "attention" : "attention_varlen";
}

AttentionExtras CallArguments::extras() const {
  AttentionExtras extras;
  if (keep.defined()) extras.mask &= Mask::keep(keep);
  if (bias.defined()) extras.mask &= Mask::bias(bias);
  if (key_keep.defined()) extras.mask &= Mask::key_keep(key_keep);
  if (key_lengths.defined()) extras.mask &= Mask::key_lengths(key_lengths);
  extras.alibi_slopes = alibi_slopes;
  extras.sinks = sinks;
  extras.weights = weights;
  extras.logsumexp = logsumexp;
  return extras;
}

std::string forward_schema(Kind kind) {
  const bool packed = kind == Kind::Packed;
  return fmt::format(
      "{}({}{}, *, {}, bool logsumexp=False, bool for_backward=False) -> "
      "(Tensor output, {}Tensor logsumexp, Tensor statistics, Tensor dropout_key)",
      name_of(kind), kInputs, packed ? kLengths : "", options_text(kind), packed ? "" : "Tensor weights, ");
}

std::string backward_schema(Kind kind) {
  const bool packed = kind == Kind::Packed;
  return fmt::format(
      "{}_backward(Tensor? grad_output, {}Tensor? grad_logsumexp, {}{}, Tensor output, Tensor statistics, "
      "*, {}{}, bool want_alibi_slopes=False, bool want_sinks=False) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v, {}Tensor grad_alibi_slopes, Tensor grad_sinks)",
      name_of(kind), packed ? "" : "Tensor? grad_weights, ", kInputs, packed ? kLengths : "",
      options_text(kind), packed ? "" : ", bool want_bias=False", packed ? "" : "Tensor grad_bias, ");
}

std::string explain_schema() {
  return fmt::format(
      "explain({}, *, {}, bool logsumexp=False) -> "
      "(str chosen, str[] backends, bool[] available, str[] reasons, str[] notes)",
      kInputs, options_text(Kind::Padded));
}

const char* backward_name(Kind kind) {
  return kind == Kind::Padded ? "attentive::attention_backward" : "attentive::attention_varlen_backward";
}

CallArguments pop_call(Kind kind, Stack& stack) {
  const size_t count = input_count(kind) + option_count(kind) + 2;
  Reader from(name_of(kind), stack, count);
  CallArguments call;
  read_inputs(kind, from, call);
  read_options(kind, from, call);
  call.logsumexp = from.flag();
  call.for_backward = from.flag();
  from.finish(count);
  return call;
}

CallArguments pop_explained(Stack& stack) {
  const size_t count = input_count(Kind::Padded) + option_count(Kind::Padded) + 1;
  Reader from("explain", stack, count);
  CallArguments call;
  read_inputs(Kind::Padded, from, call);
  read_options(Kind::Padded, from, call);
  call.logsumexp = from.flag();
  from.finish(count);
  return call;
}

BackwardArguments pop_backward(Kind kind, Stack& stack) {
  const bool padded = kind == Kind::Padded;
  const size_t count = (padded ? 3 : 2) + input_count(kind) + 2 + option_count(kind) + (padded ? 3 : 2);
  Reader from(backward_name(kind), stack, count);
  BackwardArguments arguments;
  arguments.incoming.output = from.tensor();
  if (padded) arguments.incoming.weights = from.tensor();
  arguments.incoming.logsumexp = from.tensor();
  read_inputs(kind, from, arguments.call);
  arguments.output = from.tensor();
  arguments.statistics = from.tensor();
  read_options(kind, from, arguments.call);
  if (padded) arguments.want_bias = from.flag();
  arguments.want_alibi_slopes = from.flag();
  arguments.want_sinks = from.flag();
  from.finish(count);
  return arguments;
}

void push(Kind kind, const CallArguments& call, Stack& stack) {
  push_inputs(kind, call, stack);
  push_options(kind, call, stack);
  torch::jit::push(stack, call.logsumexp, call.for_backward);
}

void push(Kind kind, const BackwardArguments& arguments, Stack& stack) {
  torch::jit::push(stack, optional_tensor(arguments.incoming.output));
  if (kind == Kind::Padded) torch::jit::push(stack, optional_tensor(arguments.incoming.weights));
  torch::jit::push(stack, optional_tensor(arguments.incoming.logsumexp));
  push_inputs(kind, arguments.call, stack);
  torch::jit::push(stack, arguments.output, arguments.statistics);
  push_options(kind, arguments.call, stack);
  if (kind == Kind::Padded) torch::jit::push(stack, arguments.want_bias);
  torch::jit::push(stack, arguments.want_alibi_slopes, arguments.want_sinks);
}

void push(Kind kind, const Results& results, Stack& stack) {
  torch::jit::push(stack, results.output);
  if (kind == Kind::Padded) torch::jit::push(stack, results.weights);
  torch::jit::push(stack, results.logsumexp, results.statistics, results.dropout_key);
}

void push(Kind kind, const Gradients& gradients, Stack& stack) {
  torch::jit::push(stack, gradients.q, gradients.k, gradients.v);
  if (kind == Kind::Padded) torch::jit::push(stack, gradients.bias);
  torch::jit::push(stack, gradients.alibi_slopes, gradients.sinks);
}

Results pop_results(Kind kind, Stack& stack) {
  Results results;
  results.dropout_key = torch::jit::pop(stack).toTensor();
  results.statistics = torch::jit::pop(stack).toTensor();
  results.logsumexp = torch::jit::pop(stack).toTensor();
  if (kind == Kind::Padded) results.weights = torch::jit::pop(stack).toTensor();
  results.output = torch::jit::pop(stack).toTensor();
  return results;
}

Gradients pop_gradients(Kind kind, Stack& stack) {
  Gradients gradients;
  gradients.sinks = torch::jit::pop(stack).toTensor();
  gradients.alibi_slopes = torch::jit::pop(stack).toTensor();
  if (kind == Kind::Padded) gradients.bias = torch::jit::pop(stack).toTensor();
  gradients.v = torch::jit::pop(stack).toTensor();
  gradients.k = torch::jit::pop(stack).toTensor();
  gradients.q = torch::jit::pop(stack).toTensor();
  return gradients;
}

}  // namespace attentive::operators
