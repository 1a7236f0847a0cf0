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

namespace attentive {

/// Thrown for a parity case that cannot be run: a bad file, an unknown module, option or input, or a missing
/// tensor. The message reads `<case>: <reason>`.
class CaseError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// A parity case: a Python attention module, one call of it, and PyTorch's results, all in one safetensors
/// file.
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
  std::string name;                             ///< the file's path, or another name for messages
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

/// Reads a case from a file.
/// Throws SafetensorsError for a bad file and CaseError for a file that is not a case.
///
///   auto report = attentive::run_case(attentive::read_case("mha.safetensors"));
Case read_case(const std::filesystem::path& path);

/// Makes a case from a file that is already in memory; `name` appears in messages.
Case make_case(SafetensorsFile file, std::string name);

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

/// The Python names that `Case::module` may have, sorted.
std::vector<std::string> case_modules();

}  // namespace attentive
