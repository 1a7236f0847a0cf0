#!/bin/sh
# onnx: collect_testcases(op_type) returns the cases of the operator that a process asked for first.
#
# onnx.backend.test.case.node.collect_testcases takes the operator whose cases one wants. One guesses that each call returns those.
# The cases are gathered while the modules that define them are imported, which happens once: a later call for another operator
# returns the list of the first call, and the length of what it should have returned tells nothing.
#
# Seen with onnx 1.23.2: 28 cases for LinearAttention, then the same 28 for Attention; in a new process 186 for Attention.
# Exit status 0: as described; 1: the behaviour has changed. Downloads some 60 MB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --disable-pip-version-check onnx==1.23.2 'numpy>=2,<3' ml_dtypes
cat >"$folder/program.py" <<'PYTHON'
import sys
import warnings

import onnx
from onnx.backend.test.case.node import collect_testcases

warnings.simplefilter("ignore")
found = [[case.name for case in collect_testcases(name)] for name in sys.argv[1:]]
for name, names in zip(sys.argv[1:], found):
    print(f"onnx {onnx.__version__}: {name:16s} {len(names):4d} cases, the first {names[0]}")
if len(found) == 2:
    assert found[0] == found[1]
else:
    assert len(found[0]) == 186 and all(name.startswith("test_attention") for name in found[0]), len(found[0])
PYTHON
"$folder/env/bin/python" "$folder/program.py" LinearAttention Attention
"$folder/env/bin/python" "$folder/program.py" Attention
