#include <filesystem>
#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/generate.h>
#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "base/files.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

GPTOptions small_gpt(int64_t vocab) {
  return GPTOptions(vocab, 8, 12, 3, 1).tied(true).dropout(0.1);
}

Checkpoint saved(const GPT& model, const Tokenizer& tokenizer) {
  return {4, state_dict(*model), {{"step", at::zeros({})}}, language_model_documents(model, tokenizer)};
}

}  // namespace

TEST_CASE("A language model comes back from its checkpoint and writes", "[language_model]") {
  const TemporaryFolder root;
  const auto tokenizer = CharTokenizer::train("banana bread");
  at::manual_seed(1);
  GPT model(small_gpt(tokenizer.vocab_size()));
  CheckpointFolder(root.path()).save(saved(model, tokenizer));
  auto language = load_language_model(root.path());
  CHECK(language.step == 4);
  CHECK_FALSE(language.model.module().is_training());
  model->eval();
  const auto ids = at::arange(5).unsqueeze(0);
  CHECK(bit_equal(language.model.forward(ids), model->forward(ids)));
  CHECK(language.tokenizer->decode(language.tokenizer->encode("bread")) == "bread");
}

TEST_CASE("load_language_model refuses a checkpoint that does not fit itself, by name", "[language_model]") {
  const auto tokenizer = CharTokenizer::train("banana bread");
  GPT model(small_gpt(tokenizer.vocab_size()));
  const auto refused = [&](const auto& change) {
    const TemporaryFolder root;
    auto checkpoint = saved(model, tokenizer);
    change(checkpoint);
    CheckpointFolder(root.path()).save(checkpoint);
    return value_error([&] { return load_language_model(root.path()).step; });
  };
  const auto has = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  for (const char* name : {"model.json", "tokenizer.json"}) {
    CHECK(has(refused([&](Checkpoint& c) { c.documents.erase(name); }), name));
  }
  // A missing key, an additional one, another shape, another dtype, another configuration.
  CHECK(has(refused([](Checkpoint& c) { c.model.erase("final_norm.scale"); }), "final_norm.scale"));
  CHECK(has(refused([](Checkpoint& c) { c.model["extra"] = at::zeros({1}); }), "extra"));
  CHECK(
      has(refused([](Checkpoint& c) { c.model["final_norm.scale"] = at::zeros({13}); }), "final_norm.scale"));
  CHECK(has(refused([](Checkpoint& c) { c.model["final_norm.scale"] = at::zeros({12}, at::kLong); }),
            "final_norm.scale"));
  CHECK(has(refused([&](Checkpoint& c) {
              auto other = model->options;
              c.documents["model.json"] = to_json(other.num_layers(2));
            }),
            "trf_blocks.1"));
  CHECK(has(refused([&](Checkpoint& c) {
              c.documents["tokenizer.json"] = BpeTokenizer::train("banana", 257).to_json();
            }),
            "expected a tokenizer of at most"));
  CHECK(has(refused([](Checkpoint& c) { c.documents["model.json"] = "[]"; }),
            "GPTOptions: expected a JSON object"));
  CHECK(has(refused([](Checkpoint& c) { c.documents["tokenizer.json"] = "{"; }), "okenizer"));
}

constexpr const char* kModelJson = R"({
 "bias": false,
 "context_length": 0,
 "dropout": 0.25,
 "emb_dim": 12,
 "init": "book",
 "num_heads": 3,
 "num_kv_heads": 1,
 "num_layers": 2,
 "positions": "rotary",
 "qkv_bias": false,
 "rotary_base": 500.0,
 "rotary_factor": 2.0,
 "rotary_pairing": "interleaved",
 "rotary_scaling": "ntk",
 "tied": false,
 "vocab_size": 7,
 "window": 5
}
)";

