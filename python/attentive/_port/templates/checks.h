// Compares a module with what Python computed: names, first weights, state dict, outputs and gradients.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <attentive/core/options.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>

namespace checks {

using File = attentive::SafetensorsFile;
using Tensors = std::vector<torch::Tensor>;
using Named = torch::OrderedDict<std::string, torch::Tensor>;

/// A new module, and its forward: `call(n, inputs)` is the n-th --inputs.
struct Made {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(size_t, const Tensors&)> call;
};

template <class Holder>
Made made(Holder module, std::vector<Tensors (*)(Holder&, const Tensors&)> calls) {
  const auto call = [module, calls](size_t n, const Tensors& inputs) mutable {
    return calls.at(n)(module, inputs);
  };
  return {module.ptr(), call};
}

struct Run {
  std::string name;
  size_t call;
  bool train;
  torch::Dtype dtype;
  bool autocast;
};

struct Case {
  std::string name;
  std::function<Made()> make;
  uint64_t seed, run_seed;  // before the constructor, and before each call
  std::vector<Run> runs;
  std::set<std::string> unseeded;  // parameters that Python leaves uninitialised
  std::set<std::string> computed;  // parameters that begin as a table, whose last bits may differ
  bool hidden_rows;                // a mask may hide every key of a row: NaN in Python, zero here
};

// Allowed differences, relative to the largest number of a tensor, or of all gradients. The two sides add up
// products in different orders, which costs some units of the last place.
constexpr double kOutput = 1e-5;
constexpr double kGradient = 2e-5;
constexpr double kFloat64 = 1e-10;
constexpr double kBFloat16 = 2e-2;  // one rounding to eight bits costs 4e-3, and some follow one another

inline int failures = 0;

inline void report(bool ok, const std::string& what, const std::string& figure = "") {
  failures += ok ? 0 : 1;
  std::printf("%-6s  %s%s%s\n", ok ? "ok" : "FAILED", what.c_str(), figure.empty() ? "" : ": ",
              figure.c_str());
}

inline std::string text(double number) {
  std::ostringstream out;
  out << number;
  return out.str();
}

inline bool has(const File& file, const std::string& name) {
  return file.tensors.count(name) + file.tensors.count(name + ":complex") > 0;
}

inline torch::Tensor get(const File& file, const std::string& name) {
  if (!has(file, name)) throw std::runtime_error("the case holds no " + name);
  return file.tensors.count(name) != 0 ? file.tensors.at(name)
                                       : torch::view_as_complex(file.tensors.at(name + ":complex"));
}

inline std::vector<std::string> names(const File& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) throw std::runtime_error("the case has no metadata " + key);
  std::istringstream lines(found->second);
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) result.push_back(line);
  return result;
}

inline torch::Tensor first(const File& file, const std::string& name) {
  for (const std::string kind : {"parameter.", "buffer."}) {
    if (has(file, kind + name)) return get(file, kind + name);
  }
  return get(file, "state." + name);
}

// Python names a tensor that several modules share once.
inline Named distinct(const Named& all) {
  Named result;
  std::set<c10::TensorImpl*> seen;
  for (const auto& item : all) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.insert(item.key(), item.value());
  }
  return result;
}

inline torch::Tensor as_double(const torch::Tensor& tensor) {
  const auto plain = tensor.detach();
  return (plain.is_complex() ? torch::view_as_real(plain) : plain).to(torch::kDouble).flatten();
}

inline double largest(const torch::Tensor& tensor) {
  const auto numbers = as_double(tensor).abs();
  const auto finite = numbers.masked_select(numbers.isfinite());
  return finite.numel() == 0 ? 0.0 : finite.max().item<double>();
}

// The largest difference; infinite where shapes or dtypes differ. NaN is equal to NaN.
inline double difference(const torch::Tensor& got, const torch::Tensor& want, bool hidden_rows = false) {
  if (!got.defined() || got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type()) {
    return std::numeric_limits<double>::infinity();
  }
  if (want.numel() == 0) return 0.0;
  const auto x = as_double(got), y = as_double(want);
  auto same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  if (hidden_rows) same = same.logical_or(y.isnan().logical_and(x.isfinite()));
  const auto off = (x - y).abs().nan_to_num(INFINITY, INFINITY).masked_fill(same, 0.0);
  return off.max().item<double>();
}

inline void note_hidden_rows(const std::string& what, const torch::Tensor& got, const torch::Tensor& want) {
  if (!got.defined() || got.sizes() != want.sizes() || !want.is_floating_point()) return;
  const auto count = want.isnan().logical_and(got.isfinite()).sum().item<int64_t>();
  if (count > 0)
    std::printf("note    %s: %lld numbers are NaN in Python only\n", what.c_str(),
                static_cast<long long>(count));
}

