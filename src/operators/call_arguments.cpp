#include "operators/call_arguments.h"

#include <concepts>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace attentive::operators {
namespace {

using torch::jit::Stack;

constexpr std::string_view kCausals[] = {"none", "bottom_right", "top_left"};
constexpr std::string_view kAligns[] = {"bottom_right", "top_left", "lengths"};
constexpr std::string_view kStreams[] = {"any", "aten", "counter"};
constexpr std::string_view kBackends[] = {"auto", "reference", "torch", "native"};
constexpr std::string_view kWeights[] = {"none", "clean", "dropped"};

// Three streams visit the arguments or results of an operator in the order of its schema. This one counts
// them.
struct Counter {
  size_t count = 0;

  void tensor(const at::Tensor&) { ++count; }
  void optional(const at::Tensor&) { ++count; }
  template <class T>
  void value(const T&) {
    ++count;
  }
  template <class T>
  void named(const char*, std::span<const std::string_view>, const T&) {
    ++count;
  }
};

// Takes them off a stack.
class Reader {
 public:
  Reader(std::string_view caller, Stack& stack, size_t count)
      : caller_(caller), stack_(stack), count_(count), next_(stack.size() - count) {}

  void tensor(at::Tensor& x) {
    auto& value = stack_[next_++];
    x = value.isNone() ? at::Tensor() : std::move(value).toTensor();
  }
  void optional(at::Tensor& x) { tensor(x); }
  template <class T>
  void value(T& x) {
    x = stack_[next_++].to<T>();
  }
  template <class Enum>
  void named(const char* option, std::span<const std::string_view> names, Enum& x) {
    const std::string& name = stack_[next_++].toStringRef();
    std::string all;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) {
        x = static_cast<Enum>(i);
        return;
      }
      all += (i == 0 ? "\"" : i + 1 < names.size() ? ", \"" : " or \"") + std::string(names[i]) + "\"";
    }
    TORCH_CHECK_VALUE(false, caller_, ": expected ", option, " to be ", all, ", got \"", name, "\"");
  }
  void finish() { torch::jit::drop(stack_, count_); }

 private:
  std::string_view caller_;
  Stack& stack_;
  size_t count_, next_;
};

// Puts them on a stack.
class Writer {
 public:
  explicit Writer(Stack& stack) : stack_(stack) {}

  void tensor(const at::Tensor& x) { torch::jit::push(stack_, x); }
  void optional(const at::Tensor& x) { torch::jit::push(stack_, x.defined() ? at::IValue(x) : at::IValue()); }
  template <class T>
  void value(const T& x) {
    torch::jit::push(stack_, x);
  }
  template <class Enum>
  void named(const char*, std::span<const std::string_view> names, const Enum& x) {
    torch::jit::push(stack_, std::string(names[static_cast<size_t>(x)]));
  }

 private:
  Stack& stack_;
};

// ---- The arguments that every operator of a kind has, in one order.

// Plain arrays, because the library registers its operators while its other variables are being initialised.
constexpr std::string_view kInputs = "Tensor q, Tensor k, Tensor v";
constexpr std::string_view kLengths = ", Tensor cu_seqlens_q, Tensor cu_seqlens_k";
constexpr std::string_view kMasks =
    "Tensor? keep=None, Tensor? bias=None, Tensor? key_keep=None, Tensor? key_lengths=None, "
    "Tensor? query_lengths=None, ";
constexpr std::string_view kOptions =
    "Tensor? alibi_slopes=None, Tensor? sinks=None, float? scale=None, str causal=\"none\", "
    "int? window_left=None, int? window_right=None, str align=\"bottom_right\", float? softcap=None, "
    "bool softmax_plus_one=False, float dropout_p=0.0, str dropout_stream=\"any\", Tensor? dropout_key=None, "
    "str backend=\"auto\"";
constexpr std::string_view kWhichWeights = ", str weights=\"none\"";

std::string options_text(Kind kind) {
  return kind == Kind::Padded ? fmt::format("{}{}{}", kMasks, kOptions, kWhichWeights)
                              : std::string(kOptions);
}

template <class Stream, class Call>
void visit_inputs(Kind kind, Stream& stream, Call& call) {
  for (auto* tensor : {&call.q, &call.k, &call.v}) stream.tensor(*tensor);
  if (kind == Kind::Padded) return;
  stream.tensor(call.cu_seqlens_q);
  stream.tensor(call.cu_seqlens_k);
}

