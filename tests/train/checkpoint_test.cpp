#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/training_log.h>

#include "base/files.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"
#include "train/sha256.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

Checkpoint example(int64_t step) {
  return {step,
          {{"weight", at::arange(4).to(at::kFloat)}},
          {{"step", at::full({}, static_cast<double>(step))}},
          {{"config.json", "{}\n"}, {"state.json", "{\"a\": 1}\n"}}};
}

std::string latest(const std::filesystem::path& folder) {
  return read_file(folder / "latest");
}

}  // namespace

TEST_CASE("A checkpoint comes back as it was saved", "[checkpoint]") {
  const TemporaryFolder temporary;
  const auto root = temporary / "a" / "run";
  CheckpointFolder folder(root);
  const auto path = folder.save(example(20));
  CHECK(path == root / "step-00000020");
  CHECK(names_in(path) == std::vector<std::string>{"config.json", "manifest.json", "model.safetensors",
                                                   "optimizer.safetensors", "state.json"});
  CHECK(latest(root) == "step-00000020\n");
  for (const auto& from : {root, path}) {
    const auto loaded = load_checkpoint(from);
    CHECK(loaded.step == 20);
    CHECK(bit_equal(loaded.model.at("weight"), example(20).model.at("weight")));
    CHECK(bit_equal(loaded.optimizer.at("step"), example(20).optimizer.at("step")));
    CHECK(loaded.documents == example(20).documents);
    CHECK(load_checkpoint_documents(from) == example(20).documents);
  }
}

TEST_CASE("CheckpointFolder keeps the newest and saves a step again beside the first", "[checkpoint]") {
  const TemporaryFolder root;
  CheckpointFolder folder(root.path());
  for (const int64_t step : {5, 10, 15, 20}) folder.save(example(step), 2);
  CHECK(list_checkpoints(root.path()) ==
        std::vector<std::filesystem::path>{root / "step-00000015", root / "step-00000020"});
  CHECK(folder.save(example(20), 2) == root / "step-00000020-2");
  CHECK(latest(root.path()) == "step-00000020-2\n");
  CHECK(load_checkpoint(root.path()).step == 20);
  // When a run returns to an older step, the newest file counts, not the highest number.
  folder.save(example(7), 1);
  CHECK(list_checkpoints(root.path()) == std::vector<std::filesystem::path>{root / "step-00000007"});
  for (const int64_t step : {8, 9}) folder.save(example(step), 0);
  CHECK(list_checkpoints(root.path()).size() == 3);
}

TEST_CASE("A checkpoint is hashed while it is written, not read back", "[checkpoint]") {
  const TemporaryFolder root;
  CheckpointFolder folder(root.path());
  constexpr int64_t kBytes = 4'000'000;
  Checkpoint checkpoint = example(4);
  checkpoint.model["large"] = at::arange(kBytes / 4, at::kFloat);
  checkpoint.optimizer["large"] = at::arange(kBytes / 8, at::kDouble).view({2, -1}).t();  // is copied
  checkpoint.documents["long.txt"] = std::string(kBytes, 'x');
  const auto read_so_far = [] {  // the bytes of every read of this process
    std::string name;
    int64_t bytes = -1;
    std::ifstream("/proc/self/io") >> name >> bytes;
    REQUIRE(name == "rchar:");
    return bytes;
  };
  const auto before = read_so_far();
  const test::MemoryMeter meter;
  const auto path = folder.save(checkpoint);
  CHECK(read_so_far() - before < kBytes / 100);
  CHECK(meter.peak() < kBytes + kBytes / 10);  // one tensor, and no file
  const auto files = nlohmann::json::parse(read_file(path / "manifest.json"))["files"];
  auto names = names_in(path);
  std::erase(names, "manifest.json");
  CHECK(files.size() == names.size());
  for (const auto& name : names) {
    INFO(name);
    const auto bytes = read_file(path / name);
    CHECK(files[name]["size"] == bytes.size());
    CHECK(files[name]["sha256"] == sha256(bytes));
  }
  CHECK(bit_equal(load_checkpoint(path).optimizer.at("large"), checkpoint.optimizer.at("large")));
}

