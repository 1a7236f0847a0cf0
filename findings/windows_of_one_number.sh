#!/bin/bash
# What a sliding window of the number 2 shows a query in the middle of nine tokens depends on the library: two keys or
# three, to one side or to both. jax 0.10.2 reads the number as (2, 2), also to the right; keras 3.15.1 shows fewer
# than 2 tokens of distance, also to the right unless the layer is causal; onnxruntime 1.32.0 counts two keys.
#
# Seen with Python 3.11, keys relative to the query: jax -2 to 2, keras -1 to 1, keras causal -1 to 0, onnxruntime -1 to 0.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 260 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 keras==3.15.1 onnx==1.23.2 onnxruntime==1.32.0
JAX_PLATFORMS=cpu KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, jax, keras, numpy as np, onnx, onnxruntime
from onnx import helper
width = 16  # nine unit vectors as values, so that the output is the weights
x, v = np.zeros((1, 9, 1, width), "float32"), np.eye(9, width, dtype="float32")[None, :, None]
layer = keras.layers.MultiHeadAttention(1, width, use_bias=False, sliding_window=2)
layer.build((1, 9, width), (1, 9, width), (1, 9, width))
eye = np.eye(width, dtype="float32")
layer.set_weights([eye[:, None]] * 3 + [eye[None]])
info = lambda name, shape, kind=onnx.TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, shape)
names = ["q", "k", "v", "", "", "lengths", "all"]
node = helper.make_node("GroupQueryAttention", names, ["y", "a", "b"], domain="com.microsoft", num_heads=1, kv_num_heads=1, local_window_size=2)
inputs = [info(name, (1, 9, width)) for name in "qkv"] + [info("lengths", (1,), onnx.TensorProto.INT32), info("all", (), onnx.TensorProto.INT32)]
graph = helper.make_graph([node], "g", inputs, [info(name, None) for name in ("y", "a", "b")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
flat = lambda x: x[:, :, 0]
given = {"q": flat(x), "k": flat(x), "v": flat(v), "lengths": np.array([8], "int32"), "all": np.array(9, "int32")}
found = {
    "jax": jax.nn.dot_product_attention(x, x, v, local_window_size=2),
    "keras": layer(flat(x), flat(v), flat(x)),
    "keras, causal": layer(flat(x), flat(v), flat(x), use_causal_mask=True),
    "onnxruntime": session.run(None, given)[0],
}
found = {name: (np.flatnonzero(np.asarray(y).reshape(9, -1)[4] > 1e-6) - 4).tolist() for name, y in found.items()}
print("keys that query 4 sees, relative to it:", found)
sys.exit(found != {"jax": [-2, -1, 0, 1, 2], "keras": [-1, 0, 1], "keras, causal": [-1, 0], "onnxruntime": [-1, 0]})
P
