#!/bin/bash
# keras 3.15.1 (jax): a query that may see no key gets the mean of all values from MultiHeadAttention, and 0 once
# return_attention_scores=True is passed: asking for the scores changes the output.
#
# Seen with Python 3.11: without biases, the row's largest output is 0 with scores and not without.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 200 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 keras==3.15.1
JAX_PLATFORMS=cpu KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, keras, numpy as np
keras.utils.set_random_seed(0)
layer, x = keras.layers.MultiHeadAttention(2, 4, use_bias=False), np.random.randn(1, 4, 8).astype("float32")
mask = np.ones((1, 4, 4), bool)
mask[0, 2] = False
plain, scored = (np.asarray(y)[0] for y in (layer(x, x, attention_mask=mask), layer(x, x, attention_mask=mask, return_attention_scores=True)[0]))
same = [bool(np.allclose(a, b, atol=1e-5)) for a, b in zip(plain, scored)]
print("keras", keras.__version__, "rows that agree:", same, "; largest of the empty row:", abs(plain[2]).max(), "and with scores", abs(scored[2]).max())
sys.exit(not (same == [True, True, False, True] and abs(scored[2]).max() == 0))
P