TEST_CASE("A checkpoint with any byte changed or cut off is refused", "[checkpoint]") {
  const TemporaryFolder root;
  CheckpointFolder folder(root.path());
  const auto path = folder.save(example(3));
  for (const auto& name : names_in(path)) {
    const auto whole = read_file(path / name);
    const auto put = [&](const std::string& bytes) {
      std::ofstream(path / name, std::ios::binary | std::ios::trunc) << bytes;
    };
    for (size_t size = 0; size < whole.size(); ++size) {
      put(whole.substr(0, size));
      INFO(name << " cut to " << size << " bytes");
      REQUIRE_THROWS_AS(load_checkpoint(path), CheckpointError);
    }
    for (size_t offset = 0; offset < whole.size(); ++offset) {
      auto changed = whole;
      changed[offset] = static_cast<char>(changed[offset] ^ (1 << offset % 8));
      put(changed);
      INFO(name << " changed at byte " << offset);
      REQUIRE_THROWS_AS(load_checkpoint(path), CheckpointError);
    }
    ::unlink((path / name).c_str());
    REQUIRE_THROWS_AS(load_checkpoint(path), CheckpointError);
    put(whole);
  }
  CHECK(load_checkpoint(path).step == 3);
}

TEST_CASE("load_checkpoint says what is wrong", "[checkpoint]") {
  const TemporaryFolder root;
  const auto message = [](const std::filesystem::path& path) {
    return value_error([&] { return load_checkpoint(path); });
  };
  CHECK(message(root / "none") == "load_checkpoint: " + (root / "none").string() + ": no such folder");
  CHECK(message(root.path()) ==
        "load_checkpoint: " + root.path().string() +
            ": neither a checkpoint (manifest.json) nor a folder of checkpoints (latest)");
  CheckpointFolder folder(root.path());
  const auto path = folder.save(example(1));
  std::ofstream(path / "state.json", std::ios::app) << ' ';
  CHECK(message(root.path()) ==
        "load_checkpoint: " + (path / "state.json").string() + ": expected 9 bytes, got 10");
  std::ofstream(path / "state.json", std::ios::trunc) << "{\"a\": 2}\n";
  CHECK(message(root.path()) == "load_checkpoint: " + (path / "state.json").string() +
                                    ": damaged: its SHA-256 differs from the manifest");
  std::ofstream(root / "latest", std::ios::trunc) << "step-00000002\n";
  CHECK(message(root.path()) == "load_checkpoint: " + (root / "step-00000002").string() +
                                    ": no such folder, though \"latest\" names it");
  std::ofstream(root / "latest", std::ios::trunc) << "../elsewhere\n";
  CHECK(message(root.path()) ==
        "load_checkpoint: " + (root / "latest").string() + ": expected the name of a checkpoint");
  // As if killed between the rename of the first checkpoint and the writing of "latest".
  ::unlink((root / "latest").c_str());
  write_file(path / "state.json", "{\"a\": 1}\n");
  CHECK(load_checkpoint(root.path()).step == 1);
  // Deep nesting must not exhaust the stack.
  std::ofstream(path / "manifest.json", std::ios::trunc) << "{\"files\":" + std::string(200000, '[');
  CHECK(message(path) == "load_checkpoint: " + (path / "manifest.json").string() +
                             ": damaged: not a manifest that was written here");
}

TEST_CASE("CheckpointFolder is for one process and cleans up after a killed one", "[checkpoint]") {
  const TemporaryFolder root;
  make_folder(root / ".saving-7");
  make_folder(root / ".removing-step-00000001");
  write_file(root / ".saving-7" / "model.safetensors", "half");
  {
    CheckpointFolder folder(root.path());
    CHECK(names_in(root.path()) == std::vector<std::string>{".lock"});
    const auto refused = [&](const std::string& holder) {
      CHECK(value_error([&] { return CheckpointFolder(root.path()).path(); }) ==
            "CheckpointFolder: " + root.path().string() + ": " + holder +
                " writes its checkpoints here, and may still be saving one");
    };
    refused(fmt::format("process {}", ::getpid()));
    // The folder is locked, but the process number is missing or that of a killed process.
    for (const char* unknown : {"4194305\n", "0\n", "-1\n", "", "x"}) {
      std::ofstream(root / ".lock", std::ios::trunc) << unknown;
      refused("another process");
    }
  }
  CHECK(read_file(root / ".lock").empty());
  CheckpointFolder again(root.path());
  for (const char* name : {"", "a/b", "..", ".hidden", "manifest.json", "model.safetensors"}) {
    auto checkpoint = example(1);
    checkpoint.documents[name] = "";
    CHECK_THROWS_AS(again.save(checkpoint), CheckpointError);
  }
  CHECK_THROWS_AS(CheckpointFolder("/proc/attentive"), CheckpointError);
}

