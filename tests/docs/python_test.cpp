// Python's half of the pages: its programs run where there is a Python with PyTorch, and what they write is
// read here.

#include <cstdlib>

#include <catch2/catch_test_macros.hpp>

#include <attentive/io/safetensors.h>

#include "docs/examples.h"
#include "docs/in_folder.h"
#include "docs/pages.h"
#include "support/shell.h"
#include "support/source_folder.h"
#include "support/temporary_folder.h"

using namespace attentive::test;

namespace {

const std::string kRoot = source_folder() + "/";

std::string python() {
  const char* named = std::getenv("ATTENTIVE_PYTHON");
  return named ? named : ATTENTIVE_PYTHON;
}

bool has_torch() {
  return std::system(("'" + python() + "' -c 'import torch' > /dev/null 2>&1").c_str()) == 0;
}

// What a program of tests/docs/python prints, run in a folder as README says: with bench/ and tools/ on its
// path.
std::string run_python(const std::string& name, const std::string& folder) {
  return run_in_shell("cd '" + folder + "' && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='" + kRoot + "bench:" +
                      kRoot + "tools' '" + python() + "' '" + kRoot + "tests/docs/python/" + name + "'");
}

// What README and the guide show below a Python block.
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

#define NEEDS_TORCH()                                                                          \
  if (!has_torch())                                                                            \
  SKIP(python() << " has no PyTorch; name one that has with -DATTENTIVE_PYTHON=<python3>, or " \
                   "in the environment")

TEST_CASE("Python saves, C++ loads, trains and saves, Python loads, as README shows", "[docs][python]") {
  NEEDS_TORCH();
  const TemporaryFolder folder;
  const std::string page = "README.md", programs = "tests/docs/python/";
  CHECK(same_output(shown_below(page, programs + "save_gpt.py"), run_python("save_gpt.py", folder.path())));
  {
    const InFolder here(folder.path());
    auto from_python = example("from_python");
    from_python.before = nullptr;  // gpt.pt is Python's, not one that C++ wrote in its place
    CHECK(same_output(shown_below(page, "from_python"), output_here(from_python)));
  }
  CHECK(same_output(shown_below(page, programs + "load_gpt.py"), run_python("load_gpt.py", folder.path())));
}

TEST_CASE("the page's case is written by Python and read here", "[docs][python]") {
  NEEDS_TORCH();
  const TemporaryFolder folder;
  run_python("write_case.py", folder.path());
  const auto file = attentive::load_safetensors(folder / "mha.safetensors");
  CHECK(file.metadata.at("module") == "MultiHeadAttention");
  CHECK(file.tensors.at("expected.output").sizes() == at::IntArrayRef({2, 6, 2}));
}
