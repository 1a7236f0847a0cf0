"""Writes cases of what other libraries' attention computes: tests/functional/data/frameworks.safetensors.

    python tools/generators/make_framework_cases.py [LIBRARY ...]

Each library runs in a temporary environment with the packages that PINS names, on the CPU, and its cases replace those
that the bundle had of it; without a name, all libraries run, one after another. `--here LIBRARY` takes the interpreter
as it is. A case is one call: its tensors, in the library's own layout, and its output are tensors `<case>/<name>`, and
the metadata of its name is a JSON object that says what the call means to `attentive::attention`:

    library, call     name and version; the call
    layout            of q, k, v and output: the letters B, H (heads), L (tokens), D, with (HD) for merged heads
    options           of AttentionOptions
    dtype             of the call, if not float32: q, k and v are sixteenths (int8), which every dtype holds
    empty             what the library returns for a query that sees no key: "zero", "mean" (of all values) or "nan"
    groups            "modulo" if query head h reads key head h % Hkv
    score, number     a recipe of the page, and its number
    differs           the numbers are not ours, and why

Other tensors are named by what they mean: keep, hide, nonzero (kept where not 0), bias, key_keep, key_hide, key_lengths,
query_lengths, alibi_slopes, sinks, bias_in_cap, logsumexp; visible stands in the place of an output where a library has
only a mask here; ends_q and ends_k are cumulative lengths.
"""

import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

BUNDLE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "functional" / "data" / "frameworks.safetensors"
TORCH = ("torch==2.11.0", "numpy==2.4.6")
PINS = {
    "jax": ("jax==0.10.2",),
    "flax": ("jax==0.10.2", "flax==0.12.8"),
    "keras": ("jax==0.10.2", "keras==3.15.1"),
    "equinox": ("jax==0.10.2", "equinox==0.13.8"),
    "haiku": ("jax==0.10.2", "dm-haiku==0.0.17"),
    "mlx": ("mlx[cpu]==0.32.4", "numpy==2.4.6"),
    "onnx": ("onnx==1.23.2",),
    "onnxruntime": ("onnxruntime==1.32.0", "onnx==1.23.2"),
    "openvino": ("openvino==2026.4.1",),
    "paddle": ("paddlepaddle==3.3.1",),
    "tinygrad": ("tinygrad==0.14.0", "numpy==2.4.6"),
    "torch": TORCH,
    "transformers": (*TORCH, "transformers==5.24.0"),
    "x_transformers": (*TORCH, "x-transformers==2.31.10"),
    "timm": (*TORCH, "timm==1.0.31"),
    "diffusers": (*TORCH, "diffusers==0.42.1", "transformers==5.24.0"),
    "xformers": ("torch==2.10.0", "xformers==0.0.35"),
}
DTYPES = {"bool": "BOOL", "int8": "I8", "int32": "I32", "int64": "I64", "float32": "F32"}


