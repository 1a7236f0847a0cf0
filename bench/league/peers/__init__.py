"""The peers of the league, each a module with an object PEER.

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


def peer(module):
    return importlib.import_module(f"peers.{module}").PEER
