#!/bin/bash
# flax 0.12.8: nnx.MultiHeadAttention with decode=True takes one token a call. Steps beyond the length of the cache
# that init_cache made raise nothing: they overwrite its last place and return other numbers.
#
# Seen with Python 3.11: with a cache of 3 tokens, steps 1 to 3 equal the causal pass over all tokens, step 4 does not.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 200 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 flax==0.12.8
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, flax, jax, numpy as np
from flax import nnx
layer = nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, rngs=nnx.Rngs(0))
x = jax.random.normal(jax.random.key(1), (1, 4, 8))
whole = layer(x, mask=nnx.make_causal_mask(np.ones((1, 4))))
layer.init_cache((1, 3, 8))
same = [bool(np.allclose(layer(x[:, i : i + 1], decode=True)[0, 0], whole[0, i], atol=1e-4)) for i in range(4)]
print("flax", flax.__version__, "steps that equal the whole pass, with a cache of 3:", same)
sys.exit(same != [True, True, True, False])
P
