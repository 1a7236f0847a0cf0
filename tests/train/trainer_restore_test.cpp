// A trainer restores a checkpoint completely or not at all.

#include <algorithm>
#include <fstream>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/train/trainer.h>

#include "base/files.h"
#include "support/errors.h"
#include "support/temporary_folder.h"
#include "train/run_state.h"
#include "train/sha256.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::equal;
using attentive::test::Run;
using attentive::test::small;
using attentive::test::value_error;

TEST_CASE("Trainer refuses a checkpoint of another run, by name", "[trainer]") {
  Run run;
  run.trainer.step();
  const auto saved = run.trainer.checkpoint();
  const auto refused = [&](const Checkpoint& checkpoint, TrainerOptions options = small()) {
    Run other(options);
    return value_error([&] { return other.trainer.restore(checkpoint).size(); });
  };
  auto changed = small();
  changed.batch = 5;
  CHECK(refused(saved, changed) == "Trainer: expected batch = 4 as in the checkpoint, got 5");
  changed = small();
  changed.seed = 8;
  CHECK(refused(saved, changed) == "Trainer: expected seed = 1337 as in the checkpoint, got 8");
  changed = small();
  changed.steps = 60;  // without decay_steps, more steps change the learning rates
  CHECK(refused(saved, changed) == "Trainer: expected decay_steps = 30 as in the checkpoint, got 60");
  changed.decay_steps = 30;
  CHECK(refused(saved, changed) == "no error");
  auto model = test::make_bigram();
  Trainer other_text(model, test::loss_of(model), test::squares(201), {}, small());
  CHECK(value_error([&] { return other_text.restore(saved).size(); }) ==
        "Trainer: expected the training text of the checkpoint, got another one");
  auto damaged = saved;
  damaged.documents.erase("state.json");
  CHECK(refused(damaged) == "Trainer: expected a checkpoint with state.json");
  damaged = saved;
  damaged.model["table"] = at::full({7, 6}, 0.0);
  CHECK(refused(damaged).find("table: expected") != std::string::npos);
  damaged = saved;
  damaged.model["table"] = damaged.model["table"].to(at::kDouble);
  CHECK(refused(damaged) == "Trainer: expected \"table\" of dtype Float, got Double");
  damaged = saved;
  damaged.documents["trainer.json"] = "{}";
  CHECK(refused(damaged) == "TrainerOptions: expected a member \"steps\"");
  damaged = saved;
  damaged.documents["state.json"] = "{\"step\": 1}";
  CHECK(refused(damaged).starts_with("Trainer: state.json: "));
}

TEST_CASE("A checkpoint names its texts by the SHA-256 of their tokens as int64", "[trainer]") {
  const auto model = test::make_bigram();
  const auto longer = test::squares(150'001);  // several parts of the digest
  for (const auto dtype : {at::kLong, at::kInt, at::kByte}) {
    Trainer trainer(model, test::loss_of(model), longer.to(dtype), test::squares(60).to(dtype), small());
    trainer.step();
    const auto state = nlohmann::json::parse(trainer.checkpoint().documents.at("state.json"));
    CHECK(state["text"]["training"] == sha256(bytes_of(longer)));
    CHECK(state["text"]["validation"] == sha256(bytes_of(test::squares(60))));
  }
  Trainer alone(model, test::loss_of(model), longer, {}, small());
  alone.step();
  CHECK(nlohmann::json::parse(alone.checkpoint().documents.at("state.json"))["text"]["validation"] ==
        sha256(""));
}

TEST_CASE("Trainer is as it was after a checkpoint that does not fit in any of its parts", "[trainer]") {
  Run run;
  run.trainer.step();
  const auto saved = run.trainer.checkpoint();
  Run other;
  other.trainer.step();
  other.trainer.step();
  const auto before = test::copy_of(other.trainer.checkpoint());
  const auto refused = [&](const Checkpoint& checkpoint) {
    const auto message = value_error([&] { return other.trainer.restore(checkpoint).size(); });
    CHECK(equal(other.trainer.checkpoint(), before));
    return message;
  };
  auto damaged = saved;
  damaged.optimizer["exp_avg.table"] = damaged.optimizer.at("exp_avg.table").to(at::kMeta);
  CHECK(refused(damaged) ==
        "AdamW: \"exp_avg.table\": expected a tensor with data, got one on the meta device");
  // The states of the sampler's generator and of the dropout generators.
  const auto& text = saved.documents.at("state.json");
  const auto with = [&](const std::string& key, const std::string& hex) {
    auto changed = saved;
    auto& document = changed.documents.at("state.json");
    const auto offset = document.find('"', text.find("\"" + key + "\": \"") + key.size() + 3) + 1;
    document.replace(offset, document.find('"', offset) - offset, hex);
    return changed;
  };
  CHECK(
      refused(with("generator", "00")).starts_with("BlockSampler: expected the state of a CPU generator ("));
  CHECK(refused(with("cpu", "00")).starts_with("Trainer: expected the state of a CPU generator ("));
  const std::string nonsense(2 * at::detail::getDefaultCPUGenerator().get_state().numel(), 'f');
  CHECK(refused(with("generator", nonsense)) ==
        "BlockSampler: expected the state of a CPU generator, got other bytes");
  CHECK(refused(with("cpu", nonsense)) == "Trainer: expected the state of a CPU generator, got other bytes");
  CHECK(other.trainer.restore(saved).empty());
}

TEST_CASE("A finished run that is resumed writes nothing", "[trainer]") {
  const TemporaryFolder folder, other;
  auto options = small();
  Run run(options);
  {
    CheckpointFolder files(folder.path());
    CHECK(run.trainer.run(files, {}));
  }
  const auto names = [&] {
    auto all = names_in(folder.path());
    std::ranges::sort(all);
    return all;
  };
  const auto before = names();
  const auto notes_of = [&](Trainer& trainer, const TemporaryFolder& where) {
    std::vector<std::string> notes;
    CheckpointFolder files(where.path());
    CHECK(trainer.run(files,
                      {.log = "log.jsonl", .on_note = [&](const auto& note) { notes.push_back(note); }}));
    return notes.size();
  };
  Run resumed(options);
  resumed.trainer.restore(load_checkpoint(folder.path()));
  CHECK(notes_of(resumed.trainer, folder) == 0);
  CHECK(names() == before);
  // A folder without this state gets a checkpoint of it.
  CHECK(notes_of(resumed.trainer, other) == 1);
  CHECK(load_checkpoint(other.path()).step == 30);
  // So does a folder whose latest checkpoint has another state.
  auto shorter = options;
  shorter.decay_steps = 30;
  shorter.steps = 20;
  Run earlier(shorter);
  const TemporaryFolder behind;
  CHECK(notes_of(earlier.trainer, behind) > 0);
  CHECK(notes_of(resumed.trainer, behind) == 1);
  CHECK(load_checkpoint(behind.path()).step == 30);
  // So does a folder from which the trainer was restored before the latest updates.
  options.decay_steps = 30;
  options.steps = 31;
  Run longer(options);
  longer.trainer.restore(load_checkpoint(folder.path()));
  longer.trainer.step();
  CHECK(notes_of(longer.trainer, folder) == 1);
  CHECK(load_checkpoint(folder.path()).step == 31);
  // A damaged checkpoint does not count.
  Run damaged(options);
  damaged.trainer.restore(load_checkpoint(folder.path()));
  std::ofstream(folder / "latest") << "none";
  CHECK(notes_of(damaged.trainer, folder) == 1);
  CHECK(load_checkpoint(folder.path()).step == 31);
}
