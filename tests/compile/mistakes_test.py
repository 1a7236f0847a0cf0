#!/usr/bin/env python3
"""Compiles mistakes.cpp and wants, for every line marked as a mistake, one error that names the fix.

    mistakes_test.py BUILD COMPILER    exit status 1 if one is missing or there is another error
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

FIXES = {  # text of a message: how often
    "causal is not a flag: write .causal = attentive::Causal::BottomRight": 2,
    "'attentive::Align'": 2,
    "GPT takes its sizes as options: GPT model(attentive::GPTOptions(vocab_size, context_length, emb_dim, ": 2,
    "ViT takes its sizes as options: ViT model(attentive::ViTOptions(image_size, patch_size, channels, ": 1,
    "ViTBlock takes its sizes as options: ViTBlock block(attentive::ViTOptions(": 1,
}


def errors_of(build, compiler, source):
    """The compiler's messages about the source, compiled as the build would: with its precompiled header, but without an object
    and without warnings."""
    entry = next(entry for entry in json.loads(Path(build, "compile_commands.json").read_text(encoding="utf-8"))
                 if Path(entry["directory"], entry["file"]) == source)
    words = shlex.split(entry["command"])
    words = words[words.index(compiler):words.index("-o")]  # a launcher such as ccache comes before, the object after
    return subprocess.run([*words, "-fsyntax-only", "-w", str(source)], cwd=entry["directory"], capture_output=True, text=True,
                          check=False).stderr


def main():
    source = Path(__file__).resolve().with_name("mistakes.cpp")
    text = errors_of(*sys.argv[1:3], source)

    faults = []
    errors = re.findall(r"^\S+:\d+:\d+: (?:fatal )?error: (.*)$", text, re.MULTILINE)
    for fix, count in FIXES.items():
        found = sum(fix in error for error in errors)
        if found != count:
            faults.append(f"expected {count} times, got {found}: {fix}")
    faults += [f"another error: {error}" for error in errors if not any(fix in error for fix in FIXES)]
    for number, line in enumerate(source.read_text().splitlines(), start=1):
        if line.endswith("// mistake") and f"mistakes.cpp:{number}:" not in text:
            faults.append(f"not traced back to line {number}: {line.strip()}")
    if faults:
        sys.exit("\n".join([*faults, text]))
    print(f"{len(errors)} mistakes, each with its fix")


if __name__ == "__main__":
    main()
