#!/bin/bash
# flax 0.12.8 (linen and nnx), keras 3.15.1 (jax), equinox 0.13.8 and dm-haiku 0.0.17 take a floating-point mask in
# the argument `mask` and keep what is not 0. The additive mask of PyTorch, MLX and ONNX, 0 where a key may be seen
# and -inf where not, therefore shows exactly the keys that it should hide, without a word.
#
# Seen with Python 3.11: with two keys and the mask [0, -inf], all five return the value of the second key.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 250 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 flax==0.12.8 keras==3.15.1 equinox==0.13.8 dm-haiku==0.0.17
JAX_PLATFORMS=cpu KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, equinox, flax, flax.linen, flax.nnx, haiku, jax, keras, numpy as np
x, v = np.ones((1, 2, 1, 4), "float32"), np.array([1, 2], "float32").reshape(1, 2, 1, 1) * np.ones(4, "float32")
q, mask = x[:, :1], np.array([0, -np.inf], "float32").reshape(1, 1, 1, 2)
layer = equinox.nn.MultiheadAttention(1, 4, key=jax.random.key(0))
layer = equinox.tree_at(lambda m: [m.query_proj.weight, m.key_proj.weight, m.value_proj.weight, m.output_proj.weight], layer, [np.eye(4)] * 4)
plain = lambda *x: haiku.MultiHeadAttention(1, 4, w_init=haiku.initializers.Identity())(*x[:3], mask=x[3])
made, one = haiku.transform(plain), lambda x: x[:, :, 0]
weights = made.init(jax.random.key(0), one(q), one(x), one(v), mask)
found = {
    "flax.linen": flax.linen.dot_product_attention(q, x, v, mask=mask),
    "flax.nnx": flax.nnx.dot_product_attention(q, x, v, mask=mask),
    "keras.ops": keras.ops.dot_product_attention(q, x, v, mask=mask),
    "equinox": layer(one(q)[0], one(x)[0], one(v)[0], mask=mask[0]),
    "haiku": made.apply(weights, None, one(q), one(x), one(v), mask),
}
found = {name: float(np.asarray(y).ravel()[0]) for name, y in found.items()}
print("values 1 and 2, mask [0, -inf]:", found)
sys.exit(set(found.values()) != {2.0})
P
