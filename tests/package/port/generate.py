#!/usr/bin/env python3
"""Writes the C++ of the classes of python/tests/port with attentive-port, and sources of one program that runs all their tests.

    generate.py FOLDER [--all] [--gxx] [CASE ...] [-- COMMAND ...]

--all: goes on without the classes that are refused. COMMAND, which builds the program, is run in the end.

FOLDER gets cases/NAME/ as the command writes it, group_N.cpp, which include the tests of several classes, and main.cpp. A test of
a class that a broken emitter wrote (BROKEN) must fail. A file that would not change is left as it is.
"""

import contextlib
import filecmp
import io
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "python/attentive"
GROUPS = 6
TRAINED = {"SmallGPT": "AdamW(lr=1e-3)", "EncoderLayer_pre": "SGD(lr=0.1, momentum=0.9)"}  # cases with train.cpp
DTYPES = {"SelfAttention": ["float64", "bfloat16", "autocast"]}

# (case, file of the emitter, text, its replacement): emitters that are wrong in scale, mask, dropout, its stream, a name, and the
# order of names. The test of the class has to fail.
BROKEN = [
    ("SelfAttention", "attend.py", """or '1.0'}")""", """or '1.0'} * 1.001")"""),
    ("SelfAttention", "attend.py", '{"keep": "keep", "drop": "hide"}', '{"keep": "hide", "drop": "keep"}'),
    ("SelfAttention", "attend.py", 'f".dropout_p = {_probability(f, plan.dropout)}"', '".dropout_p = 0.0"'),
    ("SelfAttention", "attend.py", ".dropout_stream = kDraws", ".dropout_stream = attentive::DropoutStream::Counter"),
    ("CausalAttention", "statements.py", """register_buffer("{attribute}", {self""", """register_buffer("{attribute}_", {self"""),
    ("SelfAttention", "statements.py", "    def statements(self, body):\n",
     "    def statements(self, body):\n"
     "        body = sorted(body, key=lambda s: self.constructor and 'self.query' in ast.unparse(s))\n"),
]
# One that binds no draws to locals: with --gxx, as clang happens to compute arguments in Python's order.
UNORDERED = [("DrawOrder", "emit.py", "if len(drawing) > 1 and", "if len(drawing) > 99 and")]


def options_of(case, name):
    from _port.options import Options

    train, loss = TRAINED.get(name), "y[1]" if name == "SmallGPT" else None
    return Options(str(case.path), case.cls, name, case.args, list(case.inputs), train=train, loss=loss,
                   dtypes=DTYPES.get(name, []), command="attentive-port")


def write(job):
    """Translates one class in a process of its own: (what went wrong, whether that is allowed), or None."""
    case, folder, change, may_refuse = job
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    package = PACKAGE
    if change:
        package = folder / "package"
        shutil.copytree(PACKAGE / "_port", package / "_port", ignore=shutil.ignore_patterns("__pycache__"))
        file, text, replacement = change
        before = (package / "_port" / file).read_text()
        if before.count(text) != 1:
            return f"{folder.name}: {file} has {text!r} {before.count(text)} times", False
        (package / "_port" / file).write_text(before.replace(text, replacement))
    sys.path.insert(0, str(package))
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from _port import port

            port.build(options_of(case, folder.name), folder)
    except BaseException as error:
        from _port.kinds import Refusal
        from _port.load import described

        return f"{folder.name}: {described(error)}", may_refuse and isinstance(error, Refusal)
    shutil.rmtree(folder / "package", ignore_errors=True)
    return None


def settled(made, kept):
    """Moves a folder's new files into place, and leaves those that are equal, for the build's sake."""
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        if old.is_file() and not (made / old.name).exists():
            old.unlink()
    for new in made.iterdir():
        if not ((kept / new.name).is_file() and filecmp.cmp(new, kept / new.name, shallow=False)):
            os.replace(new, kept / new.name)
    shutil.rmtree(made)


def twin(case, kept):
    """The test of a hand-written class beside the one that was written: names, first weights, outputs and gradients."""
    names = list(dict.fromkeys(re.findall(r"\b(?!forward|Mask|keep)[A-Za-z]\w*", case.twin_call)))
    call = 1 if "mask" in names else 0
    with (kept / "case.safetensors").open("rb") as file:
        keys = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    first = next(key for key in sorted(keys) if "eval" in key and key.endswith("/input.0") and (f"inputs {call + 1}," in key or "inputs" not in key))
    words = {"driver": kept / "driver.h", "space": re.search(r"namespace (\w+)", (kept / "driver.h").read_text())[1], "twin": case.twin,
             "prefix": first[:-1], "count": len(names), "names": ", ".join(f"{name} = inputs[{n}]" for n, name in enumerate(names)),
             "call": call, "forward": case.twin_call}
    text = TWIN
    for word, value in words.items():
        text = text.replace(f"@{word}@", str(value))
    source = kept.parent.parent / "twins" / f"{case.id}.cpp"
    source.parent.mkdir(exist_ok=True)
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    return source


