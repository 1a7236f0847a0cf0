#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "support/peaks.h"
#include "support/timing.h"

namespace bench {

using Tensors = std::vector<at::Tensor>;

/// Whether a contender may fail in a case; the row then gives the reason.
enum class MayRefuse { Never, ForMemory, Always };

/// One way to compute a case. Its results are compared; a timed call includes freeing them.
struct Contender {
  std::string name;
  std::function<Tensors()> run;
  MayRefuse may_refuse = MayRefuse::Never;
};

/// The reason why a contender could not compute the case.
struct Refusal {
  std::string contender, why;
};

/// The error of a result: the largest difference divided by the reference's largest value.
struct Check {
  std::string against;
  double error = 0;
  double allowed = 0;

  bool passed() const { return error <= allowed; }  // NaN does not pass
};

/// One computation done in several ways. The first contender is this package, and every ratio is
/// relative to it.
struct Case {
  std::string suite;
  std::string name;
  std::string dtype;
  Limit limit = Limit::None;
  double work = 0;  ///< exact flops of the task, or bytes that must be read (Limit::Read)
  std::vector<Contender> contenders = {};
  /// Compares the first contender with a reference before anything is timed. If not set, compares it with the
  /// second contender.
  std::function<Check()> check = {};
  double allowed = 0;  ///< for the default check; 0: chosen by dtype
};

struct Timing {
  std::string contender;
  Spread seconds;
  Spread ratio;                    ///< contender / first contender, in the same round
  double fraction = 0;             ///< of the limit known when the row was timed; 0: no limit
  double fraction_same_round = 0;  ///< of the limit measured in each round; 0: not measured
  int rounds = 0;
  int calls = 0;  ///< a sample is the mean of this many calls
};

struct Row {
  std::string suite, name, dtype;
  Check check;
  double work = 0;
  Limit limit = Limit::None;
  int threads = 0;
  std::vector<Timing> timings = {};
  std::vector<Refusal> refusals = {};
};

/// One point of the growth curves.
struct GrowthPoint {
  std::string series;
  int64_t tokens = 0;
  double seconds = 0;
  double bytes = 0;
};

struct Settings {
  int threads = 2;
  double budget = 3.0;              ///< seconds of timing per case
  std::vector<std::string> dtypes;  ///< empty: all
  std::vector<std::string> cases;   ///< parts of names, of which one must match; empty: all
  at::Device device = at::kCPU;
  std::vector<int64_t> tokens;     ///< for the GPU suites; empty: their defaults
  std::vector<int64_t> head_dims;  ///< for the GPU suites; empty: their defaults
  bool quiet = false;
};

/// The name of a dtype in rows and options.
std::string type_name(at::ScalarType type);

/// Checks and times cases, prints each result immediately, and keeps the rows.
class Runner {
 public:
  Runner(Settings settings, Peaks peaks);

  /// Throws std::runtime_error, without timing anything, if the result is wrong.
  void run(Case the_case);
  void add(GrowthPoint point);

  bool wants(at::ScalarType type) const;
  /// Whether the case is selected. Call it before making the inputs, which may be large.
  bool wants(const Case& the_case) const;
  const Settings& settings() const { return settings_; }
  const Peaks& peaks() const { return peaks_; }
  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<GrowthPoint>& growth() const { return growth_; }

 private:
  std::vector<Refusal> leave_out_refusals(Case& the_case) const;
  std::vector<Timing> time(const Case& the_case);
  double sample(const Contender& contender, int calls) const;

  Settings settings_;
  Peaks peaks_;
  std::vector<Row> rows_;
  std::vector<GrowthPoint> growth_;
};

/// The error of `result` relative to `reference`, the largest over the tensors. Throws if their numbers or
/// shapes differ.
double difference(const Tensors& result, const Tensors& reference);

/// The share of the limit that `work` in `seconds` reaches; 0 without a limit.
double fraction_of(const Peak* limit, double work, double seconds);

std::string to_string(Limit limit);

}  // namespace bench
