#!/bin/bash
# onnx 1.23.2: Attention takes a mask of any shape that broadcasts. Beside is_causal, the reference evaluator lets every
# query see only what the first one may see if the mask has one row for all queries, such as (1, S). The same row written
# out for each query, or left_window_size beside it, gives the causal order.
#
# Seen with Python 3.11, under masks of 0: three queries see 1, 1 and 1 keys, and 1, 2 and 3 in the other two ways.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 40 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check onnx==1.23.2
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, numpy as np, onnx, onnx.reference
from onnx import helper
x, v = np.zeros((1, 1, 3, 4), "float32"), np.eye(3, 4, dtype="float32")[None, None]  # the output is the weights
def seen(rows, **attributes):
    given = {"q": x, "k": x, "v": v, "mask": np.zeros((rows, 3), "float32")}
    info = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    node = helper.make_node("Attention", list(given), ["y"], is_causal=1, **attributes)
    graph = helper.make_graph([node], "g", [info(name, x.shape) for name, x in given.items()], [info("y", None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return [int(n) for n in (onnx.reference.ReferenceEvaluator(model).run(None, given)[0][0, 0] > 0).sum(-1)]
found = {"mask (1, 3)": seen(1), "mask (3, 3)": seen(3), "mask (1, 3), window": seen(1, left_window_size=2)}
print("onnx", onnx.__version__, "keys that three queries see:", found)
sys.exit(list(found.values()) != [[1, 1, 1], [1, 2, 3], [1, 2, 3]])
P
