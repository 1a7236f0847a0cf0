#!/usr/bin/env python3
"""Checks that every C++ and CUDA file is formatted as clang-format 14 formats it with .clang-format, which leaves comments as
wide as they are: at most 110 columns, but for URLs and rows of tables.

    tools/checks/check_format.py [ROOT]        prints one line per place that differs; exit status 1 if there is any, 4 (a skip)
                                               without clang-format-14
    tools/checks/check_format.py --fix         formats the files in place
    tools/checks/check_format.py --self-test   misformats files of a made-up tree and wants each reported
"""

import concurrent.futures
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tree_check

PROGRAM = "clang-format-14"  # other releases format differently
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
BATCH = 40  # files per process
WIDTH = 110
WIDE_COMMENT = re.compile(r"(?:^|.*\s)//(?!/?\s*\|)(?!.*://)[^\"]*")
WARNING = re.compile(r"^(.*?):(\d+):\d+: (?:warning|error): (.*)$", re.M)


def sources(root):
    """The files that are checked, relative to the root."""
    return [path for path in tree_check.files_of(root) if path.name.endswith(SUFFIXES)]


def clang_format(root, option, paths):
    """Runs clang-format on some files and returns what it printed."""
    done = subprocess.run([PROGRAM, "-style=file", option, *map(str, paths)], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{PROGRAM} {option} ended with status {done.returncode}:\n{done.stderr}")
    return done.stderr


def run(root, option):
    """Runs clang-format on every file in batches, two at a time; returns what it printed and how many files there are."""
    paths = sources(root)
    batches = [paths[start:start + BATCH] for start in range(0, len(paths), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(functools.partial(clang_format, root, option), batches)), len(paths)


def faults_in(root):
    """Every place that is formatted differently, as text, and the number of files."""
    printed, count = run(root, "--dry-run")
    places = dict.fromkeys((path, number) for path, number, _ in WARNING.findall(printed))
    wide = [f"{path}:{number}: a comment ends at column {len(line)}; at most {WIDTH}"
            for path in sources(root) for number, line in enumerate((root / path).read_text(encoding="utf-8").split("\n"), 1)
            if len(line) > WIDTH and WIDE_COMMENT.fullmatch(line)]
    return [f"{path}:{number}: {PROGRAM} formats this differently; run tools/checks/check_format.py --fix"
            for path, number in places] + wide, count


def self_test():
    """Misformats one file at a time in a correct tree."""
    style = (Path(__file__).resolve().parents[2] / ".clang-format").read_text(encoding="utf-8")
    right = "#include <vector>\n\nint twice(int x) {\n  return 2 * x;\n}\n"
    paths = ["src/core/a.cpp", "include/attentive/core/a.h", "src/kernels/native_cuda/a.cu",
             "src/kernels/native_cuda/a.cuh", "apps/a/main.cpp", "bench/a.cpp", "tests/a_test.cpp", "exercises/01_a/task.h"]
    wrong = {
        "spaces": right.replace("2 * x", "2*x"),
        "an indentation": right.replace("  return", "    return"),
        "a long line": right + "int sum_of(" + ", ".join(f"int number_{i}" for i in range(12)) + ");\n",
        "a brace on its own line": right.replace(" {", "\n{"),
        "the order of includes": right.replace("#include <vector>", "#include <vector>\n#include <array>"),
    }
    tree = {".clang-format": style, "docs/page.md": wrong["spaces"], **dict.fromkeys(paths, right)}
    tree["bench/b.cpp"] = f"// See https://example.org/{'x' * 100}\n// | {'long ' * 22} |\n"
    broken = {what: (paths[0], text) for what, text in wrong.items()} | {path: (path, wrong["spaces"]) for path in paths}
    broken["a wide comment"] = (paths[0], f"{right}// {'long ' * 22}\n")
    broken["a wide comment behind code"] = (paths[0], f"int one = 1;  // {'long ' * 20}\n")
    missed = tree_check.missed_of(faults_in, tree, broken)
    with tempfile.TemporaryDirectory() as folder:
        tree_check.write(Path(folder), ".clang-format", style)
        for number, text in enumerate(wrong.values()):
            tree_check.write(Path(folder), f"{number}.cpp", text)
        run(Path(folder), "-i")
        missed += [f"not repaired: {fault}" for fault in faults_in(Path(folder))[0]]
    return tree_check.report_self_test(f"{len(broken)} faults", missed)


if __name__ == "__main__":
    if not shutil.which(PROGRAM):
        print(f"skipped: there is no {PROGRAM}; tools/setup.sh installs it")
        sys.exit(4)
    if sys.argv[1:] == ["--fix"]:
        print(f"format: {run(Path(__file__).resolve().parents[2], '-i')[1]} files formatted")
        sys.exit(0)
    tree_check.main("format", "files", faults_in, self_test)