TWIN = """\
#include <attentive/files/safetensors.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks.h>

#include "@driver@"

int main(int, char** argv) {
  using attentive::Mask;
  const attentive::DropoutStreamGuard python_draws(attentive::DropoutStream::Aten);
  const auto file = attentive::load_safetensors(argv[1]);
  std::vector<torch::Tensor> inputs;
  for (int n = 0; n < @count@; ++n) inputs.push_back(file.tensors.at("@prefix@" + std::to_string(n)));
  const auto @names@;
  torch::manual_seed(123);
  auto written = @space@::make();
  torch::manual_seed(123);
  auto by_hand = @twin@;
  const auto a = written->named_parameters(), b = by_hand->named_parameters();
  bool good = a.size() == b.size();
  for (size_t i = 0; good && i < a.size(); ++i) good = a[i].key() == b[i].key() && a[i].value().equal(b[i].value());
  std::printf("%-6s  names and first weights of the hand-written class: %zu\\n", good ? "ok" : "FAILED", b.size());
  const auto tensor = [](const auto& result) -> torch::Tensor {
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, torch::Tensor>) {
      return result;
    } else {
      return std::get<0>(result);  // beside the weights
    }
  };
  for (const bool train : {false, true}) {
    written->train(train);
    by_hand->train(train);
    torch::manual_seed(7);
    const auto mine = @space@::call_@call@(written, inputs).front();
    torch::manual_seed(7);
    const auto other = tensor(by_hand->@forward@);
    double worst = ((mine - other).abs().max() / other.abs().max()).item<double>();
    if (good && !b.is_empty()) {
      const auto mine_grads = torch::autograd::grad({mine.square().sum()}, written->parameters());
      const auto other_grads = torch::autograd::grad({other.square().sum()}, by_hand->parameters());
      for (size_t i = 0; i < mine_grads.size(); ++i)
        worst = std::max(worst, ((mine_grads[i] - other_grads[i]).abs().max() / other_grads[i].abs().max()).item<double>());
    }
    const bool equal = worst < 2e-5;
    std::printf("%-6s  the hand-written class, %s: %g\\n", equal ? "ok" : "FAILED", train ? "train" : "eval", worst);
    good = good && equal;
  }
  return good ? 0 : 1;
}
"""


def sources(folder, tests):
    """Writes the groups and the main program; `tests` are (identifier, source, case file, whether it must fail)."""
    made = folder / "made"
    made.mkdir(exist_ok=True)
    for group in range(GROUPS):
        text = "#include <torch/torch.h>\n"
        for name, source, *_ in tests[group::GROUPS]:
            text += f'\n#define main {name}\n#include "{source}"\n#undef main\n'
        (made / f"group_{group}.cpp").write_text(text)
    declarations = "".join(f"int {name}(int, char**);\n" for name, *_ in tests)
    rows = "".join(f'    {{"{name}", {name}, "{case}", {str(fails).lower()}}},\n' for name, _, case, fails in tests)
    (made / "main.cpp").write_text(MAIN.replace("@declarations", declarations).replace("@rows", rows))
    settled(made, folder / "sources")


MAIN = """\
// Runs the tests of all classes, or of those that are named.
#include <cstdio>
#include <cstring>
#include <string>

@declarations
struct Test {
  const char* name;
  int (*run)(int, char**);
  const char* file;
  bool fails;
};
const Test kTests[] = {
@rows};

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a crash leaves is read
  int failed = 0, run = 0;
  for (const auto& test : kTests) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], test.name) == 0;
    if (!wanted) continue;
    std::printf("\\n%s%s\\n", test.name, test.fails ? ", which a broken emitter wrote: must fail" : "");
    std::string file = test.file, program = test.name;
    char* arguments[] = {program.data(), file.data(), nullptr};
    const bool good = (test.run(2, arguments) != 0) == test.fails;
    if (!good) std::printf("%s %s\\n", test.name, test.fails ? "did not notice the broken emitter" : "is not equal");
    failed += good ? 0 : 1;
    ++run;
  }
  std::printf("\\n%d of %d tests failed\\n", failed, run);
  return failed == 0 && run > 0 ? 0 : 1;
}
"""


def main():
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, command = arguments[:end], arguments[end + 1 :]
    folder, wanted = pathlib.Path(arguments[0]).resolve(), [name for name in arguments[1:] if not name.startswith("--")]
    broken = BROKEN + (UNORDERED if "--gxx" in arguments else [])
    sys.path.insert(0, str(ROOT / "python/tests/port"))
    import cases

    further = [*cases.FURTHER, *(cases.case(r.cls, r.args, r.inputs, file=r.file) for r in cases.REFUSED if r.or_equal)]
    chosen = [case for case in dict.fromkeys([*cases.cases(), *further]) if not wanted or case.id in wanted]
    by_name = {case.id: case for case in chosen}
    jobs = [(case, folder / "new" / case.id, None, case in further) for case in chosen]
    jobs += [(by_name[name], folder / "new" / f"broken_{at}_{name}", change, False)
             for at, (name, *change) in enumerate(broken) if name in by_name]
    shutil.rmtree(folder / "new", ignore_errors=True)
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        answers = pool.map(write, jobs, chunksize=1)
    for text, allowed in filter(None, answers):
        print(text, "(allowed)" if allowed else "")
    if not all(answer is None or answer[1] for answer in answers) and "--all" not in arguments:
        sys.exit(1)
    jobs = [job for job, problem in zip(jobs, answers) if problem is None]
    shared = folder / "checks.h"
    shutil.copy2(PACKAGE / "_port/templates/checks.h", shared)
    tests = []
    for _, made, change, _ in jobs:
        (made / "checks.h").unlink()
        (made / "checks.h").symlink_to(shared)  # one file for #pragma once
        kept = folder / "cases" / made.name
        settled(made, kept)
        tests += [(f"{made.name}_{what}", kept / f"{what}.cpp", kept / "case.safetensors", bool(change))
                  for what in ("test", "train") if (kept / f"{what}.cpp").exists()]
        if made.name in by_name and by_name[made.name].twin:
            tests.append((f"{made.name}_twin", twin(by_name[made.name], kept), kept / "case.safetensors", False))
    sources(folder, tests)
    print(f"{len(tests)} tests of {len(jobs)} folders", flush=True)
    if command:
        os.execvp(command[0], command)


if __name__ == "__main__":
    main()
