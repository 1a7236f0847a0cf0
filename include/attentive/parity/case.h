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
#include <attentive/io/safetensors.h>

namespace attentive {

/// A parity case that cannot be run: a bad file, an unknown module, option or input, or a missing tensor.
/// The message reads `<case>: <reason>`.
class CaseError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// A parity case: a Python attention module, one call of it, and what PyTorch answered, all in one
/// safetensors file.
///
/// Metadata, all strings: `module` (the Python name), `options` and `call` (JSON objects of the constructor's
/// and the call's keyword arguments; null means Python's default), and optionally `train` and `grads` ("true"
/// unless they say "false"), `autocast` ("bfloat16" or "float16"), `init_seed`, `forward_seed` and
/// `dropout_path`. Other metadata is kept and ignored.
/// Tensors: `state.<key>`, `input.<argument>`, `expected.output`, `expected.weights`,
/// `grad.input.<argument>`, `grad.state.<key>`; `input.grad_output` weighs the output in the loss.
struct Case {
  std::string name;  ///< the file's path, or what the messages should call the case
  std::map<std::string, std::string> metadata;  ///< as in the file
  std::string module;
  std::string options = "{}";
  std::string call = "{}";
  bool train = true;
  bool grads = true;                       ///< false: the call runs where gradients are switched off
  std::optional<at::ScalarType> autocast;  ///< the call runs under autocast of this dtype
  std::optional<uint64_t> init_seed;
  std::optional<uint64_t> forward_seed;
  std::string dropout_path;  ///< CPU stream the dropout came from: "default", "intel_mkl" or ""
  std::map<std::string, at::Tensor> state;   ///< by state-dict key
  std::map<std::string, at::Tensor> inputs;  ///< by argument name, without grad_output
  at::Tensor grad_output;                    ///< undefined: the loss is the plain sum
  at::Tensor expected_output;
  at::Tensor expected_weights;  ///< undefined where the class returns none
  std::map<std::string, at::Tensor> input_gradients;
  std::map<std::string, at::Tensor> state_gradients;
};

/// Reads a case from a file.
/// Throws SafetensorsError for a bad file and CaseError for a file that is no case.
///
///   auto report = attentive::run_case(attentive::read_case("mha.safetensors"));
Case read_case(const std::filesystem::path& path);

/// The same from a file that is already in memory; `name` stands in messages.
Case make_case(SafetensorsFile file, std::string name);

struct CaseSettings {
  /// In place of the tolerances of the case's dtype, for outputs and gradients alike.
  std::optional<double> atol = std::nullopt;
  std::optional<double> rtol = std::nullopt;
  at::Device device = at::kCPU;
  /// Other than `Auto`: forced, so that a call which the backend cannot express is an error. Preferred only
  /// in the modules of `torch.nn`, which have no such option.
  Backend backend = Backend::Auto;
};

/// How far the two sides of a comparison are from float64 arithmetic on the same numbers: max|side - exact|.
struct ExactDistances {
  double ours = 0.0;
  double expected = 0.0;
};

/// One compared tensor. It passes if difference = max|got - want| <= tolerance = atol + rtol * max|want|.
struct TensorComparison {
  /// As in the file, such as "grad.input.x"; "init.<key>" for weights drawn from `init_seed`.
  std::string name;
  std::vector<int64_t> shape;
  double difference = 0.0;  ///< NaN or infinite where a number is, or where the shapes differ
  double tolerance = 0.0;
  bool passed = false;
  std::string note;  ///< what a reader has to know, such as a shape that differs, or whose error it is
  /// Where a tensor of the case differs: of this one.
  std::optional<ExactDistances> exact = std::nullopt;
};

struct CaseReport {
  std::string name;
  std::string module;
  at::ScalarType dtype = at::kFloat;  ///< of the arithmetic; under autocast, that of its products
  bool autocast = false;
  std::vector<TensorComparison> tensors;
  /// Why this machine cannot repeat the case (dropout of another random stream); empty: it ran.
  std::string skipped;

  bool passed() const;
};

/// Builds the C++ module of a case, runs its call forward and backward, and compares every tensor in float64.
///
/// Arithmetic runs in the dtype of `state.*`, else of the inputs, or as autocast of the case's dtype has it;
/// a floating mask may have another one. The default tolerances are those of `tolerance_of`; for gradients
/// max|want| is taken over all gradients of the case. Seeded weights must agree as `same_draw` says. NaN
/// never passes, except where `expected` holds NaN for a query without keys: there ours must be zero weights
/// and zero context. The default CPU generator is left as it was.
///
/// If a tensor differs and the arithmetic is narrower than float64, the case runs once more in float64 on the
/// reference backend: `exact` and `note` then say whose error it is. The verdict stays.
///
/// Throws CaseError with the reason if the case cannot be run, which includes a module that refuses its
/// arguments. Memory: two copies of the case's tensors and what the module needs with autograd on.
///
///   if (!attentive::run_case(attentive::read_case(path)).passed()) return 1;
CaseReport run_case(const Case& test_case, const CaseSettings& settings = {});

/// The Python names that `Case::module` may have, sorted.
std::vector<std::string> case_modules();

}  // namespace attentive
