#!/bin/sh
# torch.compile merges two equal calls of a custom operator that draws, although it is tagged nondeterministic_seeded.
#
# PyTorch documents the tag as "seeded randomness: two calls with the same inputs may differ". One guesses that the tag keeps a
# compiler from merging calls. It does not: the pass that merges common subexpressions of a training graph
# (torch/_functorch/compile_utils.py, fx_graph_cse) reads only a list of aten operators. An argument that comes from one of the
# listed operators keeps the calls apart: torch.randperm(0) is empty and draws no number.
#
# Seen with torch 2.11.0: torch.rand and the salted operator give two different tensors, the tagged one the same tensor twice.
# Exit status 0: as described; 1: the behaviour has changed. Downloads some 3 GB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --disable-pip-version-check torch==2.11.0 'numpy>=2,<3'
cat >"$folder/program.py" <<'PYTHON'
import torch

library = torch.library.Library("finding", "DEF")
tags = (torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded)
library.define("noise(Tensor x) -> Tensor", tags=tags)
library.define("salted(Tensor x, Tensor salt) -> Tensor", tags=tags)
library.impl("noise", lambda x: x + torch.rand(x.shape), "CPU")
library.impl("salted", lambda x, salt: x + torch.rand(x.shape), "CPU")
library.impl("noise", lambda x: torch.empty_like(x), "Meta")
library.impl("salted", lambda x, salt: torch.empty_like(x), "Meta")
x = torch.ones(8, requires_grad=True)
calls = {
    "torch.rand": lambda x: x + torch.rand(8),
    "tagged": lambda x: torch.ops.finding.noise(x),
    "tagged, salted": lambda x: torch.ops.finding.salted(x, torch.randperm(0)),
}
found = []
for name, call in calls.items():
    # The sums are returned, since two tensors that a program returns are never merged.
    program = lambda x: (call(x.detach()) * x, call(x.detach()) * x)
    a, b = program(x)
    torch._dynamo.reset()
    c, d = torch.compile(program, fullgraph=True, backend="aot_eager_decomp_partition")(x)
    found.append((name, a.equal(b), c.equal(d)))
    print(f"{name:16s} eager: equal {a.equal(b)!s:6s} compiled: equal {c.equal(d)}")
print("torch", torch.__version__)
assert found == [("torch.rand", False, False), ("tagged", False, True), ("tagged, salted", False, False)], found
PYTHON
"$folder/env/bin/python" "$folder/program.py"
