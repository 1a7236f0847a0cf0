#!/usr/bin/env python3
"""Compiles score_mistakes.cpp once for each of its mistakes and wants errors that name the fix, and no others.

    score_mistakes_test.py COMPILER 'DIRECTORY|DIRECTORY|...'    exit status 1 if one is missing or there is another error

The header that it includes is parsed once, as a precompiled one.
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FIXES = {  # text of the messages: the numbers of the mistakes
    "write where(condition, yes, no) in place of if and ?:, and & | ! in place of && || not": (1, 2, 3, 4),
    "a score function takes (auto s, auto pair), and is const": (5, 6),
    "a mask function takes (auto pair), and is const": (7,),
    "a score function returns a number per pair, the new score": (8, 9),
    "a mask function returns a condition per pair, such as pair.query >= pair.key": (10, 11),
    "a lookup in a captured tensor takes one to four indices of `pair` and integers": (12, 13, 14, 15, 18, 19),
    "an index is divided by a number that is the same for all pairs, such as 16": (16, 17),
}
SOURCE = Path(__file__).with_name("score_mistakes.cpp")


def main():
    compiler, directories = sys.argv[1], [d for d in sys.argv[2].split("|") if d]
    places, number = {}, None  # the lines of each mistake
    for line, text in enumerate(SOURCE.read_text().splitlines(), start=1):
        if text.startswith("#"):
            number = int(text.split("==")[1].split()[0]) if "MISTAKE ==" in text else None
        elif number is not None:
            places.setdefault(number, []).append(line)
    fixes = {number: fix for fix, numbers in FIXES.items() for number in numbers}
    assert places.keys() == fixes.keys() | {0}, places

    command = [compiler, "-std=c++20", *(f"-isystem{directory}" for directory in directories)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        header = Path(folder, "score_mod.h")
        header.write_text("#include <attentive/score/score_mod.h>\n")
        subprocess.run([*command, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)

        def compiled(number):
            chosen = ["-include", str(header), "-fsyntax-only", f"-DMISTAKE={number}", "-x", "c++", str(SOURCE)]
            return subprocess.run([*command, *chosen], capture_output=True, text=True, check=False).stderr

        said = dict(zip(places, pool.map(compiled, places)))
    faults = [f"the correct functions do not compile: {said[0]}"] if said[0] else []
    for number, fix in fixes.items():
        errors = re.findall(r"^\S+:\d+:\d+: (?:fatal )?error: (.*)$", said[number], re.MULTILINE)
        if not errors:
            faults.append(f"mistake {number}: no error")
        faults += [f"mistake {number}: another error: {error}" for error in errors if fix not in error]
        if not any(f"score_mistakes.cpp:{line}:" in said[number] for line in places[number]):
            faults.append(f"mistake {number}: not traced back to line {places[number][0]}")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(fixes)} mistakes in scores and masks, each with its fix")


if __name__ == "__main__":
    main()
