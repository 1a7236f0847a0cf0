#!/bin/bash
# onnx 1.23.2: Attention takes a mask of any shape that broadcasts. Beside is_causal, the reference evaluator lets every
# query see only what the first one may see if the mask has one row for all queries, such as (1, S); onnxruntime 1.32.0
# computes the causal order. With left_window_size the evaluator does, too.
#
# Seen with Python 3.11: three queries see 1, 1 and 1 keys in the reference, 1, 2 and 3 in onnxruntime, under a mask of 0.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 60 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, numpy as np, onnx, onnx.reference, onnxruntime
from onnx import helper
x, v = np.zeros((1, 1, 3, 4), "float32"), np.eye(3, 4, dtype="float32")[None, None]  # the output is the weights
given = {"q": x, "k": x, "v": v, "mask": np.zeros((1, 3), "float32")}
info = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
graph = helper.make_graph([helper.make_node("Attention", list(given), ["y"], is_causal=1)], "g", [info(name, x.shape) for name, x in given.items()], [info("y", None)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
seen = lambda run: [int(n) for n in (run(None, given)[0][0, 0] > 0).sum(-1)]
found = {"onnx": seen(onnx.reference.ReferenceEvaluator(model).run), "onnxruntime": seen(session.run)}
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__, "keys that three queries see:", found)
sys.exit(found != {"onnx": [1, 1, 1], "onnxruntime": [1, 2, 3]})
P
