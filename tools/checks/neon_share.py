#!/usr/bin/env python3
"""How much of the native kernel's hot loops on 64-bit ARM is NEON arithmetic, read from the disassembly.

    tools/checks/neon_share.py [BUILD FOLDER, default build/aarch64]

Of each function below, the innermost loop without calls whose share is the largest, which is the one over whole vectors:
its instructions, those that compute on vectors (moves, loads and stores left out), and those that reach the stack, which
would be sums that the registers did not hold. Exit status 1 if a loop is not found.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OBJDUMP = "aarch64-linux-gnu-objdump"
# Title, table of kernels, function as it is demangled.
LOOPS = (
    ("float32 products, 8 rows by 8 columns", "neon", r"gemm_block<.*StepF32, 8, 2, false, false>"),
    ("bfloat16 products, 8 rows by 8 columns", "neon_bf16", r"gemm_block<.*StepBf16, 8, 2, false, false>"),
    ("softmax row, float32 weights", "neon", r"weigh<false, false>"),
    ("softmax row, float32 weights, dropout", "neon", r"weigh<false, true>"),
    ("softmax row, bfloat16 weights", "neon_bf16", r"weigh<true, false>"),
    ("gradient row, the densest of its kinds", "neon", r"gradient_row\("),
    ("dropout bits", "neon", r"dropout_bits\("),
)
VECTOR = re.compile(r"v\d+\.(?:16b|8h|4h|4s|2d)")
NO_ARITHMETIC = re.compile(r"(?:mov|mvn|dup|ins|ld|st|umov|smov)")


def functions(path):
    """Name and instructions (address, mnemonic, operands) of each function of an object file."""
    text = subprocess.run([OBJDUMP, "-d", "-C", "--no-show-raw-insn", str(path)], check=True, text=True,
                          capture_output=True).stdout
    name, found = None, []
    for line in text.splitlines():
        if start := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            name, body = start[1], []
            found.append((name, body))
        elif name and (instruction := re.match(r"\s+([0-9a-f]+):\t(\S+)\s*(.*)", line)):
            body.append((int(instruction[1], 16), instruction[2], instruction[3]))
    return found


def innermost_loops(body):
    at = {address: i for i, (address, _, _) in enumerate(body)}
    spans = []
    for i, (_, mnemonic, operands) in enumerate(body):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if re.match(r"b\b|b\.|cb|tb", mnemonic) and target and at.get(int(target[1], 16), i + 1) <= i:
            spans.append((at[int(target[1], 16)], i))
    for start, end in spans:
        if not any(start <= s and e <= end and (s, e) != (start, end) for s, e in spans):
            loop = body[start:end + 1]
            if not any(mnemonic in ("bl", "blr") for _, mnemonic, _ in loop):
                yield loop


def counts(loop):
    arithmetic = sum(bool(VECTOR.search(operands)) and not NO_ARITHMETIC.match(mnemonic) for _, mnemonic, operands in loop)
    return len(loop), arithmetic, sum("[sp" in operands for _, _, operands in loop)


def main():
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/aarch64"
    objects = {path.name: path for path in build.rglob("simd_neon*.o")}
    lacking = False
    print("| loop | instructions | NEON arithmetic | share | on the stack |\n|---|---|---|---|---|")
    for title, table, pattern in LOOPS:
        path = objects.get(f"simd_{table}.cpp.o")
        loops = [counts(loop) for name, body in (functions(path) if path else ()) if re.search(pattern, name)
                 for loop in innermost_loops(body)]
        if not loops:
            lacking = True
            print(f"| {title} | not found | | | |")
            continue
        size, arithmetic, stack = max(loops, key=lambda loop: (loop[1] / loop[0], loop[0]))
        print(f"| {title} | {size} | {arithmetic} | {100 * arithmetic / size:.0f} % | {stack} |")
    return 1 if lacking else 0


sys.exit(main())
