#!/usr/bin/env python3
"""Compiles every header of the CPU kernel by itself, as an editor parses it: for the portable instruction set.

    headers_alone_test.py ROOT COMPILER INCLUDE_DIRECTORIES(|-separated)   exit status 1 if one does not compile
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOMS = ("simd", "gemm", "attention", "native_cpu")


def errors_of(header, root, compiler, directories):
    """What the compiler says about a source that includes only this header."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-psabi",
               "-x", "c++", "-", f"-I{root / 'src'}", *(f"-isystem{directory}" for directory in directories)]
    run = subprocess.run(command, input=f'#include "{header.relative_to(root / "src")}"\n', capture_output=True, text=True)
    return run.stderr


def main(root, compiler, directories):
    headers = [header for room in ROOMS for header in sorted((root / "src/kernels" / room).glob("*.h"))]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda header: errors_of(header, root, compiler, directories), headers))
    for header, errors in zip(headers, said):
        if errors:
            print(f"{header.relative_to(root)} does not compile alone:\n{errors[:2000]}")
    print(f"headers alone: {len(headers)} headers, {sum(map(bool, said))} faults")
    return any(said)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], [directory for directory in sys.argv[3].split("|") if directory]))
