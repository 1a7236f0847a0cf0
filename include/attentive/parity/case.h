#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <attentive/core/options.h>
#include <attentive/files/safetensors.h>
#include <attentive/functional/attention_recorder.h>

namespace attentive {

/// Thrown for a parity case that cannot be run: a bad file, an unknown case, module, option or input, or a
/// missing tensor. The message reads `<case>: <reason>`.
class CaseError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// A parity case: a Python attention module, one call of it, and PyTorch's results. A safetensors file holds
/// one case, or is a bundle of many: its tensors are then named `<case>/<tensor>` and its metadata
/// `<case>/<key>`.
///
/// Metadata, all strings; other metadata is kept and ignored:
///   module                   the Python name
///   options, call            JSON objects with the keyword arguments of the constructor and of the call;
///                            null means Python's default
///   train, grads             optional, "true" unless they are "false"
///   autocast                 optional, "bfloat16" or "float16"
///   init_seed, forward_seed  optional
///   dropout_path             optional, the CPU stream from which dropout was drawn
///
/// Tensors:
///   state.<key>, input.<argument>
///   expected.output, expected.weights
///   grad.input.<argument>, grad.state.<key>
///   input.grad_output        weighs the output in the loss
struct Case {
  std::string name;                             ///< `FILE` or `FILE#case`, or another name for messages
  std::map<std::string, std::string> metadata;  ///< as in the file
  std::string module;
  std::string options = "{}";
  std::string call = "{}";
  bool train = true;
  bool grads = true;                       ///< false: the call runs with gradients disabled
  std::optional<at::ScalarType> autocast;  ///< the call runs under autocast of this dtype
  std::optional<uint64_t> init_seed;
  std::optional<uint64_t> forward_seed;
  std::string dropout_path;  ///< the CPU random stream of the dropout masks: "default", "intel_mkl" or ""
  std::map<std::string, at::Tensor> state;   ///< by state-dict key
  std::map<std::string, at::Tensor> inputs;  ///< by argument name, without grad_output
  at::Tensor grad_output;                    ///< undefined: the loss is the plain sum
  at::Tensor expected_output;
  at::Tensor expected_weights;  ///< undefined if the class returns none
  std::map<std::string, at::Tensor> input_gradients;
  std::map<std::string, at::Tensor> state_gradients;
};

/// The contents of the cases at `place`, for make_case, by their names: of `FILE` with one case under "FILE";
/// of a bundle `FILE`, each of its cases under "FILE#case"; of `FILE#case`, that one. An existing file whose
/// name contains '#' is a `FILE`.
/// Throws SafetensorsError for a bad file, and CaseError for an unknown case, a bundle's tensor or metadata
/// that belongs to no case, and a file without cases.
/// Memory: the file's tensors, also if one case is chosen.
std::map<std::string, SafetensorsFile> load_cases(const std::filesystem::path& place);

/// Makes a case from its contents; `name` appears in messages.
Case make_case(SafetensorsFile file, std::string name);

/// Reads the only case at `place`, as load_cases reads it.
/// Throws SafetensorsError for a bad file and CaseError for a file that is not a case, or that holds several.
///
///   auto report = attentive::run_case(attentive::read_case("mha.safetensors"));
Case read_case(const std::filesystem::path& place);

struct CaseSettings {
  /// If set, replaces the tolerances of the case's dtype, for outputs and gradients alike.
  std::optional<double> atol = std::nullopt;
  std::optional<double> rtol = std::nullopt;
  at::Device device = at::kCPU;
  /// The backend to use. One other than `Auto` is forced, so that a call which it cannot express is an error;
  /// in the modules of `torch.nn`, which have no such option, it is only preferred.
  Backend backend = Backend::Auto;
};

/// How far the two sides of a comparison are from float64 arithmetic on the same numbers: max|side - exact|.
struct ExactDistances {
  double actual = 0.0;
  double expected = 0.0;
};

/// One compared tensor. It passes if difference = max|got - want| <= tolerance = atol + rtol * max|want|.
struct TensorComparison {
  /// The name in the file, such as "grad.input.x", or "init.<key>" for weights drawn from `init_seed`.
  std::string name;
  std::vector<int64_t> shape;
  double difference = 0.0;  ///< NaN or infinite if a value is, or if the shapes differ
  double tolerance = 0.0;
  bool passed = false;
  std::string note;  ///< remarks for the reader, such as a shape that differs, or which side's error it is
  /// The distances of this tensor, if any tensor of the case differs.
  std::optional<ExactDistances> exact = std::nullopt;
};

struct CaseReport {
  std::string name;
  std::string module;
  at::ScalarType dtype = at::kFloat;  ///< of the arithmetic; under autocast, of the matrix products
  bool autocast = false;
  std::vector<TensorComparison> tensors;
  /// The reason why this machine cannot repeat the case (its dropout uses another random stream); empty if it
  /// ran.
  std::string skipped;

  bool passed() const;
};

/// Builds the C++ module of a case, runs its call forward and backward, and compares every tensor in float64.
///
/// Arithmetic runs in the dtype of `state.*`, or of the inputs if there is no state, or under autocast of the
/// case's dtype; a floating-point mask may have another dtype. The default tolerances are those of
/// `tolerance_of`; for gradients, max|want| is taken over all gradients of the case. Weights drawn from a
/// seed must agree as `same_draw` requires. NaN never passes, with one exception: if `expected` holds NaN for
/// a query without keys, this package must give zero weights and a zero context. The default CPU generator is
/// left unchanged.
///
/// If a tensor differs and the arithmetic is narrower than float64, the case is also run in float64 on the
/// reference backend; `exact` and `note` then say which side has the larger error. The verdict does not
/// change.
///
/// Throws CaseError with the reason if the case cannot be run, for instance because the module refuses its
/// arguments.
/// Memory: two copies of the case's tensors, and whatever the module needs with autograd enabled.
///
///   if (!attentive::run_case(attentive::read_case(path)).passed()) return 1;
CaseReport run_case(const Case& test_case, const CaseSettings& settings = {});

/// Returns the attention calls of a case: builds its C++ module with the file's weights and records its
/// calls, without dropout and gradients. Paths are those inside the module, "" for the module itself; for a
/// case without a module (a function), they are "call 0", "call 1" and so on. The default CPU generator is
/// left unchanged.
///
/// Throws CaseError with the reason if the case cannot be run or the recorder refuses `options`.
/// Memory: two copies of the case's tensors, and what the recorder keeps.
///
///   auto calls = attentive::case_attention(attentive::read_case("mha.safetensors"));
std::vector<RecordedAttention> case_attention(const Case& test_case,
                                              const AttentionRecorderOptions& options = {},
                                              const CaseSettings& settings = {});

/// The Python names that `Case::module` may have, sorted.
std::vector<std::string> case_modules();

}  // namespace attentive
