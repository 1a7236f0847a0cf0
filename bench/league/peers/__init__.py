"""The peers of the league, each an object PEER of a module; that of transformers also has the object COMPILED.

Each has `name`, `environment` (environments.Environment) and `start(threads)`, which returns versions by name.

A peer of attention alone has `ways`, the names of its contenders; `call(way, case)`, which returns a function of no
arguments; and `numbers(result)`, the result as a float32 array (1, heads, tokens, head_dim). `case` has the folder of the
inputs, the sizes, the variant and the dtype.

A peer of whole models has `dtypes`; `convert(folder, dtype, target)`, where it needs a format of its own;
`load(folder, dtype)`; `continued(prompt, tokens, note)`, which calls `note` with each new token, greedily chosen; and
`logits(prompt)`, those of the last token, or an exception where the runtime does not show them.

A module is imported without its runtime; methods import that.
"""

import importlib

ATTENTION = ("torch_attention", "openvino_attention", "onnxruntime_attention", "vllm_attention")
MODELS = ("transformers_model", "transformers_compiled", "ctranslate2_model", "openvino_genai_model", "llama_cpp_model",
          "onnxruntime_genai_model")


def peer(name):
    module = "transformers_model" if name == "transformers_compiled" else name
    return getattr(importlib.import_module(f"peers.{module}"), "COMPILED" if name != module else "PEER")


# The inputs of a case of attention, as numpy arrays.


def read_one(case, name, *shape):
    import numpy

    return numpy.fromfile(f"{case['folder']}/{name}.bin", numpy.float32).reshape(shape)


def read(case):
    """q, k and v, rounded to the case's dtype, as float32 (1, heads, tokens, head_dim)."""
    return [read_one(case, name, 1, case["heads"], case["tokens"], case["head_dim"]) for name in "qkv"]


def bias_of(case):
    """The bias of a variant with its causal mask, (1, heads, tokens, tokens); None if the variant has no bias."""
    import numpy

    heads, tokens = case["heads"], case["tokens"]
    distance = numpy.arange(tokens)[:, None] - numpy.arange(tokens)
    if case["variant"] == "ALiBi":
        bias = -read_one(case, "slopes", heads, 1, 1) * distance.astype(numpy.float32)
    elif case["variant"] == "relative bias":
        bias = read_one(case, "table", heads, 2 * tokens)[:, distance + tokens]
    else:
        return None
    return numpy.where(distance < 0, numpy.float32(-numpy.inf), bias)[None]
