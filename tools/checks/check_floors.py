#!/usr/bin/env python3
"""Checks the direction of every #include against the floors of docs/architecture.md.

    tools/checks/check_floors.py [ROOT]        prints one line per wrong include, and per floor that is not in all of the page, this
                                               list and the tree; exit status 1 if there is any
    tools/checks/check_floors.py --self-test   breaks each rule in a made-up tree and wants it reported
"""

import re
import tempfile
from pathlib import Path

import tree_check

# The folders that each folder may include besides itself. All may include core.
MAY_USE = {
    "base": [],
    "core": [],
    "score": [],
    "kernels": ["score"],
    "functional": ["kernels", "score"],
    "cache": ["kernels", "functional"],
    "modules": ["functional", "cache", "score"],
    "compat": ["functional", "cache", "modules"],
    "notebooks": ["functional", "cache", "modules"],
    "files": ["base", "score"],
    "models": ["base", "files", "functional", "cache", "modules", "notebooks", "compat"],
    "parity": ["base", "files", "functional", "cache", "modules", "notebooks", "compat", "models"],
    "text": ["base"],
    "tokenizers": ["base", "text"],
    "train": ["base", "files", "functional", "cache", "modules", "compat", "models", "text"],
    "viz": ["base", "functional"],
    "distributed": ["train", "functional"],
    "accelerate": ["kernels", "functional"],
    "operators": ["kernels", "functional", "accelerate"],
}
# A header above the folders includes the folder of its name, but these:
SEVERAL = {"attention.h": {"core", "score", "functional", "cache", "modules", "notebooks", "compat"},
           "notebooks.h": {"functional", "modules", "notebooks"}}
