#!/bin/sh
# Under fallback_random, a compiled rand_like of a transposed tensor puts eager's numbers elsewhere.
#
# Inductor's fallback_random promises the random numbers of the eager program. torch.rand_like keeps the strides of its argument and
# draws in the order of memory. The program that PyTorch 2.7 compiles draws as many numbers, but into a contiguous tensor, so that
# they stand at other indices: the generator ends in the eager state, and every later draw agrees. PyTorch 2.11 keeps the strides.
#
# Seen with torch 2.7.0: equal False, the same numbers when sorted True, state of the generator equal True; with 2.11.0: True three
# times.
# Exit status 0: as described; 1: the behaviour has changed. Needs g++; downloads some 6 GB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PYTHON'
import sys

import torch
import torch._inductor.config as inductor

x, results = torch.ones(1, 7, 3, 8).transpose(1, 2), []
with inductor.patch(fallback_random=True):
    for program in (torch.rand_like, torch.compile(lambda x: torch.rand_like(x))):
        torch.manual_seed(6)
        results.append((program(x), torch.get_rng_state()))
(a, state_a), (b, state_b) = results
found = [a.equal(b), a.flatten().sort()[0].equal(b.flatten().sort()[0]), state_a.equal(state_b)]
print("torch", torch.__version__, "equal, equal when sorted, equal states:", found)
assert found == [sys.argv[1] != "2.7.0", True, True], found
PYTHON
for release in 2.7.0 2.11.0; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q --disable-pip-version-check "torch==$release" 'numpy>=2,<3' setuptools
  "$folder/$release/bin/python" "$folder/program.py" "$release"
done
