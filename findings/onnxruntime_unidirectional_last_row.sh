#!/bin/bash
# onnxruntime 1.32.0, com.microsoft.MultiHeadAttention with unidirectional=1: with more keys than queries, the last
# query sees every key and the others see a triangle from the first key on. Neither alignment of a causal mask does so.
#
# Seen with Python 3.11: 3 queries over 5 keys see 1, 2 and 5 of them.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 60 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, numpy as np, onnx, onnxruntime
from onnx import helper
q, k, v = np.zeros((1, 3, 8), "float32"), np.zeros((1, 5, 8), "float32"), np.eye(5, 8, dtype="float32")[None]
info = lambda name, x: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x)
node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=1, unidirectional=1)
graph = helper.make_graph([node], "g", [info("q", q.shape), info("k", k.shape), info("v", v.shape)], [info("y", None)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
seen = [int(n) for n in (session.run(None, {"q": q, "k": k, "v": v})[0][0] > 0).sum(-1)]  # the output is the weights
print("onnxruntime", onnxruntime.__version__, "keys that the queries see:", seen)
sys.exit(seen != [1, 2, 5])
P