# The header of a component that has no other public header; its sources include it.
WHOLE = {"accelerate.h": "accelerate", "operators.h": "operators"}
# The rooms that each room of src/kernels may include, besides itself and the files outside of all rooms
# (which may include none).
ROOMS = {
    "simd": [],
    "gemm": ["simd"],
    "attention": ["simd", "gemm"],
    "delta_rule": ["simd", "gemm"],
    "native_cpu": ["simd", "gemm", "attention", "delta_rule", "reference"],
    "reference": [],
    "pytorch": ["reference"],
    "native_cuda": ["reference"],
}
TOP = ("apps", "bench", "tests", "exercises")  # the top floor: any public header
SHARED = Path("apps/common")  # shared by every main(), also in bench/
PRIVATE_DEPENDENCIES = ("fmt/", "nlohmann/", "CLI/", "catch2/", "pcre2.h", "utf8proc.h", "zlib.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PAGE = "docs/architecture.md"
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")


def floor_of(path):
    """The floor folder of a path below the root; None for paths above or below all floors."""
    parts = path.parts
    if parts[0] in TOP:
        return parts[0]
    inside = parts[2:] if parts[0] == "include" else parts[1:]
    return inside[0] if len(inside) > 1 else None


def room_of(path):
    """The room of a path in src/kernels, or None."""
    return path.parts[2] if path.parts[:2] == ("src", "kernels") and len(path.parts) > 3 else None


def room_fault(path, target):
    """The reason why a file of src/kernels must not include another one; None if it may."""
    here, there = room_of(path), room_of(target)
    if there is None or here == there:
        return None
    if here is None:
        return f"stands in no room of kernels/, but uses kernels/{there}/"
    if here not in ROOMS:
        return f"stands in kernels/{here}/, a room that tools/checks/check_floors.py does not name"
    return None if there in ROOMS[here] else f"stands in kernels/{here}/, which must not use kernels/{there}/"


def target_of(root, path, quoted, name):
    """The file of this project that an include names, relative to the root; None for a foreign header."""
    places = [root / "include" / name]
    if quoted:
        # Searches its own folder and the parents (an app's sources include from the app's folder), then src/.
        places = [root / folder / name for folder in path.parents][:-1] + [root / "src" / name, *places]
        if path.parts[0] == "bench":
            places.append(root / SHARED.parent / name)
        if path.parts[:2] == ("tests", "apps"):
            places += [folder / name for folder in (root / "apps", *sorted((root / "apps").iterdir()))]
        if path.parts[:2] == ("tests", "exercises"):
            places.append(root / "exercises" / name)
    for place in places:
        if place.is_file():
            return place.resolve().relative_to(root)
    return None


def fault_of(root, path, quoted, name):
    """The reason why this include is wrong; None if it is right."""
    public = path.parts[0] == "include"
    if name == "torch/torch.h":
        return "includes all of Torch: name the granular headers"
    if public and name.startswith(PRIVATE_DEPENDENCIES):
        return "is a public header: this dependency is private"
    target = target_of(root, path, quoted, name)
    if target is None:
        if quoted:
            return "is not a file of this project"
        return "is not a public header" if name.startswith("attentive/") else None
    if public and target.parts[0] != "include":
        return "is a public header: private ones are not installed"
    here, there = floor_of(path), floor_of(target)
    if path.parts[0] == "bench" and target.parent == SHARED:
        return None
    if path.parts[0] == "tests" and target.parts[0] == path.parts[1] and target.parts[0] in ("apps", "exercises"):
        return None
    if target.parts[0] in TOP and target.parts[0] != path.parts[0]:
        return f"must not use {target.parts[0]}/"
    if path.parts[0] in ("apps", "bench", "exercises") and target.parts[0] == "src":
        return f"stands in {path.parts[0]}/, which uses public headers only"
    if here == there == "kernels":
        return room_fault(path, target)
    if here in TOP or there == "core" and here is not None:
        return None
    if there is None:  # version.h is for all; attentive.h includes the header of each component
        whole = WHOLE.get(target.name)
        seen = whole is not None and whole in (here, *MAY_USE.get(here, []))
        below = target.name != "version.h" and path.name != "attentive.h" and not seen
        return "is below the header of a whole component" if below else None
    if here is None:
        return None if there in SEVERAL.get(path.name, {path.stem}) else f"is not of the component of {there}/"
    if here == there:
        return None
    if here not in MAY_USE:
        return f"stands in {here}/, a folder without a floor: name it in tools/checks/check_floors.py"
    if there not in MAY_USE[here]:
        return f"stands in {here}/, which must not use {there}/"
    return None


def source_lines(root):
    """(path relative to the root, number, text) of each line of the C++ and CUDA files of the project."""
    for top in ("include", "src", *TOP):
        for file in sorted((root / top).rglob("*")):
            if file.is_file() and file.name.endswith(SUFFIXES):
                for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                    yield file.relative_to(root), number, line


def faults_in(root):
    """All wrong includes under `root`, as text, and the number of files."""
    faults, files = [], set()
    for path, number, line in source_lines(root):
        files.add(path)
        match = INCLUDE.match(line)
        fault = match and fault_of(root, path, match[1] == '"', match[2])
        if fault:
            faults.append(f"{path}:{number}: {match[2]}: this file {fault}")
    return faults, len(files)


def folder_faults(root, floors):
    """Folders that are not in all of the list of floors, the page's table and the tree."""
    page = (root / PAGE).read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in page.splitlines() if re.match(r"\| \d \|", line)]
    on_page = {name.removeprefix("src/") for row in rows for name in re.findall(r"`([\w/]+)/`", row)} - set(TOP)
    in_tree = {path.name for top in ("include/attentive", "src") for path in (root / top).iterdir() if path.is_dir()}
    places = {"tools/checks/check_floors.py": set(floors), PAGE: on_page, "include/attentive/ or src/": in_tree}
    return [f"floor {name}/ is not in {place}"
            for place, names in places.items() for name in sorted(set().union(*places.values()) - names)]


