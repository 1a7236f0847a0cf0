// Fine-tunes a model that Python saved, stops, resumes without its folder, and writes it in Python's layout.

#include <filesystem>

#include <ATen/ops/arange.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "base/files.h"
#include "support/errors.h"
#include "support/source_folder.h"
#include "support/temporary_folder.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::kText;
using attentive::test::value_error;

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

TEST_CASE("A folder without a tokenizer.json is read by the reader of vocabularies, and saved with one",
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
  CHECK(asked.empty());  // its tokenizer.json counts

  std::filesystem::remove(folder / "tokenizer.json");
  const auto language = load(read_letters);
  CHECK(asked == std::vector{folder});
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
  CHECK(asked.size() == 1);
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
