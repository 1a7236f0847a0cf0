#!/bin/bash
# mlx 0.32.4: mx.fast.scaled_dot_product_attention hides by a bool mask, and adds a mask of integers to the scores. A
# 0/1 mask of int32, as tokenizers return it, hides nothing: it makes kept keys e times as heavy as the others.
#
# Seen with Python 3.11: weights 0.731 and 0.269 for the mask [1, 0] of int32, 1 and 0 for the same mask of bool.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 50 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check 'mlx[cpu]==0.32.4' numpy==2.4.6
"$folder/venv/bin/python" - <<'P' 2> /dev/null
import importlib.metadata, sys, mlx.core as mx, numpy as np
x, v = mx.zeros((1, 1, 2, 2)), mx.eye(2)[None, None]
call = lambda kind: np.array(mx.fast.scaled_dot_product_attention(x[:, :, :1], x, v, scale=1.0, mask=mx.array([[1, 0]]).astype(kind))).ravel().round(3).tolist()
found = {str(kind): call(kind) for kind in (mx.bool_, mx.int32)}
print("mlx", importlib.metadata.version("mlx"), "weights:", found)
sys.exit(not (np.allclose(found["mlx.core.bool"], [1, 0]) and np.allclose(found["mlx.core.int32"], [0.731, 0.269], atol=1e-3)))
P
