#!/usr/bin/env python3
"""Compiles every public header by itself, and every header of the CPU kernel, for the portable instruction set.

    headers_alone_test.py ROOT COMPILER INCLUDE_DIRECTORIES(|-separated)   exit status 1 if one does not compile
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOMS = ("simd", "gemm", "attention", "native_cpu")


def errors_of(header, root, compiler, directories):
    """What the compiler says about a source that includes only this header. Nothing is generated: parsing is what may fail."""
    folder = root / ("include" if header.is_relative_to(root / "include") else "src")
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-psabi",
               "-x", "c++", "-", f"-I{folder}", *(f"-isystem{directory}" for directory in directories)]
    source = f'#include "{header.relative_to(folder)}"\n'
    return subprocess.run(command, input=source, capture_output=True, text=True).stderr


def main(root, compiler, directories):
    headers = sorted((root / "include").rglob("*.h"))
    headers += [header for room in ROOMS for header in sorted((root / "src/kernels" / room).glob("*.h"))]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda header: errors_of(header, root, compiler, directories), headers))
    for header, errors in zip(headers, said):
        if errors:
            print(f"{header.relative_to(root)} does not compile alone:\n{errors[:2000]}")
    print(f"headers alone: {len(headers)} headers, {sum(map(bool, said))} faults")
    return any(said)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], [directory for directory in sys.argv[3].split("|") if directory]))
