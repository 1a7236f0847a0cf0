#!/usr/bin/env python3
"""No object of attentive::distributed defines what belongs to Gloo; it calls NCCL and CUDA only in a build with NCCL, as another one
must link with the CPU half of LibTorch; and no public header needs c10d or CUDA.

    symbols_test.py <nm> <libattentive_distributed> <include/attentive/distributed> <whether it is built with NCCL: ON or OFF>
"""

import re
import subprocess
import sys
from pathlib import Path

# Our own definition would replace that of LibTorch, which was compiled with Gloo's real headers.
FOREIGN = re.compile(r"^(?:(?:vtable|typeinfo|typeinfo name|VTT) for )?(?:gloo::|c10d::ProcessGroupGloo::GlooStore)")
ON_CUDA = re.compile(r"^(?:c10d::ProcessGroupNCCL::|c10::cuda::|at::cuda::|torch::cuda::nccl::|cuda[A-Z]|nccl[A-Z])")
INCLUDE = re.compile(r"#\s*include\s*<(?:torch/csrc|gloo|ATen/cuda|c10/cuda|nccl|cuda)|c10d::")


def names(nm, library, which):
    """The names that a library defines, or refers to."""
    table = subprocess.run([nm, "-C", f"--{which}-only", library], check=True, capture_output=True, text=True).stdout
    return {match[1] for match in re.finditer(r"^(?:[0-9a-f]+)? +[A-Za-z] (.+)$", table, re.M)}


def faults_of(nm, library, with_nccl):
    defined, called = names(nm, library, "defined"), names(nm, library, "undefined")
    if not any("gloo_backend" in name for name in defined):
        sys.exit(f"{library} defines no gloo_backend: not the library that this test is about")
    faults = [f"{library} defines {name}" for name in sorted(defined) if FOREIGN.match(name)]
    on_cuda = sorted(name for name in called - defined if ON_CUDA.match(name))
    if not with_nccl:
        faults += [f"{library} calls {name}, in a build without NCCL" for name in on_cuda]
    elif not any(name.startswith("c10d::ProcessGroupNCCL::ProcessGroupNCCL(") for name in on_cuda):
        faults.append(f"{library} makes no c10d::ProcessGroupNCCL, in a build with NCCL")
    return faults


def main():
    nm, library, headers, with_nccl = sys.argv[1:]
    faults = faults_of(nm, library, with_nccl == "ON")
    for header in sorted(Path(headers).glob("*.h")):
        faults += [f"{header}: {line}" for line in header.read_text(encoding="utf-8").splitlines() if INCLUDE.search(line)]
    print("\n".join(faults) or "nothing of Gloo is defined, CUDA is called only with NCCL, and no header includes c10d or CUDA")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
