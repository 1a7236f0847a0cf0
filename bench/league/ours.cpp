// This package as a contender of the league: bench/league/run.py.
//
// Reads one JSON object per line from standard input and answers each with one. An exception becomes an
// answer with the field "refused".

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <attentive/functional/attention.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>
#include <attentive/score/score_mod.h>

#include "common/run_main.h"
#include "support/machine.h"

namespace {

using namespace attentive;
using Json = nlohmann::json;

// The functions that answer a line of the protocol (bench/README.md), by the name in its field "do".
using Commands = std::map<std::string, std::function<Json(const Json&)>>;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Attention alone: one call on tensors that lie in files, so that every contender computes on equal numbers.

namespace fs = std::filesystem;

constexpr int64_t kHeads = 12, kHeadDim = 64;
constexpr double kSoftcap = 20.0;
constexpr double kSample = 0.02;  // seconds; a sample is the mean of as many calls as fill it

void write(const fs::path& path, const at::Tensor& numbers) {
  const auto kept = numbers.to(at::kFloat).contiguous();
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(kept.const_data_ptr()), static_cast<std::streamsize>(kept.nbytes()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

at::Tensor read(const fs::path& path, at::IntArrayRef sizes) {
  auto numbers = at::empty(sizes, at::kFloat);
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(numbers.data_ptr()), static_cast<std::streamsize>(numbers.nbytes()));
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return numbers;
}

at::ScalarType type_of(const Json& command) {
  return command.at("dtype") == "bf16" ? at::kBFloat16 : at::kFloat;
}

// The definition in float64, one head at a time.
at::Tensor expected(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::string& variant,
                    const at::Tensor& slopes, const at::Tensor& table) {
  const int64_t tokens = q.size(-2);
  const auto distance = at::arange(tokens).unsqueeze(1) - at::arange(tokens);
  auto result = at::empty_like(q);
  for (int64_t head = 0; head < kHeads; ++head) {
    auto scores = at::matmul(q[0][head], k[0][head].t()) / std::sqrt(static_cast<double>(kHeadDim));
    if (variant == "softcap") scores = at::tanh(scores / kSoftcap) * kSoftcap;
    if (variant == "ALiBi") scores = scores - slopes[head].to(at::kDouble) * distance.abs();
    if (variant == "relative bias") scores = scores + table[head].index({distance + tokens});
    if (variant != "full") scores.masked_fill_(distance < 0, -std::numeric_limits<double>::infinity());
    result[0][head] = at::matmul(at::softmax(scores, -1), v[0][head]);
  }
  return result;
}

Json write_inputs(const Json& command) {
  const fs::path folder = command.at("folder").get<std::string>();
  const int64_t tokens = command.at("tokens");
  const auto type = type_of(command);
  at::manual_seed(20240);
  const auto draw = [&] { return at::randn({1, kHeads, tokens, kHeadDim}).to(type).to(at::kDouble); };
  const auto q = draw(), k = draw(), v = draw();
  const auto slopes = alibi_slopes(kHeads), table = at::randn({kHeads, 2 * tokens});
  const std::pair<const char*, at::Tensor> all[] = {
      {"q", q},         {"k", k},
      {"v", v},         {"slopes", slopes},
      {"table", table}, {"expected", expected(q, k, v, command.at("variant"), slopes, table)}};
  for (const auto& [name, numbers] : all) write(folder / (std::string(name) + ".bin"), numbers);
  return {{"heads", kHeads}, {"head_dim", kHeadDim}};
}

using Call = std::function<at::Tensor()>;

// The call of this package: with a score function, or with the option that says the same.
Call call_of(const Json& command) {
  const fs::path folder = command.at("folder").get<std::string>();
  const std::string variant = command.at("variant");
  const int64_t tokens = command.at("tokens");
  const auto type = type_of(command);
  const auto input = [&](const char* name) {
    return read(folder / name, {1, kHeads, tokens, kHeadDim}).to(type);
  };
  const auto q = input("q.bin"), k = input("k.bin"), v = input("v.bin");
  const auto slopes = read(folder / "slopes.bin", {kHeads});
  const auto table = read(folder / "table.bin", {kHeads, 2 * tokens});
  const bool own = command.at("way") == "attentive, score function";
  AttentionOptions options;
  AttentionExtras extras;
  if (variant != "full") options.causal = Causal::BottomRight;
  if (own) {
    const auto slope = captured(slopes), number = captured(table);
    if (variant == "ALiBi") {
      extras.score =
          score_mod([=](auto s, auto pair) { return s - slope(pair.head) * (pair.query - pair.key); });
    } else if (variant == "softcap") {
      extras.score = score_mod([](auto s, auto) { return 20.0f * tanh(s / 20.0f); });
    } else if (variant == "relative bias") {
      extras.score = score_mod(
          [=](auto s, auto pair) { return s + number(pair.head, pair.query - pair.key + pair.keys); });
    } else {
      throw std::invalid_argument("no score function is needed for " + variant);
    }
  } else if (variant == "ALiBi") {
    extras.alibi_slopes = slopes;
  } else if (variant == "softcap") {
    options.softcap = kSoftcap;
  } else if (variant == "relative bias") {
    const auto distance = at::arange(tokens).unsqueeze(1) - at::arange(tokens) + tokens;
    extras.mask = Mask::per_head(Mask::bias(table.index({at::indexing::Slice(), distance}).contiguous()));
  }
  return [=] { return attention(q, k, v, options, extras).output; };
}

struct Prepared {
  Call call;
  int64_t calls = 1;
};

double seconds_of(const Call& call, int64_t calls) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  return seconds_since(start) / static_cast<double>(calls);
}

Json prepare(Prepared& prepared, const Json& command) {
  prepared.call = call_of(command);
  const auto result = prepared.call().to(at::kFloat);
  const auto right = read(fs::path(command.at("folder").get<std::string>()) / "expected.bin", result.sizes());
  const double once = seconds_of(prepared.call, 1);
  prepared.calls = std::max<int64_t>(1, std::llround(kSample / once));
  return {{"error", (result - right).abs().max().item<double>() / right.abs().max().item<double>()}};
}

Commands attention_commands() {
  const auto prepared = std::make_shared<std::map<std::string, Prepared>>();
  return {{"inputs", write_inputs},
          {"prepare", [=](const Json& command) { return prepare((*prepared)[command.at("way")], command); }},
          {"sample", [=](const Json& command) -> Json {
             const at::NoGradGuard no_grad;
             const auto& one = prepared->at(command.at("way"));
             seconds_of(one.call, one.calls);  // wakes its threads
             return {{"seconds", seconds_of(one.call, one.calls)}};
           }}};
}

// Whole models: a folder that Python saved, continued greedily.

using Ids = std::vector<int64_t>;

struct Loaded {
  std::function<Ids(const Ids&, const GenerateOptions&)> generated;
  std::function<at::Tensor(const at::Tensor&)> logits;
};

at::Tensor last_logits(GPT& model, const at::Tensor& ids) {
  return model->forward(ids, Logits::Last);
}

at::Tensor last_logits(Llama& model, const at::Tensor& ids) {
  return model->forward(ids, {}, Logits::Last);
}

template <class Model>
Loaded loaded(ModelFolder&& folder, const PretrainedOptions& options) {
  auto model = load_pretrained<Model>(std::move(folder), options);
  return {[model](const Ids& prompt, const GenerateOptions& how) mutable {
            return generate(*model, prompt, how);
          },
          [model](const at::Tensor& ids) mutable {
            const at::NoGradGuard no_grad;
            return last_logits(model, ids);
          }};
}

Json load(Loaded& model, const Json& command) {
  const auto start = Clock::now();
  const PretrainedOptions options{.dtype = command.at("dtype") == "bf16" ? at::kBFloat16 : at::kFloat};
  auto folder = read_model_folder(command.at("folder").get<std::string>());
  model = pretrained_model(folder) == GPTImpl::kName ? loaded<GPT>(std::move(folder), options)
                                                     : loaded<Llama>(std::move(folder), options);
  return {{"seconds", seconds_since(start)}};
}

// The time to the first token, which includes the prompt, and the mean time of the later ones.
Json continued(const Loaded& model, const Json& command) {
  std::vector<double> times;
  const auto start = Clock::now();
  const auto ids = model.generated(
      command.at("prompt"),
      {.max_new_tokens = command.at("tokens"), .sampling = {.temperature = 0}, .on_token = [&](int64_t) {
         times.push_back(seconds_since(start));
         return true;
       }});
  return {{"ids", ids},
          {"first_s", times.front()},
          {"token_s", (times.back() - times.front()) / static_cast<double>(times.size() - 1)}};
}

Json logits(const Loaded& model, const Json& command) {
  const auto ids = at::tensor(command.at("prompt").get<Ids>()).unsqueeze(0);
  const auto last = model.logits(ids).to(at::kFloat).contiguous();
  const auto* first = last.const_data_ptr<float>();
  return {{"logits", std::vector<float>(first, first + last.numel())}};
}

Commands model_commands() {
  const auto model = std::make_shared<Loaded>();
  return {{"load", [=](const Json& command) { return load(*model, command); }},
          {"continued", [=](const Json& command) { return continued(*model, command); }},
          {"logits", [=](const Json& command) { return logits(*model, command); }}};
}

Json about() {
  const auto machine = bench::describe_machine();
  return {{"cpu", machine.cpu},           {"isa", machine.isa},           {"libtorch", machine.libtorch},
          {"compiler", machine.compiler}, {"attentive", machine.package}, {"threads", at::get_num_threads()}};
}

Json answer(const Commands& commands, const std::string& line) {
  try {
    const auto command = Json::parse(line);
    return commands.at(command.at("do").get<std::string>())(command);
  } catch (const std::exception& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Answers the lines of bench/league/run.py.", "league_ours");
  int threads = 0;
  app.add_option("THREADS", threads)->check(CLI::Range(1, 1024))->required();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    auto commands = attention_commands();
    commands.merge(model_commands());
    commands["about"] = [](const Json&) { return about(); };
    std::string line;
    while (std::getline(std::cin, line)) {
      std::printf("%s\n",
                  answer(commands, line).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
      apps::flush_output();
    }
    return 0;
  });
}