inline void compare_names(const std::string& what, const std::vector<std::string>& got,
                          const std::vector<std::string>& want) {
  std::string figure = std::to_string(got.size());
  for (size_t i = 0; i < std::max(got.size(), want.size()) && got != want; ++i) {
    const std::string here = i < got.size() ? got[i] : "nothing",
                      there = i < want.size() ? want[i] : "nothing";
    if (here == there) continue;
    figure = "number " + std::to_string(i) + " is " + here + ", in Python " + there;
    break;
  }
  report(got == want, what, figure);
}

inline Made seeded(const Case& about) {
  torch::manual_seed(about.seed);
  return about.make();
}

// The module as Python's run began.
inline Made prepared(const Case& about, const File& file) {
  auto made = seeded(about);
  torch::NoGradGuard no_grad;
  for (const auto& item : distinct(made.module->named_parameters()))
    item.value().copy_(first(file, item.key()));
  for (const auto& item : distinct(made.module->named_buffers())) item.value().copy_(first(file, item.key()));
  return made;
}

inline void check_state(const Case& about, const File& file) {
  const auto module = seeded(about).module;
  const auto parameters = distinct(module->named_parameters()), buffers = distinct(module->named_buffers());
  compare_names("names of the parameters", parameters.keys(), names(file, "parameters"));
  compare_names("names of the buffers", buffers.keys(), names(file, "buffers"));

  const auto version = names(file, "torch").at(0);
  const auto here = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
  const bool same_torch = version.rfind(here, 0) == 0;
  size_t equal = 0, near = 0, count = 0;
  std::string differ;
  for (const auto& item : parameters) {
    if (about.unseeded.count(item.key()) != 0 || !has(file, "parameter." + item.key())) continue;
    ++count;
    const auto want = get(file, "parameter." + item.key());
    const bool same = item.value().equal(want);
    equal += same ? 1 : 0;
    if (!same) differ += " " + item.key();
    if (!same && about.computed.count(item.key()) != 0 && item.value().sizes() == want.sizes())
      near += difference(item.value().detach(), want) <= kOutput * largest(want) ? 1 : 0;
  }
  const auto figure = std::to_string(equal) + " of " + std::to_string(count) + " bit for bit" +
                      (near == 0 ? "" : ", " + std::to_string(near) + " tables within rounding") +
                      (differ.empty() ? "" : "; not" + differ);
  if (same_torch || equal + near == count) {
    report(equal + near == count, "first weights from the seed", figure);
  } else {
    std::printf("note    first weights from the seed: %s; Python's are of PyTorch %s\n", figure.c_str(),
                version.c_str());
  }
  for (const auto& name : about.unseeded) std::printf("note    no seed gives %s\n", name.c_str());
  for (const auto& item : buffers) {
    if (!has(file, "buffer." + item.key())) continue;
    const auto want = get(file, "buffer." + item.key());
    const double off = difference(item.value(), want), allowed = kOutput * largest(want);
    report(off <= allowed, "buffer " + item.key(), text(off));
  }

  attentive::StateDict python;
  for (const auto& name : names(file, "state")) python[name] = first(file, name);
  try {
    attentive::load_state_dict(*module, python);
    const auto folder = std::filesystem::temp_directory_path();
    const auto path = folder / (about.name + "_" + std::to_string(std::random_device{}()) + ".safetensors");
    attentive::save_safetensors(path, attentive::state_dict(*module));
    const auto saved = attentive::read_state_dict(path);
    std::filesystem::remove(path);
    bool same = saved.size() == python.size();
    for (const auto& [name, tensor] : python)
      same = same && saved.count(name) != 0 && saved.at(name).equal(tensor);
    report(same, "state dict: Python's keys, loaded, saved and read back", std::to_string(saved.size()));
  } catch (const std::exception& error) {
    report(false, "state dict", error.what());
  }
}

