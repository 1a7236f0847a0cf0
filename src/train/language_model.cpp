#include <system_error>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>

#include "train/files.h"
#include "train/model_state.h"

namespace attentive {
namespace {

constexpr const char* kWho = "load_language_model";

// Visits every option by name: the one list for writing and reading.
template <class Visit>
void for_each_option(Visit visit) {
  visit(
      "vocab_size", [](auto& o) -> auto& { return o.vocab_size(); });
  visit(
      "context_length", [](auto& o) -> auto& { return o.context_length(); });
  visit(
      "emb_dim", [](auto& o) -> auto& { return o.emb_dim(); });
  visit(
      "num_heads", [](auto& o) -> auto& { return o.num_heads(); });
  visit(
      "num_layers", [](auto& o) -> auto& { return o.num_layers(); });
  visit(
      "num_kv_heads", [](auto& o) -> auto& { return o.num_kv_heads(); });
  visit(
      "window", [](auto& o) -> auto& { return o.window(); });
  visit(
      "dropout", [](auto& o) -> auto& { return o.dropout(); });
  visit(
      "qkv_bias", [](auto& o) -> auto& { return o.qkv_bias(); });
  visit(
      "bias", [](auto& o) -> auto& { return o.bias(); });
  visit(
      "tied", [](auto& o) -> auto& { return o.tied(); });
}

template <class Value>
Value read(const nlohmann::json& object, const char* name) {
  constexpr const char* who = "GPTOptions";
  const auto found = object.find(name);
  TORCH_CHECK_VALUE(found != object.end(), who, ": expected a member \"", name, "\"");
  bool fits = false;
  if constexpr (std::is_same_v<Value, bool>) {
    fits = found->is_boolean();
  } else if constexpr (std::is_floating_point_v<Value>) {
    fits = found->is_number();
  } else if constexpr (std::is_integral_v<Value>) {
    fits = found->is_number_integer();
  } else {
    fits = found->is_string();
  }
  TORCH_CHECK_VALUE(fits, who, ": expected \"", name, "\" to be of its type, got ", found->dump());
  return found->get<Value>();
}

// The value of a name among the values of an enum.
template <class Enum>
Enum choice(const nlohmann::json& object, const char* name,
            std::initializer_list<std::pair<const char*, Enum>> choices) {
  const auto text = read<std::string>(object, name);
  for (const auto& [label, value] : choices) {
    if (text == label) return value;
  }
  TORCH_CHECK_VALUE(false, "GPTOptions: expected a known \"", name, "\", got \"", text, '"');
}

template <class Enum>
const char* label(Enum value, std::initializer_list<std::pair<const char*, Enum>> choices) {
  for (const auto& item : choices) {
    if (item.second == value) return item.first;
  }
  return "";
}

const std::initializer_list<std::pair<const char*, GPTPositions>> kPositions{
    {"learned", GPTPositions::Learned}, {"rotary", GPTPositions::Rotary}};
const std::initializer_list<std::pair<const char*, GPTInit>> kInits{{"book", GPTInit::Book},
                                                                    {"gpt2", GPTInit::Gpt2}};
const std::initializer_list<std::pair<const char*, RotaryPairing>> kPairings{
    {"interleaved", RotaryPairing::Interleaved}, {"halves", RotaryPairing::Halves}};
const std::initializer_list<std::pair<const char*, RotaryScaling>> kScalings{
    {"none", RotaryScaling::None}, {"linear", RotaryScaling::Linear}, {"ntk", RotaryScaling::Ntk}};

}  // namespace

std::string to_json(const GPTOptions& options) {
  nlohmann::json object;
  for_each_option([&](const char* name, auto get) { object[name] = get(options); });
  object["positions"] = label(options.positions(), kPositions);
  object["init"] = label(options.init(), kInits);
  const auto& rotary = options.rotary();
  object["rotary_base"] = rotary.base();
  object["rotary_pairing"] = label(rotary.pairing(), kPairings);
  object["rotary_scaling"] = label(rotary.scaling(), kScalings);
  object["rotary_factor"] = rotary.factor();
  return object.dump(1) + '\n';
}

GPTOptions parse_gpt_options(const std::string& json) {
  const auto object = nlohmann::json::parse(json, nullptr, false);
  TORCH_CHECK_VALUE(object.is_object(), "GPTOptions: expected a JSON object");
  GPTOptions options(1, 1, 1, 1, 1);
  for_each_option([&](const char* name, auto get) {
    auto& value = get(options);
    value = read<std::remove_reference_t<decltype(value)>>(object, name);
  });
  options.positions(choice(object, "positions", kPositions)).init(choice(object, "init", kInits));
  options.rotary(RotaryPositionsOptions(2)
                     .base(read<double>(object, "rotary_base"))
                     .pairing(choice(object, "rotary_pairing", kPairings))
                     .scaling(choice(object, "rotary_scaling", kScalings))
                     .factor(read<double>(object, "rotary_factor")));
  return options;
}

std::map<std::string, std::string> language_model_documents(const GPTOptions& options,
                                                            const Tokenizer& tokenizer) {
  return {{"model.json", to_json(options)}, {"tokenizer.json", tokenizer.to_json() + '\n'}};
}

LanguageModel load_language_model(const std::filesystem::path& path, at::Device device) {
  const auto checkpoint = load_checkpoint(path);
  const auto document = [&](const char* name) -> const std::string& {
    const auto found = checkpoint.documents.find(name);
    TORCH_CHECK_VALUE(found != checkpoint.documents.end(), kWho, ": ", path.string(), ": expected a ", name);
    return found->second;
  };
  LanguageModel result;
  const auto options = parse_gpt_options(document("model.json"));
  result.tokenizer = parse_tokenizer(document("tokenizer.json"));
  TORCH_CHECK_VALUE(result.tokenizer->vocab_size() <= options.vocab_size(), kWho, ": ", path.string(),
                    ": expected a tokenizer of at most ", options.vocab_size(), " tokens, got ",
                    result.tokenizer->vocab_size());
  result.model = GPT(options);
  load_model_state(kWho, *result.model, checkpoint.model);
  result.model->to(device);
  result.model->eval();
  result.step = checkpoint.step;
  return result;
}

BatchLoss gpt_loss(const GPT& model) {
  return [its = model.ptr()](const at::Tensor& x, const at::Tensor& y) { return its->loss(x, y); };
}

TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share) {
  TORCH_CHECK_VALUE(training_share > 0 && training_share <= 1,
                    "tokenize: expected training_share in (0, 1], got ", training_share);
  const auto ids = at::tensor(tokenizer.encode(text), at::kInt);
  const auto training = static_cast<int64_t>(training_share * static_cast<double>(ids.size(0)));
  return {ids.narrow(0, 0, training), ids.narrow(0, training, ids.size(0) - training)};
}

std::string read_text(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "read_text: ", error.what());
  }
  TORCH_CHECK_VALUE(!text.empty(), "read_text: ", path.string(), ": expected a text, got an empty file");
  return text;
}

}  // namespace attentive