def self_test():
    """Tests one wrong include at a time, then one wrong floor at a time, in a correct tree."""
    includes = {
        "include/attentive/version.h": "",
        "include/attentive/attentive.h": "<attentive/attention.h> <attentive/files.h>",
        "include/attentive/attention.h": "<attentive/modules/m.h> <attentive/version.h>",
        "include/attentive/files.h": "<attentive/files/i.h>",
        "include/attentive/core/c.h": "<ATen/core/Tensor.h>",
        "include/attentive/functional/f.h": "<attentive/core/c.h>",
        "include/attentive/files/i.h": "<attentive/core/c.h>",
        "include/attentive/modules/m.h": "<attentive/functional/f.h> <attentive/version.h>",
        "include/attentive/parity/p.h": "<attentive/modules/m.h> <attentive/files/i.h>",
        "include/attentive/train/t.h": "<attentive/modules/m.h>",
        "src/core/check.h": "",
        "src/kernels/k.h": '"core/check.h"',
        "src/kernels/simd/s.h": '"kernels/k.h"',
        "src/kernels/gemm/g.h": '"kernels/simd/s.h" "kernels/k.h"',
        "src/kernels/attention/a.h": '"kernels/gemm/g.h" "kernels/simd/s.h"',
        "src/kernels/reference/r.h": "",
        "src/functional/f.cpp": '"kernels/k.h" <fmt/format.h>',
        "src/modules/m.cpp": "<attentive/modules/m.h>",
        "apps/a/main.cpp": '<attentive/train/t.h> <CLI/CLI.hpp> "common/run.h"',
        "apps/a/support/table.h": "",
        "apps/a/support/table.cpp": '"support/table.h"',
        "apps/common/run.h": "",
        "bench/b.cpp": '"common/run.h"',
        "tests/apps/a_test.cpp": '"support/table.h" "common/run.h"',
        "tests/core/c_test.cpp": '"support/s.h" "core/check.h"',
        "tests/support/s.h": '"kernels/k.h"',
        "tests/exercises/gaps_test.cpp": '"support/e.h"',
        "exercises/support/e.h": "<ATen/core/Tensor.h>",
        "exercises/01_a/task.h": "<attentive/modules/m.h>",
        "exercises/01_a/check.cpp": '"support/e.h" "task.h"',
        "exercises/solutions/01_a.cpp": '"01_a/task.h"',
    }
    wrong = {
        "include/attentive/core/c.h": '<attentive/functional/f.h> <attentive/attentive.h> <torch/torch.h> <fmt/format.h> "core/check.h"',
        "include/attentive/functional/f.h": "<attentive/modules/m.h> <attentive/files/i.h> <attentive/functional/gone.h>",
        "include/attentive/files/i.h": "<attentive/functional/f.h> <attentive/modules/m.h> <attentive/parity/p.h>",
        "include/attentive/modules/m.h": "<attentive/train/t.h> <attentive/files/i.h> <nlohmann/json.hpp>",
        "include/attentive/train/t.h": "<attentive/parity/p.h>",
        "include/attentive/version.h": "<attentive/modules/m.h>",
        "include/attentive/attention.h": "<attentive/files/i.h> <attentive/files.h>",
        "include/attentive/files.h": "<attentive/modules/m.h> <attentive/attention.h>",
        "include/attentive/new/n.h": "<attentive/functional/f.h>",
        "src/kernels/k.h": '<attentive/functional/f.h> "functional/f.cpp" "kernels/simd/s.h"',
        "src/kernels/simd/s.h": '"kernels/gemm/g.h" "kernels/attention/a.h"',
        "src/kernels/gemm/g.h": '"kernels/attention/a.h" "kernels/reference/r.h"',
        "src/kernels/new/n.h": '"kernels/simd/s.h"',
        "src/modules/m.cpp": '"kernels/k.h" "support/s.h" <torch/torch.h>',
        "apps/a/main.cpp": '"../../src/kernels/k.h" "gone.h"',
        "bench/b.cpp": '"../tests/support/s.h" "../apps/a/support/table.h" "a/support/table.h"',
        "tests/core/c_test.cpp": '"../../apps/common/run.h" "../../exercises/support/e.h"',
        "exercises/01_a/check.cpp": '"../../src/kernels/k.h" "../../tests/support/s.h"',
    }
    right = {path: "".join(f"#include {name}\n" for name in names.split()) for path, names in includes.items()}
    wrong = {f"{path}: {name}": (path, f"{right.get(path, '')}#include {name}\n") for path, names in wrong.items() for name in names.split()}
    missed = tree_check.missed_of(faults_in, right, wrong)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path in ("include/attentive/core/c.h", "src/kernels/k.h", "src/new/n.h"):
            tree_check.write(root, path, "")
        tree_check.write(root, PAGE, "| floor | folders |\n| 1 | `core/`, `src/kernels/` |\n| 3 | `modules/` |\n| 6 | `apps/` |\n")
        missing = [line.split()[1].rstrip("/") for line in folder_faults(root, {"core", "kernels", "modules", "viz"})]
        if sorted(missing) != ["modules", "new", "new", "viz", "viz"]:
            missed.append(f"floors: reported {missing}")
    return tree_check.report_self_test(f"{len(wrong)} broken rules", missed)


def all_faults(root):
    """The faults of the files and of the lists."""
    faults, count = faults_in(root)
    return faults + folder_faults(root, MAY_USE), count


if __name__ == "__main__":
    tree_check.main("floors", "files", all_faults, self_test)