inline void check_run(const Case& about, const File& file, const Run& run) {
  const auto key = run.name + "/";
  const auto made = prepared(about, file);
  const auto module = made.module;
  bool narrow = run.autocast || run.dtype == torch::kBFloat16;
  for (const auto& item : module->named_parameters()) narrow |= item.value().element_size() == 2;
  const bool wide = run.dtype == torch::kDouble;
  const double of_output = narrow ? kBFloat16 : wide ? kFloat64 : kOutput;
  const double of_gradient = narrow ? kBFloat16 : wide ? kFloat64 : kGradient;
  module->train(run.train);
  for (const auto& all : {module->named_parameters(), module->named_buffers()}) {
    for (const auto& item : all) {  // Module::to would convert integers too
      if (run.dtype != torch::kFloat && item.value().is_floating_point())
        item.value().set_data(item.value().to(run.dtype));
    }
  }
  Tensors inputs;
  for (size_t i = 0; has(file, key + "input." + std::to_string(i)); ++i) {
    auto input = get(file, key + "input." + std::to_string(i)).clone();
    inputs.push_back(input.requires_grad_(has(file, key + "grad." + std::to_string(i))));
  }
  const auto leaves = inputs;

  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, run.autocast);
  torch::manual_seed(about.run_seed);
  const auto outputs = made.call(run.call, inputs);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);

  torch::Tensor loss;
  for (size_t i = 0; i < outputs.size() || has(file, key + "output." + std::to_string(i)); ++i) {
    const auto what = run.name + ", output " + std::to_string(i);
    if (i >= outputs.size() || !has(file, key + "output." + std::to_string(i))) {
      report(false, what, i < outputs.size() ? "Python has none" : "missing");
      continue;
    }
    const auto want = get(file, key + "output." + std::to_string(i));
    const double scale = std::max(largest(want), 1e-30),
                 off = difference(outputs[i], want, about.hidden_rows) / scale;
    report(off <= of_output, what, text(off) + " of the largest number");
    if (about.hidden_rows) note_hidden_rows(what, outputs[i], want);
    if (!outputs[i].requires_grad()) continue;
    const auto output = outputs[i].is_complex() ? torch::view_as_real(outputs[i]) : outputs[i];
    const auto weight =
        torch::arange(output.numel(), torch::kDouble).cos().view(output.sizes()).to(output.scalar_type());
    const auto part = (output * weight).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();

  std::vector<std::pair<std::string, torch::Tensor>> wanted;
  for (size_t i = 0; i < leaves.size(); ++i) wanted.emplace_back(std::to_string(i), leaves[i]);
  for (const auto& item : distinct(module->named_parameters())) wanted.emplace_back(item.key(), item.value());
  double scale = 1e-30, worst = 0.0;
  for (const auto& [name, leaf] : wanted) {
    if (has(file, key + "grad." + name)) scale = std::max(scale, largest(get(file, key + "grad." + name)));
  }
  std::string where, lacking;
  size_t count = 0;
  for (const auto& [name, leaf] : wanted) {
    if (has(file, key + "grad." + name) != leaf.grad().defined()) {
      lacking += " " + name + (leaf.grad().defined() ? " (none in Python)" : " (none here)");
    } else if (leaf.grad().defined()) {
      ++count;
      const double off = difference(leaf.grad(), get(file, key + "grad." + name), about.hidden_rows) / scale;
      if (off > worst || where.empty()) where = " at " + name;
      worst = std::max(worst, off);
    }
  }
  report(lacking.empty(), run.name + ", which have gradients",
         std::to_string(count) + (lacking.empty() ? "" : "; not" + lacking));
  if (count > 0)
    report(worst <= of_gradient, run.name + ", gradients", text(worst) + " of the largest" + where);

  for (const auto& item : distinct(module->named_buffers())) {
    const bool changed = has(file, key + "buffer." + item.key());
    const auto want = changed ? get(file, key + "buffer." + item.key())
                              : first(file, item.key()).to(item.value().scalar_type());
    const double off = difference(item.value(), want);
    double scale = std::max(largest(want), 1e-30);
    // A running mean may be zero but for rounding; its layer divides by the root of the variance.
    if (const auto at = item.key().rfind("running_mean"); at != std::string::npos) {
      const auto variance = item.key().substr(0, at) + "running_var";
      if (has(file, key + "buffer." + variance))
        scale = std::max(scale, std::sqrt(largest(get(file, key + "buffer." + variance))));
    }
    if (const bool ok = off <= of_output * scale; changed || !ok) {
      report(ok, run.name + ", buffer " + item.key() + " afterwards", text(off));
    }
  }
}

/// Checks everything; the exit status of a program.
inline int compare(const Case& about, const std::string& path) {
  failures = 0;
#ifdef ATTENTIVE_PORT_PYTHON_DRAWS
  const attentive::DropoutStreamGuard python_draws(attentive::DropoutStream::Aten);
#endif
  try {
    const auto file = attentive::load_safetensors(path);
    check_state(about, file);
    for (const auto& run : about.runs) {
      try {
        check_run(about, file, run);
      } catch (const c10::Error& error) {
        report(false, run.name, error.what_without_backtrace());
      }
    }
  } catch (const attentive::SafetensorsError& error) {
    std::fprintf(stderr, "%s: %s\n", about.name.c_str(), error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    report(false, path, error.what());
  }
  if (failures == 0) {
    std::printf("%s: equal to Python's\n", about.name.c_str());
  } else {
    std::printf("%s: %d checks FAILED\n", about.name.c_str(), failures);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace checks
