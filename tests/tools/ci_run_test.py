""".ci/run and tools/checks/long_checks with every tool replaced: their stages, what they say of them, and that a failing one ends
them: ci_run_test.py ROOT"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])
CLOSING = "100% tests passed, 0 tests failed out of 46"
# The stages of each script, with the commands that they run: the words with which their lines in the log begin.
SCRIPTS = {
    ".ci/run": {
        "packages": "setup.sh",
        "tests with LibTorch 2.7.0, built from nothing": "test -D",
        "tests that need Python's PyTorch": "python_tests -LE long",
        "Python wheel, built without a warning of g++, and tested": "wheel --build",
        "communication over NCCL, compiled": "check_nccl",
    },
    "tools/checks/long_checks": {
        "packages": "setup.sh",
        "build with LibTorch 2.15.0": "cmake --preset dev -B build/newest",
        "parity cases with LibTorch 2.15.0": "attentive-parity --allow-skipped tests/parity/a.safetensors",
        "several processes with LibTorch 2.15.0": "ctest --test-dir build/newest",
        "sources of attention, compiled one by one with LibTorch 2.7.0": "build_alone -D",
        "long tests that need Python's PyTorch": "python_tests -L long",
        "long tests of the Python wheel, and those with the oldest transformers": "wheel --test -m long",
        "faults that clang-tidy finds": "check_tidy",
        "tests on an emulated processor without AVX-512": "every_cpu --short",
        "API reference, and rest of the library, in the batches of a release build, and programs: warnings of g++ with LibTorch 2.11.0":
            "check_warnings --unity --but build/wheel/cmake -D",
        "library in the batches of a release build: warnings of clang 19 with LibTorch 2.15.0":
            "check_warnings --unity --compiler clang++-19",
    },
}
# The commands that run beside those of a stage, which waits for them at its end: their scripts and stages.
BESIDE = {"cmake --build --preset dev --target docs": ("tools/checks/long_checks", 9)}


def beside(line):
    return line.startswith(tuple(BESIDE))


def make_tree(tree, failing):
    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nline="$(basename "$0") $*"\necho "$line" >> {tree}/log\n'
                        f'case "$line" in "{failing}"*) exit 3 ;; esac\n{text}')
        path.chmod(0o755)

    script(tree / "bin/cmake", "")
    script(tree / "bin/ctest", "")
    script(tree / "tools/test", f"mkdir -p build/dev; echo '{CLOSING}' > build/dev/tests.log\n")
    for check in ("setup_browser.sh", "need_target", "check_warnings", "check_nccl", "check_tidy", "every_cpu", "python_tests",
                  "build_alone"):
        script(tree / "tools/checks" / check, "")
    (tree / "tools/checks/python_env").write_text("#!/bin/sh\n")  # in the background: it may outlive the run
    (tree / "tools/checks/python_env").chmod(0o755)
    for tool in ("tools/setup.sh", "tools/wheel", "build/newest/apps/attentive-parity"):
        script(tree / tool, "")
    (tree / "tests/parity").mkdir(parents=True)
    (tree / "tests/parity/a.safetensors").touch()
    for name in [*SCRIPTS, "tools/checks/stages.sh"]:
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


def run(name, failing="nothing", built=("build/dev/tests", "build/wheel/cmake")):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # what runs beside others may outlive a run that fails
        tree = Path(folder).resolve()
        make_tree(tree, failing)
        for build in built:
            (tree / build).mkdir(parents=True)
        environment = {**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}"}
        done = subprocess.run([str(tree / name)], text=True, capture_output=True, env=environment)
        log = tree / "log"
        return done, log.read_text().splitlines() if log.exists() else []


def ends_in(stage, done):
    assert done.returncode == 3, (stage, done)
    assert [line for line in done.stdout.splitlines() if line.startswith("== ")][-1] == f"== {stage}", (stage, done)
    assert "all of it passed" not in done.stdout, (stage, done)


for name, runs in SCRIPTS.items():
    stages, commands = list(runs), list(runs.values())
    aside = {command: stages[stage] for command, (script, stage) in BESIDE.items() if script == name}
    done, log = run(name)
    assert done.returncode == 0, done
    assert sum(map(beside, log)) == len(aside), log
    places = [next(i for i, line in enumerate(log) if line.startswith(command)) for command in commands]
    assert places == sorted(places), log
    lines = done.stdout.splitlines()
    if name == ".ci/run":
        assert lines.pop() == CLOSING, done.stdout
    assert lines[-len(stages) - 2] == "== all of it passed", done.stdout
    for stage, line in zip([*stages, "in all"], lines[-len(stages) - 1:], strict=True):
        assert re.fullmatch(rf" *\d+ min \d\d s  {re.escape(stage)}", line), line
    for stage, command in zip(stages, commands, strict=True):
        done, log = run(name, failing=command)
        ends_in(stage, done)
        assert [line for line in log if not beside(line)][-1].startswith(command), (stage, log)
    for command, stage in aside.items():
        done, log = run(name, failing=command)
        ends_in(stage, done)

for built in ((), ("build/dev/tests",), ("build/wheel/cmake",)):
    done, log = run("tools/checks/long_checks", built=built)
    assert done.returncode == 1 and not log and ".ci/run first" in done.stderr, (built, done)
print(".ci/run, long_checks: all as expected")