TEST_CASE("GPTOptions survive JSON and name what is wrong in it", "[language_model]") {
  const auto options = GPTOptions(7, 0, 12, 3, 2)
                           .positions(GPTPositions::Rotary)
                           .rotary(RotaryPositionsOptions(2).base(500).scaling(RotaryScaling::Ntk).factor(2))
                           .num_kv_heads(1)
                           .window(5)
                           .dropout(0.25)
                           .bias(false);
  CHECK(to_json(parse_gpt_options(to_json(options))) == to_json(options));
  CHECK(to_json(options) == kModelJson);  // the format of all checkpoints, also of earlier versions
  const auto scaled = GPTOptions(options).rotary(RotaryPositionsOptions(2)
                                                     .scaling(RotaryScaling::Llama3)
                                                     .factor(8)
                                                     .low_freq_factor(1.5)
                                                     .high_freq_factor(5)
                                                     .original_context(100));
  CHECK(to_json(parse_gpt_options(to_json(scaled))) == to_json(scaled));
  CHECK(parse_gpt_options(to_json(scaled)).rotary().original_context() == 100);
  const auto yarn = RotaryPositionsOptions(2)
                        .scaling(RotaryScaling::Yarn)
                        .factor(8)
                        .beta_fast(9)
                        .beta_slow(2)
                        .truncate(false)
                        .mscale(0.5)
                        .mscale_all_dim(0.75)
                        .attention_factor(1.5);
  const auto again = parse_gpt_options(to_json(GPTOptions(options).rotary(yarn))).rotary();
  CHECK((again.beta_fast() == 9 && again.beta_slow() == 2 && !again.truncate()));
  CHECK((again.mscale() == 0.5 && again.mscale_all_dim() == 0.75 && again.attention_factor() == 1.5));
  CHECK(parse_gpt_options(kModelJson).rotary().original_context() == 8192);
  CHECK(parse_gpt_options(kModelJson).checkpoint() == 0);
  CHECK(parse_gpt_options(to_json(GPTOptions(options).checkpoint(2))).checkpoint() == 2);
  auto text = to_json(options);
  const auto change = [&](const std::string& from, const std::string& to) {
    auto changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    return changed.replace(changed.find(from), from.size(), to);
  };
  const auto refused = [](const std::string& json) {
    return value_error([&] { return parse_gpt_options(json).vocab_size(); });
  };
  CHECK(refused(change("\"vocab_size\"", "\"vocab\"")) == "GPTOptions: expected a member \"vocab_size\"");
  CHECK(refused(change("\"vocab_size\": 7", "\"vocab_size\": \"7\"")) ==
        "GPTOptions: expected \"vocab_size\" to be an integer, got \"7\"");
  CHECK(refused(change("\"rotary\"", "\"spiral\"")) ==
        "GPTOptions: expected a known \"positions\", got \"spiral\"");
}

TEST_CASE("LlamaOptions survive JSON and are told from GPTOptions", "[language_model]") {
  const auto plain = LlamaOptions(7, 12, 3, 2);
  const auto all = LlamaOptions(plain)
                       .windows({4, 0})
                       .scale(0.25)
                       .softcap(2.0)
                       .activation(Activation::GeluTanh)
                       .window_rotary(RotaryPositionsOptions(0).base(50).pairing(RotaryPairing::Halves));
  for (const auto& options : {plain, all}) {
    CHECK(to_json(parse_llama_options(to_json(options))) == to_json(options));
  }
  CHECK(to_json(plain) != to_json(all));
  CHECK(parse_llama_options(to_json(all)).window_rotary()->base() == 50);
  CHECK(parse_llama_options(to_json(all)).windows() == std::vector<int64_t>{4, 0});
  CHECK_FALSE(parse_llama_options(to_json(plain)).scale());
  CHECK(parse_llama_options(to_json(LlamaOptions(plain).checkpoint(2))).checkpoint() == 2);
  CHECK(to_json(plain).find("checkpoint") ==
        std::string::npos);  // a member that earlier versions do not know
  CHECK(parse_llama_options(to_json(plain)).checkpoint() == 0);
  // Members that earlier versions did not write, in this object and in that of a rotation.
  CHECK(to_json(plain).find("beta_fast") == std::string::npos);
  auto old = to_json(all);
  const std::string later = "\"beta_fast\": 32.0,";
  const auto found = old.find(later);
  REQUIRE(found != std::string::npos);
  CHECK(to_json(parse_llama_options(old.erase(found, later.size()))) == to_json(all));
  CHECK(value_error([] { return parse_llama_options(kModelJson).vocab_size(); }) ==
        "LlamaOptions: expected a member \"model\" with the value \"Llama\"");
}

