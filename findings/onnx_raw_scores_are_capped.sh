#!/bin/bash
# onnx 1.23.2: Attention's qk_matmul_output_mode 0 is documented as "raw QK matmul result". The reference evaluator
# returns it after the softcap, as mode 1 does; onnxruntime 1.32.0 returns the raw product.
#
# Seen with Python 3.11: scores 4 and 0 under a softcap of 0.5 are 0.5 and 0 in the reference.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 60 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, numpy as np, onnx, onnx.reference, onnxruntime
from onnx import helper
q = np.full((1, 1, 1, 4), 2, "float32")
k = np.stack([np.ones(4), np.zeros(4)]).astype("float32")[None, None]
found = {}
for mode in (0, 1):
    node = helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "s"], softcap=0.5, qk_matmul_output_mode=mode)
    info = lambda name, x: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x)
    graph = helper.make_graph([node], "g", [info("q", q.shape), info("k", k.shape), info("v", k.shape)], [info("y", None), info("s", None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    given = {"q": q, "k": k, "v": k}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, run in (("onnx", onnx.reference.ReferenceEvaluator(model).run), ("onnxruntime", session.run)):
        found[name, mode] = [round(float(x), 3) for x in run(None, given)[1].ravel()]
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__, found)
sys.exit(found != {("onnx", 0): [0.5, 0], ("onnxruntime", 0): [4, 0], ("onnx", 1): [0.5, 0], ("onnxruntime", 1): [0.5, 0]})
P