template <class Stream, class Call>
void visit_options(Kind kind, Stream& stream, Call& call) {
  if (kind == Kind::Padded) {
    for (auto* mask : {&call.keep, &call.bias, &call.key_keep, &call.key_lengths, &call.query_lengths})
      stream.optional(*mask);
  }
  auto& options = call.options;
  stream.optional(call.alibi_slopes);
  stream.optional(call.sinks);
  stream.value(options.scale);
  Causal causal = options.causal;
  stream.named("causal", kCausals, causal);
  if constexpr (!std::is_const_v<Call>) options.causal = causal;
  // Not -1 by default: a package of PyTorch 2.7's AOTInductor is wrong about integers that are left out.
  const auto side = [&](auto& keys) {
    std::optional<int64_t> given;
    if (keys != Window{}.left) given = keys;
    stream.value(given);
    if constexpr (!std::is_const_v<Call>) keys = given.value_or(Window{}.left);
  };
  side(options.window.left);
  side(options.window.right);
  stream.named("align", kAligns, options.align);
  stream.value(options.softcap);
  stream.value(options.softmax_plus_one);
  stream.value(options.dropout_p);
  stream.named("dropout_stream", kStreams, options.dropout_stream);
  stream.optional(call.dropout_key);
  stream.named("backend", kBackends, options.backend);
  if (kind == Kind::Padded) stream.named("weights", kWeights, call.weights);
}

template <class Stream, class Call>
requires std::same_as<std::remove_const_t<Call>, CallArguments>
void visit(Kind kind, Stream& stream, Call& call) {
  visit_inputs(kind, stream, call);
  visit_options(kind, stream, call);
  stream.value(call.logsumexp);
  stream.value(call.for_backward);
}

template <class Stream, class Arguments>
requires std::same_as<std::remove_const_t<Arguments>, BackwardArguments>
void visit(Kind kind, Stream& stream, Arguments& arguments) {
  stream.optional(arguments.incoming.output);
  if (kind == Kind::Padded) stream.optional(arguments.incoming.weights);
  stream.optional(arguments.incoming.logsumexp);
  visit_inputs(kind, stream, arguments.call);
  stream.tensor(arguments.output);
  stream.tensor(arguments.statistics);
  visit_options(kind, stream, arguments.call);
  if (kind == Kind::Padded) stream.value(arguments.want_bias);
  stream.value(arguments.want_alibi_slopes);
  stream.value(arguments.want_sinks);
}

template <class Stream, class R>
requires std::same_as<std::remove_const_t<R>, Results>
void visit(Kind kind, Stream& stream, R& results) {
  stream.tensor(results.output);
  if (kind == Kind::Padded) stream.tensor(results.weights);
  for (auto* tensor : {&results.logsumexp, &results.statistics}) stream.tensor(*tensor);
}

template <class Stream, class G>
requires std::same_as<std::remove_const_t<G>, Gradients>
void visit(Kind kind, Stream& stream, G& gradients) {
  for (auto* tensor : {&gradients.q, &gradients.k, &gradients.v}) stream.tensor(*tensor);
  if (kind == Kind::Padded) stream.tensor(gradients.bias);
  stream.tensor(gradients.alibi_slopes);
  stream.tensor(gradients.sinks);
}

// Reads what visit_all(stream, x) visits.
template <class T, class VisitAll>
T read(std::string_view caller, Stack& stack, const VisitAll& visit_all) {
  T x;
  Counter counter;
  visit_all(counter, x);
  Reader from(caller, stack, counter.count);
  visit_all(from, x);
  from.finish();
  return x;
}

template <class T>
T pop(Kind kind, std::string_view caller, Stack& stack) {
  return read<T>(caller, stack, [&](auto& stream, T& x) { visit(kind, stream, x); });
}

template <class T>
void push_all(Kind kind, const T& x, Stack& stack) {
  Writer to(stack);
  visit(kind, to, x);
}

// The stream that every backend can compute from one key.
CallArguments with_stream(CallArguments call) {
  auto& stream = call.options.dropout_stream;
  if (stream == DropoutStream::Any) stream = DropoutStream::Counter;
  return call;
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
  if (query_lengths.defined()) extras.mask &= Mask::query_lengths(query_lengths);
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
      "(Tensor output, {}Tensor logsumexp, Tensor statistics)",
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
  return with_stream(pop<CallArguments>(kind, name_of(kind), stack));
}

CallArguments pop_explained(Stack& stack) {
  return with_stream(read<CallArguments>("explain", stack, [](auto& stream, CallArguments& call) {
    visit_inputs(Kind::Padded, stream, call);
    visit_options(Kind::Padded, stream, call);
    stream.value(call.logsumexp);
  }));
}

BackwardArguments pop_backward(Kind kind, Stack& stack) {
  auto arguments = pop<BackwardArguments>(kind, backward_name(kind), stack);
  arguments.call = with_stream(std::move(arguments.call));
  return arguments;
}

void push(Kind kind, const CallArguments& call, Stack& stack) {
  push_all(kind, call, stack);
}
void push(Kind kind, const BackwardArguments& arguments, Stack& stack) {
  push_all(kind, arguments, stack);
}
void push(Kind kind, const Results& results, Stack& stack) {
  push_all(kind, results, stack);
}
void push(Kind kind, const Gradients& gradients, Stack& stack) {
  push_all(kind, gradients, stack);
}

Results pop_results(Kind kind, Stack& stack) {
  return pop<Results>(kind, name_of(kind), stack);
}
Gradients pop_gradients(Kind kind, Stack& stack) {
  return pop<Gradients>(kind, backward_name(kind), stack);
}

}  // namespace attentive::operators
