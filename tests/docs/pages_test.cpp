// The code and output on the pages are those of compiled and executed programs. ATTENTIVE_UPDATE_DOCS=1
// updates the blocks of the pages, and fills markers without a block.

#include "docs/pages.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include <catch2/catch_test_macros.hpp>

#include "docs/examples.h"
#include "support/shell.h"

using namespace attentive::test;

namespace {

// Programs that pages show completely, with the test that runs each. python_test.cpp runs those in Python.
const std::map<std::string, std::string> kPrograms = {
    {"tests/package/first_program/main.cpp", ATTENTIVE_FIRST_PROGRAM}};

// The beginnings of commands that pages show, with the test that runs each.
const std::map<std::string, std::string> kCommands = {
    {"tools/run", "the notebooks' tests: tests/apps/CMakeLists.txt"},
    {"tools/test", ".ci/run"},
    {"tools/wheel", "by itself: it runs python/tests"},
    {"pip ", "tools/wheel"},
    {"attentive-port ", "python/tests/test_your_notebook.py"},
    {"tools/exercise", "exercises/CMakeLists.txt"},
    {"tools/package", "tests/tools/package_test.py, and tests/package/packed.cmake"},
    {"tools/gpu_check", "tests/tools/gpu_check_test.py"},
    {"tools/checks/kill_test", "by hand: a measurement of docs/training.md"},
    {"tools/checks/group_check", "by hand: a measurement of docs/distributed.md"},
    {"tools/checks/mutate", "by hand"},
    {"cmake ", "tests/package/CMakeLists.txt and .ci/run"},
    {"build/dev/tests/docs_test", "this test"},
    {"attentive-train ", "as installed: tests/apps/train_app_test.py"},
    {"attentive-generate ", "as installed: tests/apps/train_app_test.py"},
    {"attentive-convert ", "as installed: tests/apps/convert_app_test.py"},
    {"attentive-view ", "as installed: tests/apps/view_app_test.py"},
    {"build/dev/apps/attentive-notebook", "tests/apps/notebooks_test.py"},
    {"build/dev/apps/attentive-train", "tests/apps/train_app_test.py"},
    {"build/dev/apps/attentive-convert", "tests/apps/convert_app_test.py"},
    {"build/dev/apps/attentive-generate", "tests/apps/train_app_test.py"},
    {"build/release/apps/attentive-train", "tests/apps/train_app_test.py"},
    {"build/release/apps/attentive-generate", "tests/apps/train_app_test.py"},
    {"build/dev/apps/attentive-view", "tests/apps/view_app_test.py"},
    {"build/release/apps/attentive-view", "tests/apps/view_app_test.py"},
    {"build/release/apps/attentive-convert", "tests/apps/convert_app_test.py"},
    {"build/release/apps/attentive-parity", "tests/parity/parity_app_test.cpp"},
    {"build/release/apps/attentive-learn-bias", "tests/CMakeLists.txt"},
    {"build/release/apps/attentive-learn-copy", "tests/CMakeLists.txt"},
    {"build/release/apps/attentive-data-parallel", "tests/CMakeLists.txt"},
    {"OMP_NUM_THREADS=1 torchrun --nproc-per-node 2", "its variables: tests/apps/train_group_test.py"},
    {"OMP_NUM_THREADS=1 torchrun --nproc-per-node 4", "by hand: a measurement of docs/distributed.md"},
    {"MALLOC_MMAP_THRESHOLD_=100000 torchrun --nproc-per-node 4",
     "by hand: a measurement of docs/distributed.md"},
    {"torchrun --nproc-per-node 2", "on two GPUs: tests/distributed/device_choice_test.cpp"},
    {"torchrun --nnodes 2", "by hand; its variables: tests/distributed/group_test.cpp"},
    {"build/release/apps/attentive-vit-digits", "by hand: a measurement of docs/training.md"},
    {"build/my_attention_test", "by hand: built of what attentive-port writes"},
    {"build/release/bench/", "by hand: measurements"},
    {"bench/", "by hand: measurements"},
    {"python3 ", "tests/docs/python_test.cpp, and by hand for tools/"},
    {"patchelf ", "by hand: an edit of installed files"},
    {"tar ", "tests/package/packed.cmake unpacks a package"},
    {"apt-get install ./", "tests/package/packed.cmake unpacks the .deb"},
};

const Example* find_example(const std::string& name) {
  for (const auto& example : examples()) {
    if (example.name == name) return &example;
  }
  return nullptr;
}

std::string language_of(const std::string& path) {
  if (path.ends_with(".py")) return "python";
  if (path.ends_with("CMakeLists.txt")) return "cmake";
  return "cpp";
}

// The correct content of a block with a marker, or an error in words. The shown output is kept if the printed
// one agrees with it.
Block right_block(const Block& shown) {
  if (shown.kind == "ported") return shown;  // python/tests/test_your_notebook.py runs the tool
  Block right = shown;
  std::string printed;
  if (shown.kind == "example") {
    const Example* example = find_example(shown.name);
    if (!example) throw std::runtime_error("there is no such example");
    right.language = "cpp";
    right.code = code_of(*example);
    printed = output_of(*example);
  } else if (shown.kind == "file") {
    right.language = language_of(shown.name);
    right.code = read_page_file(kRoot + shown.name);
    const auto program = kPrograms.find(shown.name);
    if (program == kPrograms.end()) return right;
    printed = run_in_shell("'" + program->second + "'");
  } else {
    if (!lines_stand_in(shown.code, read_page_file(kRoot + shown.name)))
      throw std::runtime_error("a line does not stand in the file");
    return right;
  }
  if (!same_output(shown.output, printed)) right.output = printed;
  return right;
}

bool is_known_command(const std::string& line) {
  for (const auto& [begin, what] : kCommands) {
    if (line.starts_with(begin)) return true;
  }
  return false;
}

// The commands of a `sh` block, without comments and continuation lines.
std::vector<std::string> commands_of(const std::string& code) {
  std::vector<std::string> commands;
  bool goes_on = false;
  for (const auto& line : lines_of(code)) {
    if (!goes_on && !line.empty() && line[0] != '#') commands.push_back(line);
    goes_on = line.ends_with("\\");
  }
  return commands;
}

}  // namespace