def load(path):
    """The metadata and the entries, as pairs of a header and bytes, of a safetensors file; nothing if there is none."""
    if not path.exists():
        return {}, {}
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + size])
    metadata = header.pop("__metadata__")
    return metadata, {
        name: ({"dtype": entry["dtype"], "shape": entry["shape"]}, content[8 + size :][slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def save(path, metadata, entries):
    """Writes it: wide elements first, so that all are aligned, then by name."""
    width = {"F32": 4, "I32": 4, "I64": 8}
    header, body = {"__metadata__": dict(sorted(metadata.items()))}, b""
    for name, (entry, raw) in sorted(entries.items(), key=lambda one: (-width.get(one[1][0]["dtype"], 1), one[0])):
        header[name] = {**entry, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def arranged(x, layout):
    """(B, H, L, D) in another layout; one without B is of a batch of 1."""
    x = x if layout.startswith("BH") else x.transpose(0, 2, 1, 3)
    x = x.reshape(*x.shape[:2], -1) if layout.endswith("(HD)") else x
    return x if layout.startswith("B") else x[0]


class Recorder:
    """Makes the calls of one library and keeps them as cases."""

    def __init__(self, library, version, array, numpy=None):
        import numpy as np

        self.np, self.library, self.version, self.array = np, library, version, array
        self.numpy = numpy or (lambda x: np.asarray(x))
        self.metadata, self.entries, self.seeds = {}, {}, itertools.count(1)

    def drawn(self, *shape):
        return self.np.random.default_rng([next(self.seeds), *self.library.encode()]).integers(-24, 25, shape).astype("int8")

    def __call__(self, name, call, function, layout, options=None, sizes=(2, 2, 2, 3, 5, 4), arguments=None, dtype="float32",
                 large=False, inputs_text="q, k, v", **said):
        """sizes: B, H, Hkv, L, S, D. arguments: plain values, and (meaning, array) for tensors, or (meaning, B, H, array)
        where the array has other leading sizes than a mask here; one that means nothing here has the meaning None."""
        batch, heads, key_heads, queries, keys, width = sizes
        inputs = [self.drawn(batch, h, t, width) for h, t in ((heads, queries), (key_heads, keys), (key_heads, keys))]
        if large:  # all scores are some 30 larger, which changes no weight
            for x in inputs[:2]:
                x[..., 0] = 127
        inputs = [arranged(x, layout) for x in inputs]
        given = arguments or {}
        tensors = {key: value for key, value in given.items() if isinstance(value, tuple) and hasattr(value[-1], "dtype")}
        passed = {key: self.array(value[-1], value[-1].dtype.name if value[-1].dtype != "float32" else dtype) if key in tensors else value
                  for key, value in given.items()}
        output = function(*(self.array(x.astype("float32") / 16, dtype) for x in inputs), **passed)
        extra = {}
        if isinstance(output, tuple):
            output, extra["logsumexp"] = output[0], output[1]
        kept = dict(zip(("q", "k", "v"), inputs), output=output, **extra)
        kept.update({meaning: value.reshape(*shape, *value.shape[-2:]) if shape else value for meaning, *shape, value in tensors.values() if meaning})
        words = ", ".join([inputs_text, *(f"{key}={key if key in tensors else repr(value)}" for key, value in given.items())])
        said = {"library": f"{self.library} {self.version}", "call": f"{call}({words})", "layout": layout, "options": options or {}, **said}
        if dtype != "float32":
            said["dtype"] = dtype
        if heads != key_heads or "(HD)" in layout:
            said["heads"] = [heads, key_heads]
        self.keep(name, said, kept)

    def keep(self, name, said, tensors):
        case = f"{self.library.replace(' ', '_')}-{name}"
        if case in self.metadata:
            raise ValueError(f"two cases are called {case}")
        self.metadata[case] = json.dumps(said)
        for key, value in tensors.items():
            x = self.np.ascontiguousarray(value if isinstance(value, self.np.ndarray) else self.numpy(value))
            x = x.astype("float32") if x.dtype.name not in DTYPES else x
            self.entries[f"{case}/{key}"] = {"dtype": DTYPES[x.dtype.name], "shape": list(x.shape)}, x.tobytes()
        print(f"{case:34} {said['call'] if 'call' in said else ''}")



def pattern(np, *shape, empty=None):
    """A bool mask of some pairs; the first key stays visible but in the row `empty`, which sees nothing."""
    keep = np.arange(np.prod(shape)).reshape(shape) * 7 % 5 < 3
    keep[..., 0] = True
    if empty is not None:
        keep[..., empty, :] = False
    return keep


def numbers(np, *shape):
    return (np.arange(np.prod(shape)).reshape(shape) * 5 % 11 / 4 - 1).astype("float32")


def jax_cases():
    import jax
    import jax.numpy as jnp
    import numpy as np

    record = Recorder("jax", jax.__version__, lambda x, dtype: jnp.asarray(x, dtype))

    def attend(name, options=None, arguments=None, **more):
        record(name, "jax.nn.dot_product_attention", jax.nn.dot_product_attention, "BLHD", options, arguments=arguments, **more)

    longer = (1, 2, 2, 5, 3, 4)
    attend("plain")
    attend("scale", {"scale": 0.3}, {"scale": 0.3})
    attend("grouped", {}, sizes=(2, 4, 2, 3, 5, 4))
    attend("causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"is_causal": True}, sizes=longer)
    attend("mask", {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("empty", {}, {"mask": ("keep", pattern(np, 1, 1, 3, 5, empty=1))}, empty="mean")
    attend("empty_bias", {}, {"bias": ("bias", np.where(pattern(np, 1, 1, 3, 5, empty=1), np.float32(0), -np.inf).astype("float32"))}, empty="nan")
    attend("bias", {"scale": 0.3}, {"bias": ("bias", numbers(np, 1, 2, 3, 5)), "scale": 0.3})
    attend("window_number", {"window": [1, 1], "align": "TopLeft"}, {"local_window_size": 1})
    attend("window", {"window": [2, 1], "align": "TopLeft"}, {"local_window_size": (2, 1)})
    attend("window_causal", {"window": [1, -1], "causal": "TopLeft", "align": "TopLeft"}, {"local_window_size": 1, "is_causal": True})
    lengths = {"query_seq_lengths": ("query_lengths", np.array([3, 2], "int32")),
               "key_value_seq_lengths": ("key_lengths", np.array([3, 5], "int32"))}
    attend("lengths", {}, lengths, empty="zero")
    attend("lengths_causal", {"causal": "TopLeft"}, {**lengths, "is_causal": True}, empty="zero")
    attend("no_keys", {}, {"key_value_seq_lengths": ("key_lengths", np.array([0, 5], "int32"))}, empty="mean")
    attend("bfloat16", {"causal": "TopLeft"}, {"is_causal": True}, dtype="bfloat16")
    attend("bfloat16_large", dtype="bfloat16", large=True)
    attend("logsumexp", {"causal": "TopLeft"}, {"is_causal": True, "return_residual": True})
    return record


def flax_cases():
    import flax
    import flax.linen
    import flax.nnx
    import jax.numpy as jnp
    import numpy as np

    record = Recorder("flax", flax.__version__, lambda x, dtype: jnp.asarray(x, dtype))
    empty = pattern(np, 1, 1, 3, 5, empty=1)
    for short, call, function in (("linen", "flax.linen.dot_product_attention", flax.linen.dot_product_attention),
                                  ("nnx", "flax.nnx.dot_product_attention", flax.nnx.dot_product_attention)):

        def attend(name, options=None, arguments=None, **more):
            record(f"{short}_{name}", call, function, "BLHD", options, arguments=arguments, **more)

        attend("plain")
        attend("bias", {}, {"bias": ("bias", numbers(np, 1, 2, 3, 5))})
        attend("mask", {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
        attend("mask_of_numbers", {}, {"mask": ("nonzero", numbers(np, 1, 1, 3, 5).clip(0))})
        attend("empty", {}, {"mask": ("keep", empty)}, empty="mean")
        attend("float16", {}, dtype="float16")
    heads = {"differs": "in bfloat16, the scores are rounded before the softmax"}
    record("linen_bfloat16_large", "flax.linen.dot_product_attention", flax.linen.dot_product_attention, "BLHD", dtype="bfloat16", large=True, **heads)
    attend("bfloat16_large", {}, dtype="bfloat16", large=True)
    attend("causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"is_causal": True}, sizes=(1, 2, 2, 5, 3, 4))
    attend("grouped", {}, sizes=(2, 4, 2, 3, 5, 4))
    causal = flax.linen.make_causal_mask(np.ones((1, 4)), dtype=bool)
    record("linen_make_causal_mask", "flax.linen.dot_product_attention", flax.linen.dot_product_attention, "BLHD",
           {"causal": "BottomRight"}, (1, 2, 2, 4, 4, 4), {"mask": (None, np.asarray(causal))})
    return record


def keras_cases():
    os.environ["KERAS_BACKEND"] = "jax"
    import jax.numpy as jnp
    import keras
    import numpy as np

    record = Recorder("keras", keras.__version__, lambda x, dtype: jnp.asarray(x, dtype))
    function = keras.ops.dot_product_attention
    empty = pattern(np, 1, 1, 3, 5, empty=1)

    def attend(name, options=None, arguments=None, **more):
        record(name, "keras.ops.dot_product_attention", function, "BLHD", options, arguments=arguments, **more)

    attend("ops", {"scale": 0.3}, {"scale": 0.3})
    attend("ops_causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("ops_bias", {}, {"bias": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("ops_mask", {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("ops_mask_of_numbers", {}, {"mask": ("nonzero", numbers(np, 1, 1, 3, 5).clip(0))})
    attend("ops_empty", {}, {"mask": ("keep", empty)}, empty="mean")

    def layer(name, kind, options=None, sizes=(2, 2, 2, 3, 5, 4), arguments=None, settings=None, **more):
        """A layer whose projections change nothing."""
        _, heads, key_heads, _, _, width = sizes
        first = (heads, width) if kind is keras.layers.MultiHeadAttention else (width, heads, key_heads)
        made = kind(*first, use_bias=False, **(settings or {}))
        names = ", ".join([*map(str, first), *(f"{key}={value}" for key, value in (settings or {}).items())])

        def call(q, k, v, **given):
            made.build(q.shape, v.shape, k.shape)
            eye = lambda h: np.eye(h * width, dtype="float32").reshape(h * width, h, width)
            made.set_weights([eye(heads), eye(key_heads), eye(key_heads), eye(heads).reshape(heads, width, -1)])
            return made(q, v, k, **given)

        record(name, f"keras.layers.{kind.__name__}({names})", call, "BL(HD)", options, sizes, arguments, inputs_text="q, v, k", **more)

    mha, gqa = keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention
    layer("layer", mha)
    layer("layer_causal", mha, {"causal": "TopLeft"}, arguments={"use_causal_mask": True})
    layer("layer_mask", mha, arguments={"attention_mask": ("keep", 2, 1, pattern(np, 2, 3, 5))})
    layer("layer_empty", mha, arguments={"attention_mask": ("keep", 1, 1, pattern(np, 1, 3, 5, empty=1))}, empty="mean")
    layer("layer_value_mask", mha, arguments={"value_mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], bool))})
    layer("layer_window_causal", mha, {"causal": "TopLeft", "window": [1, 0], "align": "TopLeft"}, arguments={"use_causal_mask": True},
          settings={"sliding_window": 2})
    layer("layer_window", mha, {"window": [1, 1], "align": "TopLeft"}, settings={"sliding_window": 2})
    layer("grouped", gqa, sizes=(2, 4, 2, 3, 5, 4))
    layer("grouped_causal", gqa, {"causal": "TopLeft"}, sizes=(2, 4, 2, 3, 5, 4), arguments={"use_causal_mask": True})
    luong = keras.layers.Attention()
    record("luong", "keras.layers.Attention()", lambda q, k, v: luong([q, v, k]), "BL(HD)", {"scale": 1.0}, (2, 1, 1, 3, 5, 4), inputs_text="[q, v, k]")
    return record


def equinox_cases():
    import equinox
    import jax
    import jax.numpy as jnp
    import numpy as np

    record = Recorder("equinox", equinox.__version__, lambda x, dtype: jnp.asarray(x, dtype))
    made = equinox.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    projections = lambda m: [getattr(m, f"{part}_proj").weight for part in ("query", "key", "value", "output")]
    made = equinox.tree_at(projections, made, [jnp.eye(8)] * 4)

    def attend(name, options=None, arguments=None, **more):
        module = jax.tree.map(lambda x: x.astype(more["dtype"]), made, is_leaf=equinox.is_array) if "dtype" in more else made
        more = {"sizes": (1, 2, 2, 3, 5, 4), **more}
        record(name, "equinox.nn.MultiheadAttention(2, 8)", module, "L(HD)", options, arguments=arguments, **more)

    attend("plain")
    attend("mask", {}, {"mask": ("keep", pattern(np, 3, 5))})
    attend("mask_per_head", {}, {"mask": ("keep", 1, 2, pattern(np, 2, 3, 5))})
    attend("empty", {}, {"mask": ("keep", pattern(np, 3, 5, empty=1))}, empty="mean")
    attend("mask_of_numbers", {}, {"mask": ("nonzero", numbers(np, 3, 5).clip(0))})
    return record


def haiku_cases():
    import haiku
    import jax
    import jax.numpy as jnp
    import numpy as np

    record = Recorder("haiku", haiku.__version__, lambda x, dtype: jnp.asarray(x, dtype))

    def call(q, k, v, **given):
        made = haiku.transform(lambda *x: haiku.MultiHeadAttention(2, 4, w_init=haiku.initializers.Identity())(*x, **given))
        return made.apply(made.init(jax.random.key(0), q, k, v), None, q, k, v)

    def attend(name, options=None, arguments=None, **more):
        record(name, "haiku.MultiHeadAttention(2, 4, w_init=Identity())", call, "BL(HD)", options, arguments=arguments, **more)

    attend("plain")
    attend("mask", {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("empty", {}, {"mask": ("keep", pattern(np, 1, 1, 3, 5, empty=1))}, empty="mean")
    attend("mask_of_numbers", {}, {"mask": ("nonzero", numbers(np, 1, 1, 3, 5).clip(0))})
    return record


def mlx_cases():
    import importlib.metadata

    import mlx.core as mx
    import numpy as np

    version = importlib.metadata.version("mlx")
    array = lambda x, dtype: mx.array(x).astype(getattr(mx, dtype + "_" if dtype == "bool" else dtype))
    record = Recorder("mlx", version, array, lambda x: np.array(x.astype(mx.float32)))
    empty, longer = pattern(np, 1, 1, 3, 5, empty=1), (1, 2, 2, 5, 3, 4)

    def attend(name, options=None, arguments=None, scale=0.5, **more):
        record(name, "mx.fast.scaled_dot_product_attention", mx.fast.scaled_dot_product_attention, "BHLD",
               {**(options or {}), "scale": scale}, arguments={"scale": scale, **(arguments or {})}, **more)

    attend("plain", scale=0.3)
    attend("causal", {"causal": "BottomRight"}, {"mask": "causal"})
    attend("causal_longer", {"causal": "BottomRight"}, {"mask": "causal"}, sizes=longer, empty="mean")
    attend("mask", {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("empty", {}, {"mask": ("keep", empty)}, empty="mean")
    attend("bias", {}, {"mask": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("empty_bias", {}, {"mask": ("bias", np.where(empty, np.float32(0), -np.inf).astype("float32"))}, empty="nan")
    attend("grouped", {"causal": "BottomRight"}, {"mask": "causal"}, sizes=(2, 4, 2, 3, 5, 4))
    attend("sinks", {}, {"sinks": ("sinks", numbers(np, 2))})
    attend("empty_sinks", {}, {"sinks": ("sinks", numbers(np, 2)), "mask": ("keep", empty)}, empty="zero")
    attend("bfloat16_large", dtype="bfloat16", large=True, differs="on the CPU, the scores are rounded before the softmax")
    attend("mask_of_integers", {}, {"mask": ("bias", pattern(np, 1, 1, 3, 5).astype("int32"))})
    return record


def onnx_model(np, domain, version, operator, inputs, outputs, attributes, merged=()):
    """A model of one operator, as bytes; `inputs` are arrays by name, absent ones None."""
    import onnx

    info = lambda name, x: onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    node = onnx.helper.make_node(operator, [name if x is not None else "" for name, x in inputs.items()], outputs, domain=domain, **attributes)
    graph = onnx.helper.make_graph([node], "g", [info(name, x) for name, x in inputs.items() if x is not None],
                                   [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(inputs["q"].dtype), None) for name in outputs])
    opsets = [onnx.helper.make_opsetid("", version)] + ([onnx.helper.make_opsetid(domain, 1)] if domain else [])
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def onnx_cases():
    import numpy as np
    import onnx
    import onnx.reference

    record = Recorder("onnx reference", onnx.__version__, lambda x, dtype: np.asarray(x, dtype))

    def attend(name, options=None, arguments=None, layout="BHLD", past=0, sizes=(2, 2, 2, 3, 5, 4), **more):
        """past: so many of the keys are given as past_key and past_value."""

        def call(q, k, v, attn_mask=None, nonpad_kv_seqlen=None, **attributes):
            now = (k[:, :, past:], v[:, :, past:], attn_mask, k[:, :, :past], v[:, :, :past]) if past else (k, v, attn_mask, None, None)
            inputs = dict(zip(("q", "k", "v", "attn_mask", "past_key", "past_value"), (q, *now)), nonpad_kv_seqlen=nonpad_kv_seqlen)
            while list(inputs.values())[-1] is None:
                inputs.popitem()
            model = onnx_model(np, "", 25, "Attention", inputs, ["y"], attributes)
            return onnx.reference.ReferenceEvaluator(model).run(None, {key: x for key, x in inputs.items() if x is not None})[0]

        text = f"q, k[{past}:], v[{past}:], past_key=k[:{past}], past_value=v[:{past}]" if past else "q, k, v"
        record(name, "Attention-25", call, layout, options, sizes, arguments, inputs_text=text, **more)

    causal, lengths = {"is_causal": 1}, {"nonpad_kv_seqlen": ("key_lengths", np.array([3, 5], "int64"))}
    attend("plain", {"scale": 0.3}, {"scale": 0.3})
    attend("scale_zero", {"scale": 1e-30}, {"scale": 0.0})
    attend("causal", {"causal": "TopLeft"}, causal)
    attend("causal_past", {"causal": "BottomRight"}, causal, past=2)
    attend("lengths", {}, lengths)
    attend("lengths_causal", {"causal": "BottomRight", "align": "Lengths"}, {**lengths, **causal})
    attend("window", {"window": [1, 2], "align": "TopLeft"}, {"left_window_size": 1, "right_window_size": 2})
    attend("lengths_window", {"window": [1, 0], "align": "Lengths"}, {**lengths, "left_window_size": 1, "right_window_size": 0})
    attend("mask", {}, {"attn_mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("softcap_mask", {"softcap": 0.7}, {"softcap": 0.7, "attn_mask": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("empty", {}, {"attn_mask": ("keep", pattern(np, 1, 1, 3, 5, empty=1))}, empty="zero")
    attend("grouped", {"causal": "TopLeft"}, causal, sizes=(2, 4, 2, 3, 5, 4))
    attend("merged", {}, {"q_num_heads": 4, "kv_num_heads": 2}, layout="BL(HD)", sizes=(2, 4, 2, 3, 5, 4))
    attend("float16_large", {}, dtype="float16", large=True, differs="in float16, the scores are rounded before the softmax")
    attend("float16_precision", {}, {"softmax_precision": 1}, dtype="float16", large=True, differs="softmax_precision does not keep the scores from being rounded")
    return record


def onnxruntime_cases():
    import numpy as np
    import onnxruntime

    record = Recorder("onnxruntime", onnxruntime.__version__, lambda x, dtype: np.asarray(x, dtype))

    def run(operator, inputs, attributes, domain="com.microsoft", outputs=("y",)):
        while list(inputs.values())[-1] is None:
            inputs.popitem()
        model = onnx_model(np, domain, 23, operator, inputs, list(outputs), attributes).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(["y"], {key: x for key, x in inputs.items() if x is not None})[0]

    def mha(name, options=None, arguments=None, **more):
        def call(q, k, v, key_padding_mask=None, attention_bias=None, **attributes):
            inputs = {"q": q, "k": k, "v": v, "bias": None, "key_padding_mask": key_padding_mask, "attention_bias": attention_bias}
            return run("MultiHeadAttention", inputs, {"num_heads": 2, **attributes})

        record(f"mha_{name}", "MultiHeadAttention", call, "BL(HD)", options, arguments=arguments, **more)

    def gqa(name, options=None, arguments=None, sizes=(1, 4, 2, 5, 5, 8), **more):
        def call(q, k, v, head_sink=None, attention_bias=None, **attributes):
            batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
            past = keys - queries  # the first keys are those of a cache
            split = lambda x: np.ascontiguousarray(x[:, :past].reshape(batch, past, sizes[2], sizes[5]).transpose(0, 2, 1, 3))
            inputs = {"q": q, "k": k[:, past:].copy(), "v": v[:, past:].copy(), "past_key": split(k), "past_value": split(v),
                      "seqlens_k": np.full(batch, keys - 1, "int32"), "total_sequence_length": np.array(keys, "int32"),
                      "cos": None, "sin": None, "position_ids": None, "attention_bias": attention_bias, "head_sink": head_sink}
            return run("GroupQueryAttention", inputs, {"num_heads": sizes[1], "kv_num_heads": sizes[2], **attributes}, outputs=("y", "pk", "pv"))

        record(f"gqa_{name}", "GroupQueryAttention", call, "BL(HD)", {"causal": "BottomRight", **(options or {})}, sizes, arguments, **more)

    square = (2, 2, 2, 4, 4, 4)
    mha("plain")
    mha("scale", {"scale": 0.3}, {"scale": 0.3})
    mha("causal", {"causal": "BottomRight"}, {"unidirectional": 1}, sizes=square)
    mha("padding", {}, {"key_padding_mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], "int32"))})
    mha("lengths", {}, {"key_padding_mask": ("key_lengths", np.array([3, 5], "int32"))})
    mha("bias", {}, {"attention_bias": ("bias", numbers(np, 1, 2, 3, 5))})
    mha("causal_wider", {"causal": "BottomRight"}, {"unidirectional": 1}, sizes=(1, 2, 2, 3, 5, 4), differs="rows see 1, 2 and 5 keys")
    gqa("plain")
    gqa("cache", sizes=(1, 4, 2, 2, 5, 8))
    gqa("window", {"window": [1, 0]}, {"local_window_size": 2})
    gqa("softcap", {"softcap": 0.7}, {"softcap": 0.7})
    gqa("sink", {}, {"head_sink": ("sinks", numbers(np, 4))})
    gqa("smooth", {"softmax_plus_one": True}, {"smooth_softmax": 1})
    gqa("softcap_bias", {"softcap": 0.7}, {"softcap": 0.7, "attention_bias": ("bias", numbers(np, 1, 1, 5, 5))})
    return record


def openvino_cases():
    import numpy as np
    import openvino
    from openvino import opset13

    core = openvino.Core()
    record = Recorder("openvino", openvino.__version__.split("-")[0], lambda x, dtype: np.asarray(x, dtype))

    def call(q, k, v, attention_mask=None, scale=None, causal=False):
        parameter = lambda x: opset13.parameter(x.shape, x.dtype)
        given = [x if isinstance(x, np.ndarray) else np.float32(x) for x in (q, k, v, attention_mask, scale) if x is not None]
        nodes = [parameter(np.asarray(x)) for x in given]
        named = dict(zip([key for key, x in (("attention_mask", attention_mask), ("scale", scale)) if x is not None], nodes[3:]))
        if scale is not None and attention_mask is None:
            named["attention_mask"] = opset13.constant(np.zeros((1, 1), "float32"))
        node = opset13.scaled_dot_product_attention(*nodes[:3], causal=causal, **named)
        return core.compile_model(openvino.Model([node], nodes), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(given)[0]

    def attend(name, options=None, arguments=None, **more):
        record(name, "opset13.scaled_dot_product_attention", call, "BHLD", options, arguments=arguments, **more)

    empty = pattern(np, 1, 1, 3, 5, empty=1)
    attend("plain")
    attend("scale", {"scale": 0.3}, {"scale": 0.3})
    attend("causal", {"causal": "TopLeft"}, {"causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"causal": True}, sizes=(1, 2, 2, 5, 3, 4))
    attend("mask", {}, {"attention_mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("bias", {}, {"attention_mask": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("mask_ignored", {"causal": "TopLeft"}, {"causal": True, "attention_mask": (None, pattern(np, 2, 1, 3, 5))})
    attend("empty", {}, {"attention_mask": ("keep", empty)}, empty="nan")
    attend("one_key_head", sizes=(2, 4, 1, 3, 5, 4))
    return record


def paddle_cases():
    import numpy as np
    import paddle

    paddle.set_device("cpu")
    record = Recorder("paddle", paddle.__version__, lambda x, dtype: paddle.to_tensor(x).astype(dtype), lambda x: x.astype("float32").numpy())

    def attend(name, options=None, arguments=None, **more):
        record(name, "paddle.nn.functional.scaled_dot_product_attention", paddle.nn.functional.scaled_dot_product_attention, "BLHD",
               options, arguments={**(arguments or {}), "training": False}, **more)

    empty = pattern(np, 2, 2, 3, 5, empty=1)
    attend("plain")
    attend("scale", {"scale": 0.3}, {"scale": 0.3})
    attend("causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"is_causal": True}, sizes=(1, 2, 2, 5, 3, 4))
    attend("mask", {}, {"attn_mask": ("keep", pattern(np, 2, 2, 3, 5))})
    attend("bias", {}, {"attn_mask": ("bias", numbers(np, 2, 2, 3, 5))})
    attend("mask_ignored", {"causal": "TopLeft"}, {"is_causal": True, "attn_mask": (None, pattern(np, 2, 2, 3, 5))})
    attend("empty", {}, {"attn_mask": ("keep", empty)}, empty="nan")
    attend("grouped", sizes=(2, 4, 2, 3, 5, 4))
    return record


def tinygrad_cases():
    import importlib.metadata

    import numpy as np
    from tinygrad import Tensor

    record = Recorder("tinygrad", importlib.metadata.version("tinygrad"), lambda x, dtype: Tensor(x).cast(dtype), lambda x: x.float().numpy())

    def attend(name, options=None, arguments=None, **more):
        record(name, "Tensor.scaled_dot_product_attention", Tensor.scaled_dot_product_attention, "BHLD", options, arguments=arguments, **more)

    attend("plain")
    attend("causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"is_causal": True}, sizes=(1, 2, 2, 5, 3, 4))
    attend("mask", {}, {"attn_mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("bias", {}, {"attn_mask": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("empty", {}, {"attn_mask": ("keep", pattern(np, 1, 1, 3, 5, empty=1))}, empty="nan")
    attend("grouped", {}, {"enable_gqa": True}, sizes=(2, 4, 2, 3, 5, 4))
    return record


def torch_recorder(library, version=None):
    import importlib.metadata

    import torch

    torch.set_grad_enabled(False)
    array = lambda x, dtype: torch.as_tensor(x).to(getattr(torch, dtype))
    return Recorder(library, version or importlib.metadata.version(library).split("+")[0], array, lambda x: x.detach().float().numpy())


def torch_cases():
    import numpy as np
    import torch
    from torch.nn.attention import bias, flex_attention

    record = torch_recorder("torch")
    sdpa, flex = torch.nn.functional.scaled_dot_product_attention, flex_attention.flex_attention
    empty, longer = pattern(np, 1, 1, 3, 5, empty=1), (1, 2, 2, 5, 3, 4)

    def attend(name, options=None, arguments=None, **more):
        record(f"sdpa_{name}", "F.scaled_dot_product_attention", sdpa, "BHLD", options, arguments=arguments, **more)

    attend("plain", {"scale": 0.3}, {"scale": 0.3})
    attend("causal", {"causal": "TopLeft"}, {"is_causal": True})
    attend("causal_longer", {"causal": "TopLeft"}, {"is_causal": True}, sizes=longer)
    attend("lower_right", {"causal": "BottomRight"}, {"attn_mask": bias.causal_lower_right(3, 5)})
    attend("lower_right_longer", {"causal": "BottomRight"}, {"attn_mask": bias.causal_lower_right(5, 3)}, sizes=longer, empty="zero")
    attend("mask", {}, {"attn_mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("bias", {}, {"attn_mask": ("bias", numbers(np, 1, 2, 3, 5))})
    attend("empty", {}, {"attn_mask": ("keep", empty)}, empty="zero")
    attend("grouped", {}, {"enable_gqa": True}, sizes=(2, 4, 2, 3, 5, 4))
    attend("bfloat16_large", dtype="bfloat16", large=True)

    def flexible(name, options=None, arguments=None, sizes=(2, 2, 2, 3, 5, 4), rule=None, **more):
        blocks = rule and flex_attention.create_block_mask(rule, None, None, *sizes[3:5], device="cpu")
        call = lambda q, k, v, **given: flex(q, k, v, block_mask=blocks, **given)
        record(f"flex_{name}", "flex_attention", call, "BHLD", options, sizes, arguments, **more)

    flexible("causal", {"causal": "TopLeft"}, rule=lambda b, h, q, k: q >= k)
    flexible("empty", {"causal": "BottomRight"}, rule=lambda b, h, q, k: q + 3 - 5 >= k, sizes=longer, empty="zero")
    flexible("logsumexp", {}, {"return_lse": True})
    flexible("grouped", {}, {"enable_gqa": True}, sizes=(2, 4, 2, 3, 5, 4))

    def mha(name, options=None, arguments=None, **more):
        made = torch.nn.MultiheadAttention(8, 2, bias=False, batch_first=True).eval()
        made.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
        made.out_proj.weight.copy_(torch.eye(8))
        call = lambda q, k, v, **given: made(q, k, v, need_weights=False, **given)[0]
        record(f"mha_{name}", "nn.MultiheadAttention(8, 2, batch_first=True)", call, "BL(HD)", options, arguments=arguments, **more)

    padding = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], bool)
    mha("padding", {}, {"key_padding_mask": ("key_hide", padding)})
    mha("mask", {}, {"attn_mask": ("hide", ~pattern(np, 3, 5))})
    mha("bias", {}, {"attn_mask": ("bias", numbers(np, 3, 5))})
    return record


def transformers_cases():
    import importlib
    import math

    import numpy as np
    import torch
    import transformers

    record = torch_recorder("transformers")
    tiny = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=4, vocab_size=11,
                max_position_embeddings=32, pad_token_id=0)

    def keep(name, call, tensors, options, layout="BHLD", **said):
        heads = [tensors["q"].shape[1], tensors["k"].shape[1]]
        record.keep(name, {"library": f"transformers {record.version}", "call": call, "layout": layout, "options": options, "heads": heads, **said}, tensors)

    def run(made, tokens, attention_mask):
        torch.manual_seed(0)
        for parameter in made.parameters():
            parameter.normal_()
        with torch.inference_mode():
            made.eval()(torch.arange(1, tokens + 1)[None] % 11, attention_mask=attention_mask)

    def decoder(name, family, config, options, implementation="eager", padded=0, tokens=5, **said):
        """What the function that the model of this family calls was given, and what it returned."""
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
        original = module.eager_attention_forward if implementation == "eager" else functions[implementation]
        seen = []

        def watched(layer, q, k, v, attention_mask, **given):
            output = original(layer, q, k, v, attention_mask, **given)
            seen.append({"q": q, "k": k, "v": v, "output": output[0].transpose(1, 2)})
            if given.get("s_aux") is not None or hasattr(layer, "sinks"):
                seen[-1]["sinks"] = layer.sinks
            return output

        if implementation == "eager":
            module.eager_attention_forward = watched
        else:
            functions.register(implementation, watched)
        mask = torch.ones(1, tokens, dtype=torch.long)
        mask[:, :padded] = 0
        text = {"llama4": "Llama4Text"}.get(family)
        kind = next(getattr(transformers, x) for x in dir(transformers) if x.lower() == f"{family.replace('_', '')}{'text' if text or family == 'gemma3' else ''}config")
        model = next(getattr(module, x) for x in dir(module) if x.lower() == f"{family.replace('_', '')}{'text' if text or family == 'gemma3' else ''}model")
        run(model(kind(**{**tiny, **config, "attn_implementation": implementation})), tokens, mask)
        if implementation == "eager":
            module.eager_attention_forward = original
        else:
            functions.register(implementation, original)
        if padded:
            seen[0]["key_keep"] = mask.bool().numpy()
        keep(name, f"{model.__name__}, {implementation}", seen[0], options, **said)

    causal = {"causal": "BottomRight"}
    decoder("mistral_window", "mistral", {"sliding_window": 2}, {**causal, "window": [1, 0]})
    decoder("mistral_sdpa", "mistral", {"sliding_window": 2}, {**causal, "window": [1, 0]}, "sdpa")
    decoder("qwen2_window", "qwen2", {"sliding_window": 2, "use_sliding_window": True, "max_window_layers": 0}, {**causal, "window": [1, 0]})
    decoder("phi3_window", "phi3", {"sliding_window": 2}, {**causal, "window": [1, 0]})
    decoder("gemma2_cap", "gemma2", {"sliding_window": 2, "attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 16},
            {**causal, "window": [1, 0], "softcap": 0.5, "scale": 0.25})
    decoder("gemma3_window", "gemma3", {"sliding_window": 2, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention"]},
            {**causal, "window": [1, 0], "scale": 0.25})
    decoder("gpt_oss", "gpt_oss", {"sliding_window": 2, "layer_types": ["sliding_attention"], "num_local_experts": 2, "num_experts_per_tok": 1},
            {**causal, "window": [1, 0]})
    decoder("llama_padded", "llama", {}, causal, padded=2, empty="mean")
    decoder("llama_padded_sdpa", "llama", {}, causal, "sdpa", padded=2, empty="zero")
    chunks = {"attention_chunk_size": 3, "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 8, "attn_temperature_tuning": False,
              "layer_types": ["chunked_attention"]}
    decoder("llama4_chunks", "llama4", chunks, causal, tokens=7, score="chunks", number=3)
    decoder("llama4_chunks_padded", "llama4", chunks, causal, "sdpa", tokens=7, padded=2, score="chunks", number=3, empty="zero")

    def alibi(name, made, attention, projection, split, dense, options, call, **tensors):
        """The projected tensors of one layer and what enters its last projection."""
        seen = {}
        projection.register_forward_hook(lambda layer, x, y: seen.update(zip("qkv", split(y))))
        dense.register_forward_pre_hook(lambda layer, x: seen.update(merged=x[0]))
        run(made, 5, None)
        q, merged = seen["q"], seen.pop("merged")
        keep(name, call, {**seen, "output": merged.unflatten(-1, (q.shape[1], -1)).transpose(1, 2), **tensors}, {**causal, **options})

    heads = 6
    bloom = transformers.BloomModel(transformers.BloomConfig(vocab_size=11, hidden_size=24, n_layer=1, n_head=heads))
    layer = bloom.h[0].self_attention
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi

    ones = torch.ones(1, 5, dtype=torch.long)
    slopes = bloom_alibi(ones, heads, torch.float32)[:, 0, 1]
    alibi("bloom", bloom, layer, layer.query_key_value, layer._reshape, layer.dense, {}, "BloomModel", alibi_slopes=slopes)
    mpt = transformers.MptModel(transformers.MptConfig(vocab_size=11, d_model=24, n_layers=1, n_heads=heads, max_seq_len=8))
    layer = mpt.blocks[0].attn
    by_heads = lambda x: [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in x.chunk(3, -1)]
    alibi("mpt", mpt, layer, layer.Wqkv, by_heads, layer.out_proj, {}, "MptModel", alibi_slopes=-mpt_alibi(heads, 8)[:, 0, -2])
    for implementation in ("sdpa", "eager"):
        config = transformers.FalconConfig(vocab_size=11, hidden_size=24, num_hidden_layers=1, num_attention_heads=heads, alibi=True, multi_query=False,
                                           new_decoder_architecture=False, attn_implementation=implementation)
        falcon = transformers.FalconModel(config)
        layer = falcon.h[0].self_attention
        split = lambda x: [part.transpose(1, 2) for part in layer._split_heads(x)]
        table = falcon_alibi(ones, heads, torch.float32).view(heads, 5) / math.sqrt(4)
        alibi(f"falcon_{implementation}", falcon, layer, layer.query_key_value, split, layer.dense, {}, f"FalconModel, {implementation}",
              key_table=table * (2 if implementation == "eager" else 1))
    swin = importlib.import_module("transformers.models.swinv2.modeling_swinv2")
    config = transformers.Swinv2Config(num_heads=[2], embed_dim=8, depths=[1])
    layer = swin.Swinv2SelfAttention(config, 8, 2, [2, 2]).eval()
    torch.manual_seed(0)
    seen = {}
    split = lambda x: x.unflatten(-1, (2, 4)).transpose(1, 2)
    for short, part in (("q", layer.query), ("k", layer.key), ("v", layer.value)):
        part.register_forward_hook(lambda layer, x, y, short=short: seen.update({short: split(y)}))
    hooked = layer.continuous_position_bias_mlp.register_forward_hook(lambda layer, x, y: seen.update(table=16 * y.sigmoid()))
    output = layer(torch.randn(1, 4, 8))[0]
    bias = seen.pop("table").view(-1, 2)[layer.relative_position_index.view(-1)].view(4, 4, 2).permute(2, 0, 1)[None]
    keep("swinv2", "Swinv2SelfAttention", {**seen, "output": split(output), "bias": bias, "head_scale": layer.logit_scale.exp().view(2)}, {"scale": 1.0},
         score="cosine")
    return record


def x_transformers_cases():
    import numpy as np
    import torch
    from x_transformers.attend import Attend

    record = torch_recorder("x-transformers")

    def attend(name, settings, options=None, arguments=None, sinks=None, **more):
        made = Attend(heads=more.get("sizes", (0, 2))[1], **settings).eval()
        if sinks is not None:
            made.head_attn_sink.copy_(torch.as_tensor(sinks))
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        record(name, f"Attend({text})", lambda *x, **given: made(*x, **given)[0], "BHLD", options, arguments=arguments, **more)

    longer, causal, bottom = (1, 2, 2, 5, 3, 4), {"causal": True}, {"causal": "BottomRight"}
    attend("plain", {"scale": 0.3}, {"scale": 0.3})
    attend("causal", causal, bottom)
    attend("causal_longer", causal, bottom, sizes=longer, empty="mean")
    attend("flash_causal", {**causal, "flash": True}, bottom)
    attend("flash_causal_longer", {**causal, "flash": True}, {"causal": "TopLeft"}, sizes=longer)
    attend("mask", {}, {}, {"mask": ("keep", pattern(np, 2, 1, 3, 5))})
    attend("key_mask", causal, bottom, {"mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], bool))})
    attend("empty", {}, {}, {"mask": ("keep", pattern(np, 1, 1, 3, 5, empty=1))}, empty="zero")
    attend("bias", {}, {}, {"attn_bias": ("bias", numbers(np, 1, 2, 3, 5))})
    cap = {"softclamp_logits": True, "logit_softclamp_value": 0.7}
    attend("cap", cap, {"softcap": 0.7})
    attend("bias_in_cap", cap, {}, {"attn_bias": ("bias_in_cap", numbers(np, 1, 2, 3, 5))}, score="bias_in_cap", number=0.7)
    attend("grouped", {}, {}, sizes=(2, 4, 2, 3, 5, 4), groups="modulo")
    attend("zero_kv", {"add_zero_kv": True}, {"softmax_plus_one": True})
    return record


def timm_cases():
    import numpy as np
    import torch
    from timm.layers import Attention

    record = torch_recorder("timm")

    def attend(name, fused, options=None, arguments=None, **more):
        made = Attention(24, 2, attn_head_dim=4, dim_out=8, proj_bias=False).eval()
        made.qkv.weight.copy_(torch.eye(24))
        made.proj.weight.copy_(torch.eye(8))
        made.fused_attn = fused
        record(name + ("" if fused else "_not_fused"), "timm.layers.Attention(24, 2)", lambda q, k, v, **given: made(torch.cat([q, k, v], -1), **given),
               "BL(HD)", options, (2, 2, 2, 4, 4, 4), arguments, inputs_text="cat(q, k, v)", **more)

    for fused in (True, False):
        attend("plain", fused)
        attend("causal", fused, {"causal": "BottomRight"}, {"is_causal": True})
        attend("mask", fused, {}, {"attn_mask": ("keep", pattern(np, 2, 1, 4, 4))})
        attend("empty", fused, {}, {"attn_mask": ("keep", pattern(np, 1, 1, 4, 4, empty=1))}, empty="zero" if fused else "nan")
    return record


def diffusers_cases():
    import numpy as np
    import torch
    from diffusers.models.attention_processor import Attention, AttnProcessor, AttnProcessor2_0

    record = torch_recorder("diffusers")

    def attend(name, processor, arguments=None, **more):
        made = Attention(8, 16, heads=2, dim_head=4, processor=processor()).eval()
        for part, weight in ((made.to_q, torch.eye(8)), (made.to_k, torch.eye(16)[:8]), (made.to_v, torch.eye(16)[8:]), (made.to_out[0], torch.eye(8))):
            part.weight.copy_(weight)
        made.to_out[0].bias.zero_()
        call = lambda q, k, v, **given: made(q, encoder_hidden_states=torch.cat([k, v], -1), **given)
        record(name, f"Attention(8, 16, heads=2, dim_head=4, processor={processor.__name__}())", call, "BL(HD)", arguments=arguments,
               inputs_text="q, cat(k, v)", **more)

    attend("plain", AttnProcessor)
    attend("plain_fused", AttnProcessor2_0)
    attend("bias", AttnProcessor, {"attention_mask": ("bias", 2, 2, numbers(np, 4, 1, 5))})
    attend("mask_fused", AttnProcessor2_0, {"attention_mask": ("keep", 2, 1, pattern(np, 2, 1, 5))})
    return record


def xformers_cases():
    import numpy as np
    import torch
    from xformers.ops.fmha import attn_bias as masks

    record = torch_recorder("xformers")

    def visible(name, mask, sizes, options, text, **tensors):
        shown = mask.materialize(sizes).eq(0).numpy()
        record.keep(name, {"library": f"xformers {record.version}", "call": text, "options": options}, {"visible": shown, **tensors})

    visible("lower_triangular", masks.LowerTriangularMask(), (3, 5), {"causal": "TopLeft"}, "LowerTriangularMask()")
    visible("from_bottom_right", masks.LowerTriangularFromBottomRightMask(), (3, 5), {"causal": "BottomRight"}, "LowerTriangularFromBottomRightMask()")
    visible("from_bottom_right_longer", masks.LowerTriangularFromBottomRightMask(), (5, 3), {"causal": "BottomRight"}, "LowerTriangularFromBottomRightMask()")
    visible("local_triangle", masks.LowerTriangularFromBottomRightLocalAttentionMask(2), (3, 5), {"causal": "BottomRight", "window": [1, 0]},
            "LowerTriangularFromBottomRightLocalAttentionMask(2)")
    visible("local", masks.LocalAttentionFromBottomRightMask(2, 1), (3, 5), {"window": [2, 1]}, "LocalAttentionFromBottomRightMask(2, 1)")
    ends = lambda *x: np.array([0, *itertools.accumulate(x)], "int32")
    blocks = masks.BlockDiagonalMask.from_seqlens([2, 3], [4, 3])
    packed = {"ends_q": ends(2, 3), "ends_k": ends(4, 3)}
    text = "BlockDiagonalMask.from_seqlens([2, 3], [4, 3])"
    visible("blocks", blocks, (5, 7), {}, text, **packed)
    visible("blocks_causal", blocks.make_causal(), (5, 7), {"causal": "TopLeft"}, f"{text}.make_causal()", **packed)
    visible("blocks_from_bottom_right", blocks.make_causal_from_bottomright(), (5, 7), {"causal": "BottomRight"},
            f"{text}.make_causal_from_bottomright()", **packed)
    visible("blocks_local", blocks.make_causal_from_bottomright().make_local_attention(2), (5, 7), {"causal": "BottomRight", "window": [1, 0]},
            f"{text}.make_causal_from_bottomright().make_local_attention(2)", **packed)
    return record


def main():
    libraries = sys.argv[1:]
    if libraries[:1] == ["--here"]:
        record = globals()[f"{libraries[1]}_cases"]()
        metadata, entries = load(BUNDLE)
        mine = lambda key: key.startswith(record.library.replace(" ", "_") + "-")
        metadata = {key: value for key, value in metadata.items() if not mine(key)} | record.metadata
        save(BUNDLE, metadata, {key: value for key, value in entries.items() if not mine(key)} | record.entries)
        print(f"{len(record.metadata)} cases of {len(metadata)}, {BUNDLE.stat().st_size} bytes")
        return
    for library in libraries or PINS:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([f"{folder}/bin/pip", "install", "-q", "--disable-pip-version-check", *PINS[library]], check=True)
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
            subprocess.run([f"{folder}/bin/python", __file__, "--here", library], check=True, env=environment)


if __name__ == "__main__":
    main()