TEST_CASE("read_text and tokenize take any bytes and refuse none, by name", "[language_model]") {
  const TemporaryFolder root;
  const auto put = [&](const char* name, const std::string& bytes) {
    std::ofstream(root / name, std::ios::binary) << bytes;
    return root / name;
  };
  CHECK(value_error([&] { return read_text(root / "none"); }) ==
        "read_text: cannot open " + (root / "none").string() + ": No such file or directory");
  CHECK(value_error([&] { return read_text(put("empty", "")); }) ==
        "read_text: " + (root / "empty").string() + ": expected a text, got an empty file");
  CHECK(value_error([&] { return read_text(root.path()); }) ==
        "read_text: not a regular file: " + root.path().string() + ": Is a directory");
  // NULs, a truncated UTF-8 character, and a byte that never occurs in UTF-8.
  const std::string odd("a\0b\xe2\x82 \xff\xff\0", 9);
  const auto text = read_text(put("odd", odd));
  CHECK(text == odd);
  const auto tokenizer = CharTokenizer::train(text);
  const auto tokens = tokenize(text, tokenizer, 0.5);
  CHECK(tokens.training.size(0) + tokens.validation.size(0) ==
        static_cast<int64_t>(tokenizer.encode(odd).size()));
  CHECK(tokenizer.decode(tokenizer.encode(odd)) == odd);
  CHECK(value_error([&] { return tokenize(text, tokenizer, 0).training; }) ==
        "tokenize: expected training_share in (0, 1], got 0");
}

// Fine-tunes a model that Python saved, stops, resumes without its folder, and writes it in Python's layout.

using attentive::test::kText;

namespace {

const std::filesystem::path kModels = test::source_folder() + "/tests/models/data";

// Copies a committed folder and adds a tokenizer that needs no component.
void copy_folder(const std::string& name, const std::filesystem::path& to) {
  make_folder(to);
  for (const auto& file : names_in(kModels / name)) {
    if (file != "expected.safetensors") write_file(to / file, read_file(kModels / name / file));
  }
  write_file(to / "tokenizer.json", CharTokenizer::train(kText).to_json());
  write_file(to / "special_tokens_map.json", "{\"eos_token\": \"x\"}");
}

// Behaves like a Python tokenizer.json: keeps the text from which it was read, and truncates what it encodes.
class Verbatim final : public Tokenizer {
 public:
  explicit Verbatim(std::string_view json) : json_(json), letters_(parse_tokenizer(json)) {}
  int64_t vocab_size() const override { return letters_->vocab_size(); }
  std::vector<int64_t> encode(std::string_view text) const override {
    return letters_->encode(text.substr(0, 5));
  }
  std::vector<int64_t> encode_whole(std::string_view text) const override { return letters_->encode(text); }
  std::string_view bytes(int64_t id) const override { return letters_->bytes(id); }
  std::string to_json() const override { return json_; }
  std::string to_python_json() const override { return json_; }

 private:
  std::string json_;
  std::unique_ptr<Tokenizer> letters_;
};

std::unique_ptr<Tokenizer> read_verbatim(std::string_view json) {
  return std::make_unique<Verbatim>(json);
}

TrainerOptions short_run() {
  auto options = test::small();
  options.steps = 6;
  return options;
}

Trainer fine_tuner_of(const LanguageModel& language) {
  const auto tokens = tokenize(kText, *language.tokenizer, 1.0).training;
  return Trainer(language.model.ptr(), language_model_loss(language.model), tokens, {}, short_run());
}

LanguageModel from_folder(const std::filesystem::path& path) {
  at::manual_seed(4);
  return load_language_model(path, {.read_tokenizer = read_verbatim, .pretrained = {.dropout = 0.2}});
}

}  // namespace

