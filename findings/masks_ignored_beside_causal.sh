#!/bin/bash
# paddle 3.3.1 and openvino 2026.4.1: scaled_dot_product_attention with a mask and the causal flag computes the causal
# order alone, without a word. (PyTorch and tinygrad refuse the two together, MLX has one argument for both, and ONNX,
# jax and keras combine them.)
#
# Seen on the CPU with Python 3.11: a mask that hides the first key leaves the output of the causal flag unchanged.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 300 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check paddlepaddle==3.3.1 openvino==2026.4.1
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, numpy as np, openvino, paddle
from openvino import opset13
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 4, 8)).astype("float32")
keep = np.ones((1, 1, 4, 4), bool)
keep[..., 0] = False
def of_openvino(*given, causal):
    nodes = [opset13.parameter(x.shape, x.dtype) for x in given]
    model = openvino.Model([opset13.scaled_dot_product_attention(*nodes, causal=causal)], nodes)
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(list(given))[0]
def of_paddle(q, k, v, mask=None, *, causal):
    q, k, v = (paddle.to_tensor(x.transpose(0, 2, 1, 3)) for x in (q, k, v))
    mask = None if mask is None else paddle.to_tensor(mask)
    return paddle.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).numpy()
found = {}
for name, call in (("paddle", of_paddle), ("openvino", of_openvino)):
    both, causal = call(q, k, v, keep, causal=True), call(q, k, v, causal=True)
    mask, none = call(q, k, v, keep, causal=False), call(q, k, v, causal=False)
    found[name] = bool(np.allclose(both, causal, atol=1e-6)), not np.allclose(mask, none, atol=1e-3)
print("paddle", paddle.__version__, "openvino", openvino.__version__.split("-")[0], "(ignored beside causal, acts alone):", found)
sys.exit(set(found.values()) != {(True, True)})
P
