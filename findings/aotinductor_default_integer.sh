#!/bin/sh
# A package of AOTInductor returns None where an operator's keyword-only integer is left at its default.
#
# One guesses that `int n=-1` and `int? n=None` are two spellings of one default, and that a default that nobody passes costs
# nothing. In PyTorch 2.7 the compiled package hands over every keyword-only integer, but its list of arguments names only those
# that the program passed: the call is refused inside ("Mismatch between ints consumed and num_ints"), the error is printed, and
# the package returns None without raising. An integer that is passed, and an optional one, are right. PyTorch 2.11 is right.
#
# Seen with torch 2.7.0: given and optional [2, 2, 2], left_out None; with 2.11.0 all three [2, 2, 2].
# Exit status 0: as described; 1: the behaviour has changed. Needs g++; downloads some 6 GB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PYTHON'
import sys

import torch

library = torch.library.Library("finding", "DEF")
for name, schema in (("given", "int n"), ("left_out", "int n=-1"), ("optional", "int? n=None")):
    library.define(f"{name}(Tensor x, *, {schema}) -> Tensor")
    library.impl(name, lambda x, n=-1: x * 2, "CPU")
    library.impl(name, lambda x, n=-1: torch.empty_like(x), "Meta")
x, found = torch.ones(3), {}
for name, options in (("given", {"n": 4}), ("left_out", {}), ("optional", {})):

    class Model(torch.nn.Module):
        def forward(self, x):
            return getattr(torch.ops.finding, name)(x, **options)

    package = torch._inductor.aoti_compile_and_package(torch.export.export(Model(), (x,)))
    result = torch._inductor.aoti_load_package(package)(x)
    found[name] = None if result is None else result.tolist()
print("torch", torch.__version__, found)
right = [2.0, 2.0, 2.0]
assert found == {"given": right, "left_out": None if sys.argv[1] == "2.7.0" else right, "optional": right}, found
PYTHON
for release in 2.7.0 2.11.0; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q --disable-pip-version-check "torch==$release" 'numpy>=2,<3' setuptools
  "$folder/$release/bin/python" "$folder/program.py" "$release"
done
