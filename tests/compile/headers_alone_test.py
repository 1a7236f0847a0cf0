#!/usr/bin/env python3
"""Compiles every public header by itself, and every header of the CPU kernel, for the portable instruction set.

    headers_alone_test.py ROOT COMPILER INCLUDE_DIRECTORIES(|-separated) [OPTION FOR A PRECOMPILED HEADER…]
    headers_alone_test.py --self-test COMPILER …   the same, of a made-up tree with headers that forget something

Exit status 1 if one does not compile. LibTorch's headers would take nearly all of the time, so they are precompiled. A header is
given only those of them that it includes, itself or by others of ours: the ones that it forgets are missing here too. Headers that
do nothing but include are looked up and not compiled: each of theirs is.
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOMS = ("simd", "gemm", "attention", "native_cpu")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
ONLY_INCLUDES = re.compile(r"([ \t]*(//.*|#\s*pragma once|#\s*include\s*<attentive/.*>)?\n)*")


def torch_names(header, folders, directories, known):
    """The headers of LibTorch that one of our headers includes, directly or through our other headers."""
    if header not in known:
        known[header] = set()  # headers may include each other
        for name in INCLUDE.findall(header.read_text(encoding="utf-8")):
            found = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if found:
                known[header] |= torch_names(found, folders, directories, known)
            elif any((Path(directory) / name).is_file() for directory in directories):
                known[header].add(name)
    return known[header]


def worth_precompiling(read):
    """Sets of files, smaller ones first, that are read repeatedly; `read` holds the set of each header."""
    chosen = []
    for files in sorted(set(read), key=len):
        known = max((len(other) for other in chosen if other < files), default=0)
        if sum(files <= other for other in read) * (len(files) - known) > len(files):
            chosen.append(files)
    return chosen


def faults(root, compiler, directories, precompile_options):
    """The compiler's errors for each header of the tree; headers that compile alone have none."""
    def run(options, *names, folder=root / "include"):
        command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-psabi", f"-I{folder}",
                   *(f"-isystem{directory}" for directory in directories), *options]
        source = "".join(f'#include "{name}"\n' for name in names)
        return subprocess.run(command, input=source, capture_output=True, text=True)

    def files_of(name):
        """All files of LibTorch that one of its headers reads."""
        said = run(["-M", "-x", "c++", "-"], name).stdout.split()
        return {file for file in said if file.startswith(tuple(directories))}

    places = {header: root / "include" for header in sorted((root / "include").rglob("*.h"))}
    for room in ROOMS:
        places |= dict.fromkeys(sorted((root / "src/kernels" / room).glob("*.h")), root / "src")
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as maker:
        known = {}
        names = {header: torch_names(header, (place, root / "include"), directories, known) for header, place in places.items()}
        every_name = sorted(set().union(*names.values()))
        files = dict(zip(every_name, pool.map(files_of, every_name)))
        read = {header: frozenset().union(*(files[name] for name in names[header])) for header in places}

        def precompile(path, wanted):
            path.write_text("".join(f"#include <{name}>\n" for name in sorted(wanted)), encoding="utf-8")
            run([*precompile_options, "-x", "c++-header", str(path), "-o", f"{path}.gch"])
            return path

        precompiled = {}
        for number, chosen in enumerate(worth_precompiling(read.values())):
            wanted = next(names[header] for header in places if read[header] == chosen)
            precompiled[chosen] = maker.submit(precompile, Path(made, f"{number}.h"), wanted)

        def errors_of(header):
            """The compiler's errors. No code is generated, because only parsing can fail."""
            place, text = places[header], header.read_text(encoding="utf-8")
            if ONLY_INCLUDES.fullmatch(text):
                return "\n".join(name for name in INCLUDE.findall(text) if place / name not in places)
            within = max((chosen for chosen in precompiled if chosen <= read[header]), key=len, default=None)
            first = ["-include", str(precompiled[within].result())] if within else []
            return run([*first, "-fsyntax-only", "-x", "c++", "-"], header.relative_to(place), folder=place).stderr

        in_turn = sorted(places, key=lambda header: len(read[header]))  # in the order of the precompiled headers
        said = dict(zip(in_turn, pool.map(errors_of, in_turn)))
    return {header.relative_to(root).as_posix(): said[header] for header in places}


TENSOR = "#include <ATen/core/Tensor.h>\ninline at::Tensor NAME(at::Tensor x) { return x; }\n"
RIGHT = {
    **{f"include/attentive/tensor{i}.h": TENSOR.replace("NAME", f"tensor{i}") for i in range(4)},  # worth precompiling
    "include/attentive/other.h": '#include "attentive/tensor0.h"\ninline at::Tensor other(at::Tensor x) { return tensor0(x); }\n',
    "include/attentive/none.h": "inline int none() { return 0; }\n",
    "include/attentive/all.h": "#pragma once\n\n// All\n#include <attentive/none.h>\n#include <attentive/other.h>\n",
    "src/kernels/simd/row.h": '#include "kernels/simd/lane.h"\ninline int row() { return lane(); }\n',
    "src/kernels/simd/lane.h": "inline int lane() { return 0; }\n",
}
WRONG = {  # each with a part of the compiler's error
    "include/attentive/no_tensor.h": ("inline at::Tensor f(at::Tensor x) { return x; }\n", "at::Tensor"),
    "include/attentive/part.h": ("#include <c10/core/Device.h>\ninline at::Tensor f(at::Tensor x) { return x; }\n", "Tensor"),
    "include/attentive/no_part.h": ('#include "attentive/none.h"\ninline c10::Device f(c10::Device x) { return x; }\n', "c10"),
    "include/attentive/no_std.h": ("inline std::size_t f() { return 0; }\n", "std"),
    "include/attentive/private.h": ('#include "kernels/simd/lane.h"\n', "kernels/simd/lane.h"),
    "include/attentive/gone.h": ("#pragma once\n// All\n#include <attentive/none.h>\n#include <attentive/no.h>\n", "attentive/no.h"),
    "include/attentive/unused.h": ("inline int f(int x) { return 0; }\n", "-Wunused-parameter"),
    "src/kernels/simd/no_lane.h": ("inline int wide() { return lane(); }\n", "lane"),
}


def self_test(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**RIGHT, **{name: text for name, (text, _) in WRONG.items()}}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        said = faults(Path(folder), *arguments)
    for name, text in said.items():
        expected = WRONG[name][1] if name in WRONG else ""
        assert bool(text) == bool(expected) and expected in text, f"{name}: expected {expected!r}, got {text!r}"
    assert said.keys() == RIGHT.keys() | WRONG.keys(), said.keys()
    print(f"headers alone: {len(WRONG)} faults of {len(said)} made-up headers found")


def main(root, *arguments):
    said = faults(Path(root), *arguments)
    for header, text in said.items():
        if text:
            print(f"{header} does not compile alone:\n{text[:2000]}")
    print(f"headers alone: {len(said)} headers, {sum(map(bool, said.values()))} faults")
    return any(said.values())


if __name__ == "__main__":
    _, tree, cxx, joined, *rest = sys.argv
    settings = (cxx, [directory for directory in joined.split("|") if directory], rest)
    sys.exit(self_test(*settings) if tree == "--self-test" else main(tree, *settings))
