// Whole models: a folder that Python saved, continued greedily.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>

#include "turns.h"

namespace league {
namespace {

using namespace attentive;
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

}  // namespace

Commands model_commands() {
  const auto model = std::make_shared<Loaded>();
  return {{"load", [=](const Json& command) { return load(*model, command); }},
          {"continued", [=](const Json& command) { return continued(*model, command); }},
          {"logits", [=](const Json& command) { return logits(*model, command); }}};
}

}  // namespace league