TEST_CASE("A model of a Python folder learns, and resumes without the folder, bit for bit", "[fine_tuning]") {
  for (const auto* name : {"gpt2", "llama"}) {
    INFO(name);
    const TemporaryFolder root;
    copy_folder(name, root / "python");
    const auto whole = [&] {
      const auto language = from_folder(root / "python");
      auto trainer = fine_tuner_of(language);
      while (trainer.steps_done() < 6) trainer.step();
      return trainer.checkpoint(language_model_documents(language));
    }();
    {
      const auto language = from_folder(root / "python");
      CHECK(language.stop_tokens == std::vector<int64_t>{2});
      auto trainer = fine_tuner_of(language);
      while (trainer.steps_done() < 3) trainer.step();
      CheckpointFolder(root / "run").save(trainer.checkpoint(language_model_documents(language)));
    }
    remove_tree(root / "python");
    const auto checkpoint = load_checkpoint(root / "run");
    CHECK_FALSE(
        checkpoint.documents.contains("config.json"));  // otherwise Python would take it for a model folder
    const auto language = parse_language_documents(checkpoint.documents, read_verbatim);
    auto trainer = fine_tuner_of(language);
    trainer.restore(checkpoint);
    while (trainer.steps_done() < 6) trainer.step();
    CHECK(test::equal(trainer.checkpoint(language_model_documents(language)), whole));
  }
}

TEST_CASE("A run of a Python model is read with everything, and saved for Python", "[fine_tuning]") {
  for (const auto* name : {"gpt2", "llama"}) {
    INFO(name);
    const TemporaryFolder root;
    copy_folder(name, root / "python");
    const auto language = from_folder(root / "python");
    auto trainer = fine_tuner_of(language);
    trainer.step();
    CheckpointFolder(root / "run").save(trainer.checkpoint(language_model_documents(language)));

    const auto run = load_language_model(root / "run", {.read_tokenizer = read_verbatim});
    CHECK(run.step == 1);
    CHECK(run.model.name() == language.model.name());
    CHECK(run.stop_tokens == std::vector<int64_t>{2});
    CHECK(run.python_files.at("config.json") == read_file(kModels / name / "config.json"));
    language.model.module().eval();
    const auto ids = at::arange(7).view({1, 7});
    const auto logits = language.model.forward(ids);
    CHECK(bit_equal(run.model.forward(ids), logits));

    save_language_model(root / "tuned", run);
    const auto tuned = load_language_model(
        root / "tuned", {.read_tokenizer = [](std::string_view) -> std::unique_ptr<Tokenizer> {
          C10_THROW_ERROR(ValueError, "not mine");
        }});
    CHECK(bit_equal(tuned.model.forward(ids), logits));
    CHECK(tuned.tokenizer == nullptr);
    CHECK(tuned.why_no_tokenizer == (root / "tuned" / "tokenizer.json").string() + ": not mine");
    CHECK(tuned.stop_tokens == run.stop_tokens);
    CHECK(tuned.python_files.at("special_tokens_map.json") == "{\"eos_token\": \"x\"}");
    CHECK(tuned.python_files.at("generation_config.json") ==
          read_file(kModels / name / "generation_config.json"));
    CHECK(tuned.python_files.at("tokenizer.json") == read_file(root / "python" / "tokenizer.json"));
    CHECK_FALSE(tuned.python_files.contains("tokenizer_config.json"));
  }
}

