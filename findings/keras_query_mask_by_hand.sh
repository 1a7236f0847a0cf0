#!/bin/bash
# keras 3.15.1 (jax): MultiHeadAttention takes query_mask, and ignores one that is passed to it. The same mask that an
# Embedding(mask_zero=True) attached to the tensor acts: the rows of padded queries become the mean of all values.
#
# Seen with Python 3.11: an all-False query_mask changes nothing; the attached mask changes the padded rows.
# Status 0: the behaviour is as described. 1: it has changed. Downloads some 200 MB into a temporary folder.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 keras==3.15.1
JAX_PLATFORMS=cpu KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'P' 2> /dev/null
import sys, keras, numpy as np
keras.utils.set_random_seed(0)
layer, x = keras.layers.MultiHeadAttention(2, 4), np.random.randn(1, 4, 8).astype("float32")
y = np.random.randn(1, 5, 8).astype("float32")
plain = np.asarray(layer(x, y))
passed = np.asarray(layer(x, y, query_mask=np.zeros((1, 4), bool)))
tokens = np.array([[1, 2, 0, 0]])
embedded = keras.layers.Embedding(3, 8, mask_zero=True)(tokens)
attached = np.asarray(layer(embedded, y))
without = np.asarray(layer(np.asarray(embedded), y))
rows = [not np.allclose(attached[0, i], without[0, i], atol=1e-4) for i in range(4)]
print("keras", keras.__version__, "passed mask changes the output:", not np.allclose(plain, passed, atol=1e-6), "; attached mask changes the rows", rows)
sys.exit(not (np.allclose(plain, passed, atol=1e-6) and rows == [False, False, True, True]))
P
