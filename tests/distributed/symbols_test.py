#!/usr/bin/env python3
"""No object of attentive::distributed defines what belongs to Gloo, and no public header needs c10d.

    symbols_test.py <nm> <libattentive_distributed> <include/attentive/distributed>
"""

import re
import subprocess
import sys
from pathlib import Path

# A definition of ours would replace that of LibTorch, which was compiled with Gloo's real headers.
FOREIGN = re.compile(r"^(?:(?:vtable|typeinfo|typeinfo name|VTT) for )?(?:gloo::|c10d::ProcessGroupGloo::GlooStore)")


def foreign_definitions(nm, library):
    """Names of Gloo that a library defines."""
    table = subprocess.run([nm, "-C", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = [line.split(" ", 2)[2] for line in table.splitlines() if re.match(r"[0-9a-f]+ \S ", line)]
    if not any("gloo_backend" in name for name in names):
        sys.exit(f"{library} defines no gloo_backend: not the library that this test is about")
    return [name for name in names if FOREIGN.match(name)]


def main():
    nm, library, headers = sys.argv[1:]
    faults = [f"{library} defines {name}" for name in foreign_definitions(nm, library)]
    for header in sorted(Path(headers).glob("*.h")):
        faults += [f"{header}: {line}" for line in header.read_text(encoding="utf-8").splitlines()
                   if re.search(r"#\s*include\s*<(?:torch/csrc|gloo)/|c10d::", line)]
    print("\n".join(faults) or "nothing of Gloo is defined, and no header includes c10d")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
