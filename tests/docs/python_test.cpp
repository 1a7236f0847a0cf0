// The Python programs on the pages run if there is a Python with PyTorch, and their files are read here.

#include "support/python.h"

#include <catch2/catch_test_macros.hpp>

#include <attentive/files/safetensors.h>

#include "docs/examples.h"
#include "docs/in_folder.h"
#include "docs/pages.h"
#include "support/files.h"

using namespace attentive::test;

namespace {

// Runs a program of tests/docs/python in a folder, as the pages say, and returns its output.
std::string run_in(const std::string& folder, const std::string& name) {
  return run_python("tests/docs/python/" + name, "", folder);
}

// The output that a page shows below a block.
std::string shown_below(const std::string& page, const std::string& name) {
  for (const auto& block : blocks_of(read_page_file(kRoot + page))) {
    if (block.name == name) return block.output;
  }
  throw std::runtime_error(page + " does not show " + name);
}

const Example& example(const std::string& name) {
  for (const auto& one : examples()) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("there is no example " + name);
}

}  // namespace

TEST_CASE("Python saves, C++ loads, trains and saves, Python loads, as the page shows", "[docs][python]") {
  NEEDS_PYTHON("torch");
  const TemporaryFolder folder;
  const std::string page = "docs/guide/from_python.md", programs = "tests/docs/python/";
  CHECK(same_output(shown_below(page, programs + "save_gpt.py"), run_in(folder.path(), "save_gpt.py")));
  {
    const InFolder here(folder.path());
    auto from_python = example("from_python");
    from_python.before = nullptr;  // gpt.pt is Python's file, so C++ must not replace it
    CHECK(same_output(shown_below(page, "from_python"), output_here(from_python)));
  }
  CHECK(same_output(shown_below(page, programs + "load_gpt.py"), run_in(folder.path(), "load_gpt.py")));
}

TEST_CASE("Python's own attention class has the numbers of the page, and C++ reads its weights",
          "[docs][python]") {
  NEEDS_PYTHON("torch");
  const TemporaryFolder folder;
  const std::string page = "docs/guide/own_attention.md", program = "windowed_gqa.py";
  const auto printed = run_in(folder.path(), program);
  CHECK(same_output(shown_below(page, "tests/docs/python/" + program), printed));
  CHECK(same_output(shown_below(page, "own_attention"), printed));
  const InFolder here(folder.path());
  auto renamed = example("own_attention_renamed");
  renamed.before = nullptr;  // windowed_gqa.pt is Python's file
  CHECK(same_output(shown_below(page, renamed.name), output_here(renamed)));
}

TEST_CASE("the page's case is written by Python and read here", "[docs][python]") {
  NEEDS_PYTHON("torch");
  const TemporaryFolder folder;
  run_in(folder.path(), "write_case.py");
  const auto file = attentive::load_safetensors(folder / "mha.safetensors");
  CHECK(file.metadata.at("module") == "MultiHeadAttention");
  CHECK(file.tensors.at("expected.output").sizes() == at::IntArrayRef({2, 6, 2}));
}