TEST_CASE("A save that the disk refuses leaves the earlier checkpoint", "[checkpoint]") {
  const TemporaryFolder root;
  CheckpointFolder(root.path()).save(example(1));
  // In a child process, because the limit cannot be raised again: files may have at most this many bytes,
  // which simulates a full disk.
  for (const rlim_t limit : {0, 20, 50, 100, 200, 300}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit bytes{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &bytes);
      try {
        CheckpointFolder(root.path()).save(example(2), 1);
      } catch (const CheckpointError&) {
        ::_exit(7);
      } catch (...) {
        ::_exit(8);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    INFO("limit " << limit);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    CHECK(load_checkpoint(root.path()).step == 1);
    CHECK(names_in(root.path()) == std::vector<std::string>{".lock", "latest", "step-00000001"});
  }
}

TEST_CASE("A folder that may not be written is refused by name and keeps its checkpoint", "[checkpoint]") {
  const TemporaryFolder root;
  CheckpointFolder(root.path()).save(example(1));
  for (const bool in_mid_run : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::string message;
      try {
        std::optional<CheckpointFolder> folder;
        if (in_mid_run) folder.emplace(root.path());
        ::chmod(root.path().c_str(), 0555);
        constexpr uid_t kNobody = 65534;  // the superuser may write everywhere
        if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(9);
        if (!in_mid_run) folder.emplace(root.path());
        folder->save(example(2), 1);
      } catch (const CheckpointError& error) {
        message = error.what_without_backtrace();
      }
      const bool named = message.starts_with("CheckpointFolder: " + root.path().string()) &&
                         message.find("Permission denied") != std::string::npos;
      ::_exit(named ? 7 : 8);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ::chmod(root.path().c_str(), 0755);
    INFO("in mid-run " << in_mid_run);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    CHECK(load_checkpoint(root.path()).step == 1);
    CHECK(names_in(root.path()) == std::vector<std::string>{".lock", "latest", "step-00000001"});
  }
}

TEST_CASE("A pipe or device in the place of a file is refused at once", "[checkpoint][special_files]") {
  using Path = std::filesystem::path;
  const std::map<std::string, std::function<void(const Path&)>> readers = {
      {"read_text", [](const Path& path) { read_text(path); }},
      {"read_log", [](const Path& path) { read_log(path); }},
      {"load_tokenizer", [](const Path& path) { load_tokenizer(path); }},
      {"TrainingLog", [](const Path& path) { TrainingLog(path, 0); }},
      {"save_loss_curve", [](const Path& path) { save_loss_curve(path, {}); }}};
  const TemporaryFolder temporary;
  for (const auto& path : test::special_files(temporary)) {
    for (const auto& [name, read] : readers) {
      INFO(name << " of " << path);
      const auto message = value_error([&, call = read] { call(path); });
      CHECK(message.starts_with(name + ": "));
      CHECK(message.find(path.string()) != std::string::npos);
    }
  }
  const auto root = temporary / "run";
  CheckpointFolder folder(root);
  const auto path = folder.save(example(20));
  for (const auto& file :
       {path / "state.json", path / "model.safetensors", path / "manifest.json", root / "latest"}) {
    INFO(file);
    std::filesystem::rename(file, temporary / "kept");
    test::make_pipe(file);
    CHECK(value_error([&] {
            return load_checkpoint(root).step;
          }).ends_with("not a regular file: " + file.string() + ": Invalid argument"));
    CHECK((value_error([&] { return load_checkpoint_documents(root).size(); }) == "no error") ==
          (file == path / "model.safetensors"));  // not needed for the documents
    std::filesystem::rename(temporary / "kept", file);
  }
}

TEST_CASE("A row cannot be logged into a pipe that took the log's place", "[training_log][special_files]") {
  const TemporaryFolder folder;
  TrainingLog log(folder / "log.csv", 0);
  std::filesystem::remove(folder / "log.csv");
  test::make_pipe(folder / "log.csv");
  CHECK(value_error([&] {
          return log.add({.step = 1}), 0;
        }).starts_with("TrainingLog: " + (folder / "log.csv").string() + ": cannot open: "));
}

using attentive::sha256;

TEST_CASE("sha256 gives the digests of FIPS 180-4 and of every padding length", "[sha256]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // One digest over the digests of 0 to 130 letters x, computed with Python's hashlib.
  std::string all;
  for (size_t n = 0; n <= 130; ++n) all += sha256(std::string(n, 'x'));
  CHECK(sha256(all) == "87aca1c44bc7ba8897768170211f0a02063de70801131ff86c7edb9ce32c6a50");
}

TEST_CASE("Sha256 of parts is that of the whole", "[sha256]") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * i);
  for (const size_t part : {1U, 3U, 55U, 63U, 64U, 65U, 128U, 200U}) {
    attentive::Sha256 sum;
    for (size_t offset = 0; offset < text.size(); offset += part) {
      CHECK(sum.digest() == sha256(text.substr(0, offset)));
      sum.add(std::string_view(text).substr(offset, part));
      sum.add({});
    }
    CHECK(sum.digest() == sha256(text));
  }
}