TEST_CASE("A folder's tokenizer is read by the reader of folders, and saved as a tokenizer.json",
          "[fine_tuning]") {
  const TemporaryFolder root;
  const auto folder = root / "python";
  copy_folder("gpt2", folder);
  const auto letters = CharTokenizer::train(kText);
  std::vector<std::filesystem::path> asked;
  const auto load = [&](const FolderTokenizerReader& reader) {
    return load_language_model(folder, {.read_folder_tokenizer = reader});
  };
  const auto read_letters = [&](const std::filesystem::path& path) -> std::unique_ptr<Tokenizer> {
    asked.push_back(path);
    return std::make_unique<CharTokenizer>(letters);
  };
  write_file(folder / "vocab.json", "{}");
  CHECK(load(read_letters).tokenizer != nullptr);
  CHECK(asked == std::vector{folder});

  std::filesystem::remove(folder / "tokenizer.json");
  const auto language = load(read_letters);
  CHECK(asked == std::vector{folder, folder});
  REQUIRE(language.tokenizer);
  save_language_model(root / "saved", language);
  CHECK(read_file(root / "saved" / "tokenizer.json") == letters.to_python_json());
  CHECK(read_file(root / "saved" / "vocab.json") == "{}");

  const auto none = folder.string() + " has no tokenizer.json";
  CHECK(load({}).why_no_tokenizer == none);
  const auto refuse = [](const std::filesystem::path&) -> std::unique_ptr<Tokenizer> {
    C10_THROW_ERROR(ValueError, "not mine");
  };
  CHECK(load(refuse).why_no_tokenizer == "not mine");
  std::filesystem::remove(folder / "vocab.json");
  CHECK(load(read_letters).why_no_tokenizer == none);
  CHECK(asked.size() == 2);
}

TEST_CASE("A run from nothing becomes a folder without tokens of other models", "[fine_tuning]") {
  const TemporaryFolder root;
  const auto tokenizer = CharTokenizer::train(kText);
  const LanguageModel language{
      .model = GPT(GPTOptions(tokenizer.vocab_size(), 8, 12, 3, 1).tied(true).bias(false)),
      .tokenizer = std::make_unique<CharTokenizer>(tokenizer)};
  save_language_model(root / "python", language);
  const auto folder = read_model_folder(root / "python");
  CHECK(folder.family == "gpt2");
  CHECK(folder.stop_tokens.empty());
  CHECK(folder.config.find("bos_token_id")->is<FileValue::None>());
  const auto files = read_side_files(root / "python");
  CHECK(files.at("tokenizer.json") == tokenizer.to_python_json());
  CHECK(files.at("tokenizer_config.json").find("\"model_max_length\": 8") != std::string::npos);
}

TEST_CASE("Parts that do not fit together are refused by name", "[fine_tuning]") {
  const TemporaryFolder root;
  copy_folder("gpt2", root / "python");
  auto language = from_folder(root / "python");
  auto documents = language_model_documents(language);
  const auto refused = [&] { return value_error([&] { (void)parse_language_documents(documents).step; }); };
  documents["stop_tokens.json"] = "[-1]";
  CHECK(refused() == "LanguageModel: stop_tokens.json: expected tokens, got -1");
  documents["stop_tokens.json"] = "{}";
  CHECK(refused() == "LanguageModel: stop_tokens.json: expected a list of tokens");
  documents.erase("model.json");
  CHECK(refused() ==
        "LanguageModel: expected the checkpoint of a language model, got one without model.json");
  language.tokenizer = std::make_unique<CharTokenizer>(CharTokenizer::train("abcdefghijklmnopqrstuvwxyz"));
  CHECK(value_error([&] { (void)language_model_documents(language); }) ==
        "LanguageModel: expected a tokenizer of at most 17 tokens, got 26");
  language.tokenizer = nullptr;
  language.why_no_tokenizer = "there is none";
  CHECK(value_error([&] { (void)language_model_documents(language); }) ==
        "LanguageModel: expected a tokenizer, got none: there is none");
  language.python_files["config.json"] = "{";
  CHECK(value_error([&] { save_language_model(root / "tuned", language); }) ==
        "LanguageModel: the config.json is not JSON");
  CHECK(names_in(root.path()) == std::vector<std::string>{"python"});
}