TEST_CASE("pages show the code that is compiled here, and what it prints", "[docs]") {
  const bool update = std::getenv("ATTENTIVE_UPDATE_DOCS") != nullptr;
  std::set<std::string> shown_names;
  for (const auto& path : page_paths()) {
    std::string page = read_page_file(kRoot + path);
    const std::string written = page;
    auto blocks = blocks_of(page);
    // From the end, so that a replacement does not move the blocks before it.
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      if (block->kind.empty()) continue;
      INFO(path << ", " << block->kind << ": " << block->name);
      shown_names.insert(block->name);
      try {
        const auto right = right_block(*block);
        if (update) {
          page = with_block(page, right);
          continue;
        }
        CHECK(block->language == right.language);
        CHECK(block->code == right.code);
        CHECK(block->output == right.output);
      } catch (const std::runtime_error& error) {
        FAIL_CHECK(error.what());
      }
    }
    if (update && page != written) std::ofstream(kRoot + path) << page;
  }
  for (const auto& example : examples()) {
    INFO("no page shows the example " << example.name);
    CHECK(shown_names.contains(example.name));
  }
}

TEST_CASE("examples have names of their own", "[docs]") {
  std::set<std::string> names;
  for (const auto& example : examples()) {
    INFO(example.name);
    CHECK(names.insert(example.name).second);
  }
}

TEST_CASE("no page shows code or a command that nothing runs", "[docs]") {
  for (const auto& path : page_paths()) {
    for (const auto& block : blocks_of(read_page_file(kRoot + path))) {
      if (!block.kind.empty()) continue;
      INFO(path << ", line " << block.first_line + 1 << ":\n" << block.code);
      const bool code = block.language == "cpp" || block.language == "python" || block.language == "cmake";
      CHECK_FALSE(code);
      if (block.language != "sh") continue;
      for (const auto& command : commands_of(block.code)) {
        INFO(command);
        CHECK(is_known_command(command));
      }
    }
  }
}

TEST_CASE("another number, word or line on a page would be noticed", "[docs]") {
  CHECK(same_output("naive: 0.5000 and nan", "naive: 0.5001 and nan"));
  CHECK_FALSE(same_output("naive: 0.5000", "naive: 0.5002"));
  CHECK_FALSE(same_output("naive: 0.5000", "naive: nan"));
  CHECK_FALSE(same_output("naive: 2 rows", "naive: 3 rows"));
  CHECK(same_output("row: 2 2 | 2 0", "row: 2 0"));
  CHECK(same_output("row: 2 2 | 2 0", "row: 2 2"));
  CHECK(same_output("ours: row: 2 2 | 2 0", "ours: row: 2 0"));
  CHECK_FALSE(same_output("row: 2 2 | 2 0", "row: 0 0"));
  CHECK_FALSE(same_output("a\nb\n", "a\n"));
  CHECK(lines_stand_in("  b();\n…\nd();\n", "a();\n    b();\nc();\nd();\n"));
  CHECK_FALSE(lines_stand_in("d();\nb();\n", "b();\nd();\n"));
}

TEST_CASE("blocks of a page are found with their markers and outputs", "[docs]") {
  const std::string page =
      "# Page\n<!-- example: one -->\n```cpp\na();\n```\n\n```text\n1\n```\n\n```sh\ncmake .\n```\n<!-- "
      "file: b -->\n";
  const auto blocks = blocks_of(page);
  REQUIRE(blocks.size() == 3);
  CHECK(blocks[0].kind == "example");
  CHECK(blocks[0].name == "one");
  CHECK(blocks[0].language == "cpp");
  CHECK(blocks[0].code == "a();\n");
  CHECK(blocks[0].output == "1\n");
  CHECK(blocks[1].kind.empty());
  CHECK(blocks[1].language == "sh");
  CHECK(blocks[2].kind == "file");
  CHECK(blocks[2].code.empty());
  CHECK(with_block(page, blocks[0]) == page);
  auto changed = blocks[2];
  changed.language = "cpp";
  changed.code = "b();\n";
  CHECK(with_block(page, changed) == page + "```cpp\nb();\n```\n");
}
