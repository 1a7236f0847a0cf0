"""Writes cases of what other libraries' attention computes: tests/functional/data/frameworks.safetensors.

    python tools/generators/make_framework_cases.py [LIBRARY ...]

Each library runs in a temporary environment with the packages that PINS names, on the CPU, and its cases replace those
that the bundle had of it, with the same bytes; without a name, all libraries run, one after another, and download some
20 GB. `--here LIBRARY` takes the interpreter as it is. A case is one call: its tensors, in the library's own layout, and its output are tensors `<case>/<name>`, and
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
query_lengths, alibi_slopes, sinks, logsumexp, and a recipe's bias_in_cap, key_table and head_scale; visible stands in the place of an output where a library has
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
np = None  # numpy, of the environment
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
        self.library, self.version, self.array = library, version, array
        self.numpy = numpy or (lambda x: np.asarray(x))
        self.metadata, self.entries, self.seeds = {}, {}, itertools.count(1)

    def drawn(self, *shape):
        return np.random.default_rng([next(self.seeds), *self.library.encode()]).integers(-24, 25, shape).astype("int8")

    def call(self, text, function, layout="BHLD", prefix="", sizes=(2, 2, 2, 3, 5, 4), **every):
        """A function that records calls of this function of the library."""
        return lambda name, options=None, arguments=None, **more: self.record(
            prefix + name, text, function, layout, options or {}, arguments or {}, **{"sizes": sizes, **every, **more})

    def record(self, name, text, function, layout, options, arguments, sizes, dtype="float32", large=False, inputs="q, k, v", **said):
        """sizes: B, H, Hkv, L, S, D. arguments: plain values, and (meaning, array) for tensors, or (meaning, B, H, array)
        where the array has other leading sizes than a mask here; one that means nothing here has the meaning None."""
        batch, heads, key_heads, queries, keys, width = sizes
        qkv = [self.drawn(batch, h, t, width) for h, t in ((heads, queries), (key_heads, keys), (key_heads, keys))]
        if large:  # all scores are some 30 larger, which changes no weight
            for x in qkv[:2]:
                x[..., 0] = 127
        qkv = [arranged(x, layout) for x in qkv]
        tensors = {key: value for key, value in arguments.items() if isinstance(value, tuple) and hasattr(value[-1], "dtype")}
        passed = {key: self.array(value[-1], dtype if value[-1].dtype == "float32" else value[-1].dtype.name) for key, value in tensors.items()}
        output = function(*(self.array(x.astype("float32") / 16, dtype) for x in qkv), **{**arguments, **passed})
        output, *rest = output if isinstance(output, tuple) else (output,)
        kept = {**dict(zip("qkv", qkv)), "output": output, **dict(zip(["logsumexp"], rest))}
        kept |= {meaning: x.reshape(*lead, *x.shape[-2:]) if lead else x for meaning, *lead, x in tensors.values() if meaning}
        words = ", ".join([inputs, *(f"{key}={key if key in tensors else repr(value)}" for key, value in arguments.items())])
        said = {"call": f"{text}({words})", "layout": layout, "options": options, **said, **({"dtype": dtype} if dtype != "float32" else {})}
        self.keep(name, said | ({"heads": [heads, key_heads]} if "(HD)" in layout else {}), kept)

    def keep(self, name, said, tensors):
        case = f"{self.library}-{name}"
        if case in self.metadata:
            raise ValueError(f"two cases are called {case}")
        self.metadata[case] = json.dumps({"library": f"{self.library} {self.version}", **said})
        for key, value in tensors.items():
            x = np.ascontiguousarray(value if isinstance(value, np.ndarray) else self.numpy(value))
            x = x.astype("float32") if x.dtype.name not in DTYPES else x
            self.entries[f"{case}/{key}"] = {"dtype": DTYPES[x.dtype.name], "shape": list(x.shape)}, x.tobytes()
        print(f"{case:34} {said['call']}")


SQUARE, LONGER, GROUPED = (2, 2, 2, 4, 4, 4), (1, 2, 2, 5, 3, 4), (2, 4, 2, 3, 5, 4)


def pattern(*shape, empty=None):
    """A bool mask of some pairs; the first key stays visible but in the row `empty`, which sees nothing."""
    keep = np.arange(np.prod(shape)).reshape(shape) * 7 % 5 < 3
    keep[..., 0] = True
    if empty is not None:
        keep[..., empty, :] = False
    return keep


def numbers(*shape):
    return (np.arange(np.prod(shape)).reshape(shape) * 5 % 11 / 4 - 1).astype("float32")


def usual(call, mask=None, nonzero=None, bias=None, empty=None, scale=None, causal=None, diagonal="TopLeft", grouped=None, mask_sizes=(2, 1, 3, 5)):
    """The calls that most functions have: mask, nonzero and bias name their arguments, causal, scale and grouped give them."""
    batch, heads, queries, keys = mask_sizes
    call("plain", {"scale": scale} if scale else {}, {"scale": scale} if scale else {})
    if causal:
        call("causal", {"causal": diagonal}, causal)
    if causal and diagonal == "TopLeft":
        call("causal_longer", {"causal": diagonal}, causal, sizes=LONGER)
    if mask:
        call("mask", {}, {mask: ("keep", pattern(*mask_sizes))})
        call("empty", {}, {mask: ("keep", pattern(*mask_sizes, empty=1))}, empty=empty)
    if nonzero:
        call("mask_of_numbers", {}, {nonzero: ("nonzero", numbers(*mask_sizes).clip(0))})
    if bias:
        call("bias", {}, {bias: ("bias", numbers(batch, max(2, heads), queries, keys))})
    if grouped is not None:
        call("grouped", {}, grouped, sizes=GROUPED)


def hiding_bias():
    return np.where(pattern(1, 1, 3, 5, empty=1), np.float32(0), -np.inf).astype("float32")


def jax_recorder(library, version):
    import jax.numpy as jnp

    return Recorder(library, version, lambda x, dtype: jnp.asarray(x, dtype))


def jax_cases():
    import jax

    record = jax_recorder("jax", jax.__version__)
    attend = record.call("jax.nn.dot_product_attention", jax.nn.dot_product_attention, "BLHD")
    causal = {"is_causal": True}
    usual(attend, "mask", None, "bias", "mean", 0.3, causal, grouped={})
    attend("empty_bias", {}, {"bias": ("bias", hiding_bias())}, empty="nan")
    attend("window_number", {"window": [1, 1], "align": "TopLeft"}, {"local_window_size": 1})
    attend("window", {"window": [1, 2], "align": "TopLeft"}, {"local_window_size": (1, 2)})
    attend("window_causal", {"window": [1, -1], "causal": "TopLeft", "align": "TopLeft"}, {"local_window_size": 1, **causal})
    lengths = {"query_seq_lengths": ("query_lengths", np.array([3, 2], "int32")),
               "key_value_seq_lengths": ("key_lengths", np.array([2, 5], "int32"))}
    attend("lengths", {}, lengths, empty="zero")
    attend("lengths_causal", {"causal": "TopLeft"}, {**lengths, **causal}, empty="zero")
    attend("no_keys", {}, {"key_value_seq_lengths": ("key_lengths", np.array([0, 5], "int32"))}, empty="mean")
    attend("bfloat16_large", dtype="bfloat16", large=True)
    attend("logsumexp", {"causal": "TopLeft"}, {**causal, "return_residual": True})
    return record


def flax_cases():
    import flax
    import flax.linen
    import flax.nnx

    record = jax_recorder("flax", flax.__version__)
    linen = record.call("flax.linen.dot_product_attention", flax.linen.dot_product_attention, "BLHD", "linen_")
    nnx = record.call("flax.nnx.dot_product_attention", flax.nnx.dot_product_attention, "BLHD", "nnx_")
    usual(linen, "mask", "mask", "bias", "mean")
    linen("bfloat16_large", dtype="bfloat16", large=True, differs="in bfloat16, the scores are rounded before the softmax")
    linen("make_causal_mask", {"causal": "BottomRight"}, {"mask": (None, np.asarray(flax.linen.make_causal_mask(np.ones((1, 4)), dtype=bool)))},
          sizes=(1, 2, 2, 4, 4, 4))
    usual(nnx, "mask", "mask", "bias", "mean", None, {"is_causal": True}, grouped={})
    nnx("bfloat16_large", dtype="bfloat16", large=True)
    return record


def keras_cases():
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    record = jax_recorder("keras", keras.__version__)
    ops = record.call("keras.ops.dot_product_attention", keras.ops.dot_product_attention, "BLHD", "ops_")
    usual(ops, "mask", "mask", "bias", "mean", 0.3, {"is_causal": True})

    def layer(kind, prefix, sizes, **settings):
        """A layer whose projections change nothing."""
        _, heads, key_heads, _, _, width = sizes
        first = (heads, width) if kind is keras.layers.MultiHeadAttention else (width, heads, key_heads)

        def call(q, k, v, **given):
            made = kind(*first, use_bias=False, **settings)
            made.build(q.shape, v.shape, k.shape)
            eye = lambda h: np.eye(h * width, dtype="float32").reshape(h * width, h, width)
            made.set_weights([eye(heads), eye(key_heads), eye(key_heads), eye(heads).reshape(heads, width, -1)])
            return made(q, v, k, **given)

        text = ", ".join([*map(str, first), *(f"{key}={value}" for key, value in settings.items())])
        return record.call(f"keras.layers.{kind.__name__}({text})", call, "BL(HD)", prefix, sizes, inputs="q, v, k")

    mha, causal = keras.layers.MultiHeadAttention, {"use_causal_mask": True}
    plain = layer(mha, "layer_", (2, 2, 2, 3, 5, 4))
    usual(plain, causal=causal)
    plain("mask", {}, {"attention_mask": ("keep", 2, 1, pattern(2, 3, 5))})
    plain("empty", {}, {"attention_mask": ("keep", 1, 1, pattern(1, 3, 5, empty=1))}, empty="mean")
    plain("value_mask", {}, {"value_mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], bool))})
    window = layer(mha, "layer_", (2, 2, 2, 3, 5, 4), sliding_window=2)
    window("window", {"window": [1, 1], "align": "TopLeft"})
    window("window_causal", {"causal": "TopLeft", "window": [1, 0], "align": "TopLeft"}, causal)
    grouped = layer(keras.layers.GroupQueryAttention, "grouped_", GROUPED)
    grouped("plain")
    grouped("causal", {"causal": "TopLeft"}, causal)
    luong = keras.layers.Attention()
    record.call("keras.layers.Attention()", lambda q, k, v: luong([q, v, k]), "BL(HD)", sizes=(2, 1, 1, 3, 5, 4), inputs="[q, v, k]")("luong", {"scale": 1.0})
    return record


def equinox_cases():
    import equinox
    import jax

    record = jax_recorder("equinox", equinox.__version__)
    projections = lambda m: [getattr(m, f"{part}_proj").weight for part in ("query", "key", "value", "output")]
    made = equinox.tree_at(projections, equinox.nn.MultiheadAttention(2, 8, key=jax.random.key(0)), [jax.numpy.eye(8)] * 4)
    attend = record.call("equinox.nn.MultiheadAttention(2, 8)", made, "L(HD)", sizes=(1, 2, 2, 3, 5, 4))
    attend("plain")
    attend("mask", {}, {"mask": ("keep", pattern(3, 5))})
    attend("mask_per_head", {}, {"mask": ("keep", 1, 2, pattern(2, 3, 5))})
    attend("empty", {}, {"mask": ("keep", pattern(3, 5, empty=1))}, empty="mean")
    attend("mask_of_numbers", {}, {"mask": ("nonzero", numbers(3, 5).clip(0))})
    return record


def haiku_cases():
    import haiku
    import jax

    record = jax_recorder("haiku", haiku.__version__)

    def call(q, k, v, **given):
        made = haiku.transform(lambda *x: haiku.MultiHeadAttention(2, 4, w_init=haiku.initializers.Identity())(*x, **given))
        return made.apply(made.init(jax.random.key(0), q, k, v), None, q, k, v)

    usual(record.call("haiku.MultiHeadAttention(2, 4, w_init=Identity())", call, "BL(HD)"), "mask", "mask", None, "mean")
    return record


def mlx_cases():
    import importlib.metadata

    import mlx.core as mx

    array = lambda x, dtype: mx.array(x).astype(getattr(mx, dtype + "_" if dtype == "bool" else dtype))
    record = Recorder("mlx", importlib.metadata.version("mlx"), array, lambda x: np.array(x.astype(mx.float32)))
    call = record.call("mx.fast.scaled_dot_product_attention", mx.fast.scaled_dot_product_attention)
    attend = lambda name, options=None, arguments=None, **more: call(name, {"scale": 0.3, **(options or {})}, {"scale": 0.3, **(arguments or {})}, **more)
    causal = {"mask": "causal"}
    usual(attend, "mask", None, "mask", "mean", None, causal, "BottomRight", {})
    attend("causal_longer", {"causal": "BottomRight"}, causal, sizes=LONGER, empty="mean")
    attend("empty_bias", {}, {"mask": ("bias", hiding_bias())}, empty="nan")
    attend("sinks", {}, {"sinks": ("sinks", numbers(2))})
    attend("empty_sinks", {}, {"sinks": ("sinks", numbers(2)), "mask": ("keep", pattern(1, 1, 3, 5, empty=1))}, empty="zero")
    attend("bfloat16_large", dtype="bfloat16", large=True, differs="on the CPU, the scores are rounded before the softmax")
    attend("mask_of_integers", {}, {"mask": ("bias", pattern(1, 1, 3, 5).astype("int32"))})
    return record


def onnx_model(domain, version, operator, inputs, outputs, attributes):
    """A model of one operator; `inputs` are arrays by name, absent ones None."""
    from onnx import helper

    while list(inputs.values())[-1] is None:
        inputs.popitem()
    info = lambda name, x, shape: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape)
    node = helper.make_node(operator, [name if x is not None else "" for name, x in inputs.items()], outputs, domain=domain, **attributes)
    graph = helper.make_graph([node], "g", [info(name, x, x.shape) for name, x in inputs.items() if x is not None],
                              [info(name, inputs["q"], None) for name in outputs])
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {name: x for name, x in inputs.items() if x is not None}


def onnx_cases():
    import onnx
    import onnx.reference

    record = Recorder("onnx", onnx.__version__, lambda x, dtype: np.asarray(x, dtype))

    def run(past):
        """Of so many keys as past_key and past_value."""

        def call(q, k, v, attn_mask=None, nonpad_kv_seqlen=None, **attributes):
            before = (k[:, :, :past], v[:, :, :past]) if past else (None, None)
            inputs = {"q": q, "k": k[:, :, past:] if past else k, "v": v[:, :, past:] if past else v, "attn_mask": attn_mask,
                      "past_key": before[0], "past_value": before[1], "nonpad_kv_seqlen": nonpad_kv_seqlen}
            model, given = onnx_model("", 25, "Attention", inputs, ["y"], attributes)
            return onnx.reference.ReferenceEvaluator(model).run(None, given)[0]

        return call

    attend = record.call("Attention-25", run(0))
    causal, lengths = {"is_causal": 1}, {"nonpad_kv_seqlen": ("key_lengths", np.array([3, 5], "int64"))}
    usual(attend, "attn_mask", None, None, "zero", 0.3, causal)
    attend("grouped", {"causal": "TopLeft"}, causal, sizes=GROUPED)
    record.call("Attention-25", run(2), inputs="q, k[2:], v[2:], past_key=k[:2], past_value=v[:2]")("causal_past", {"causal": "BottomRight"}, causal)
    attend("lengths", {}, lengths)
    attend("lengths_causal", {"causal": "BottomRight", "align": "Lengths"}, {**lengths, **causal})
    attend("window", {"window": [1, 2], "align": "TopLeft"}, {"left_window_size": 1, "right_window_size": 2})
    attend("lengths_window", {"window": [1, 0], "align": "Lengths"}, {**lengths, "left_window_size": 1, "right_window_size": 0})
    attend("softcap_mask", {"softcap": 0.7}, {"softcap": 0.7, "attn_mask": ("bias", numbers(1, 2, 3, 5))})
    record.call("Attention-25", run(0), "BL(HD)", sizes=GROUPED)("merged", {}, {"q_num_heads": 4, "kv_num_heads": 2})
    rounded = "the reference rounds scores to float16 before the softmax"
    attend("float16_large", {}, dtype="float16", large=True, differs=rounded)
    attend("float16_precision", {}, {"softmax_precision": 1}, dtype="float16", large=True, differs=rounded)
    return record


def onnxruntime_cases():
    import onnxruntime

    record = Recorder("onnxruntime", onnxruntime.__version__, lambda x, dtype: np.asarray(x, dtype))

    def run(operator, inputs, attributes, outputs=("y",)):
        model, given = onnx_model("com.microsoft", 23, operator, inputs, list(outputs), attributes)
        return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(["y"], given)[0]

    def multi_head(q, k, v, key_padding_mask=None, attention_bias=None, **attributes):
        inputs = {"q": q, "k": k, "v": v, "bias": None, "key_padding_mask": key_padding_mask, "attention_bias": attention_bias}
        return run("MultiHeadAttention", inputs, {"num_heads": 2, **attributes})

    def grouped(q, k, v, head_sink=None, attention_bias=None, **attributes):
        batch, keys, past = q.shape[0], k.shape[1], k.shape[1] - q.shape[1]  # the first keys are those of a cache
        split = lambda x: np.ascontiguousarray(x[:, :past].reshape(batch, past, 2, 8).transpose(0, 2, 1, 3))
        inputs = {"q": q, "k": k[:, past:].copy(), "v": v[:, past:].copy(), "past_key": split(k), "past_value": split(v),
                  "seqlens_k": np.full(batch, keys - 1, "int32"), "total_sequence_length": np.array(keys, "int32"),
                  "cos": None, "sin": None, "position_ids": None, "attention_bias": attention_bias, "head_sink": head_sink}
        return run("GroupQueryAttention", inputs, {"num_heads": 4, "kv_num_heads": 2, **attributes}, ("y", "present_key", "present_value"))

    mha = record.call("MultiHeadAttention", multi_head, "BL(HD)", "mha_")
    usual(mha, bias="attention_bias", scale=0.3)
    mha("causal", {"causal": "BottomRight"}, {"unidirectional": 1}, sizes=SQUARE)
    mha("causal_wider", {"causal": "BottomRight"}, {"unidirectional": 1}, sizes=(1, 2, 2, 3, 5, 4), differs="rows see 1, 2 and 5 keys")
    mha("padding", {}, {"key_padding_mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], "int32"))})
    mha("lengths", {}, {"key_padding_mask": ("key_lengths", np.array([3, 5], "int32"))})
    call, causal = record.call("GroupQueryAttention", grouped, "BL(HD)", "gqa_", (1, 4, 2, 5, 5, 8)), {"causal": "BottomRight"}
    call("plain", causal)
    call("cache", causal, sizes=(1, 4, 2, 2, 5, 8))
    call("window", {**causal, "window": [1, 0]}, {"local_window_size": 2})
    call("softcap", {**causal, "softcap": 0.7}, {"softcap": 0.7})
    call("softcap_bias", {**causal, "softcap": 0.7}, {"softcap": 0.7, "attention_bias": ("bias", numbers(1, 1, 5, 5))})
    call("sink", causal, {"head_sink": ("sinks", numbers(4))})
    call("smooth", {**causal, "softmax_plus_one": True}, {"smooth_softmax": 1})
    return record


def openvino_cases():
    import openvino
    from openvino import opset13

    record = Recorder("openvino", openvino.__version__.split("-")[0], lambda x, dtype: np.asarray(x, dtype))

    def call(q, k, v, attention_mask=None, scale=None, causal=False):
        if scale is not None:
            attention_mask = np.zeros((1, 1), "float32")
        given = [x for x in (q, k, v, attention_mask) if x is not None]
        nodes = [opset13.parameter(x.shape, x.dtype) for x in given]
        node = opset13.scaled_dot_product_attention(*nodes, causal=causal, **({} if scale is None else {"scale": np.float32(scale)}))
        return openvino.Core().compile_model(openvino.Model([node], nodes), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(given)[0]

    attend = record.call("opset13.scaled_dot_product_attention", call)
    usual(attend, "attention_mask", None, "attention_mask", "nan", 0.3, {"causal": True})
    attend("mask_ignored", {"causal": "TopLeft"}, {"causal": True, "attention_mask": (None, pattern(2, 1, 3, 5))})
    attend("one_key_head", sizes=(2, 4, 1, 3, 5, 4))
    return record


def paddle_cases():
    import paddle

    paddle.set_device("cpu")
    record = Recorder("paddle", paddle.__version__, lambda x, dtype: paddle.to_tensor(x).astype(dtype), lambda x: x.astype("float32").numpy())
    function = lambda *x, **given: paddle.nn.functional.scaled_dot_product_attention(*x, training=False, **given)
    attend = record.call("paddle.nn.functional.scaled_dot_product_attention", function, "BLHD")
    usual(attend, "attn_mask", None, "attn_mask", "nan", 0.3, {"is_causal": True}, grouped={}, mask_sizes=(2, 2, 3, 5))
    attend("mask_ignored", {"causal": "TopLeft"}, {"is_causal": True, "attn_mask": (None, pattern(2, 2, 3, 5))})
    return record


def tinygrad_cases():
    import importlib.metadata

    from tinygrad import Tensor

    record = Recorder("tinygrad", importlib.metadata.version("tinygrad"), lambda x, dtype: Tensor(x).cast(dtype), lambda x: x.float().numpy())
    attend = record.call("Tensor.scaled_dot_product_attention", Tensor.scaled_dot_product_attention)
    usual(attend, "attn_mask", None, "attn_mask", "nan", None, {"is_causal": True}, grouped={"enable_gqa": True})
    return record


def torch_recorder(library):
    import importlib.metadata

    import torch

    torch.set_grad_enabled(False)
    array = lambda x, dtype: torch.as_tensor(x).to(getattr(torch, dtype))
    return Recorder(library, importlib.metadata.version(library).split("+")[0], array,
                    lambda x: (x if x.dtype == torch.bool else x.float()).detach().numpy())


def torch_cases():
    import torch
    from torch.nn.attention import bias, flex_attention

    record = torch_recorder("torch")
    grouped = {"enable_gqa": True}
    attend = record.call("F.scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention, prefix="sdpa_")
    usual(attend, "attn_mask", None, "attn_mask", "zero", 0.3, {"is_causal": True}, grouped=grouped)
    attend("lower_right", {"causal": "BottomRight"}, {"attn_mask": bias.causal_lower_right(3, 5)})
    attend("lower_right_longer", {"causal": "BottomRight"}, {"attn_mask": bias.causal_lower_right(5, 3)}, sizes=LONGER, empty="zero")
    attend("bfloat16_large", dtype="bfloat16", large=True)

    def flexible(q, k, v, rule=None, **given):
        blocks = rule and flex_attention.create_block_mask(rule, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention.flex_attention(q, k, v, block_mask=blocks, **given)

    flex = record.call("flex_attention", flexible, prefix="flex_")
    usual(flex, grouped=grouped)
    flex("logsumexp", {}, {"return_lse": True})
    flexible.__defaults__ = (lambda b, h, q, k: q >= k,)
    flex("causal", {"causal": "TopLeft"}, inputs="q, k, v, block_mask=create_block_mask(lambda b, h, q, k: q >= k, …)")
    flex("causal_longer", {"causal": "TopLeft"}, inputs="q, k, v, block_mask=create_block_mask(lambda b, h, q, k: q >= k, …)", sizes=LONGER)

    made = torch.nn.MultiheadAttention(8, 2, bias=False, batch_first=True).eval()
    made.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
    made.out_proj.weight.copy_(torch.eye(8))
    mha = record.call("nn.MultiheadAttention(8, 2, batch_first=True)", lambda *x, **given: made(*x, need_weights=False, **given)[0], "BL(HD)", "mha_")
    mha("padding", {}, {"key_padding_mask": ("key_hide", np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], bool))})
    mha("mask", {}, {"attn_mask": ("hide", ~pattern(3, 5))})
    mha("bias", {}, {"attn_mask": ("bias", numbers(3, 5))})
    return record


def transformers_cases():
    import importlib
    import unittest.mock

    import torch
    import transformers
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    record = torch_recorder("transformers")
    causal, window = {"causal": "BottomRight"}, {"causal": "BottomRight", "window": [1, 0]}

    def run(made, tokens, attention_mask=None):
        torch.manual_seed(0)
        for parameter in made.parameters():
            parameter.normal_()
        made.eval()(torch.arange(1, tokens + 1)[None], attention_mask=attention_mask)

    def decoder(name, family, config, options, implementation="eager", padded=0, tokens=5, **said):
        """What the function that this family's attention calls was given, and what it returned."""
        kind = getattr(transformers, f"{family}Config")
        module = importlib.import_module(kind.__module__.replace("configuration", "modeling"))
        functions, seen = module.ALL_ATTENTION_FUNCTIONS, []
        function = functions.get_interface(implementation, module.eager_attention_forward)

        def watched(layer, q, k, v, *rest, **given):
            output = function(layer, q, k, v, *rest, **given)
            seen.append({"q": q, "k": k, "v": v, "output": output[0].transpose(1, 2), **({"sinks": layer.sinks} if hasattr(layer, "sinks") else {})})
            return output

        tiny = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=4, vocab_size=16,
                    max_position_embeddings=32, pad_token_id=0, attn_implementation=implementation)
        mask = (torch.arange(tokens) >= padded)[None]
        with unittest.mock.patch.object(functions, "get_interface", lambda *names: watched):
            run(getattr(module, f"{family}Model")(kind(**{**tiny, **config})), tokens, mask.long())
        record.keep(name, {"call": f"{family}Model, {implementation}", "layout": "BHLD", "options": options, **said},
                    {**seen[0], **({"key_keep": mask} if padded else {})})

    decoder("mistral", "Mistral", {"sliding_window": 2}, window)
    decoder("mistral_sdpa", "Mistral", {"sliding_window": 2}, window, "sdpa")
    decoder("qwen2", "Qwen2", {"sliding_window": 2, "use_sliding_window": True, "max_window_layers": 0}, window)
    decoder("phi3", "Phi3", {"sliding_window": 2}, window)
    scaled = {"sliding_window": 2, "query_pre_attn_scalar": 16}
    decoder("gemma2", "Gemma2", {**scaled, "attn_logit_softcapping": 0.5}, {**window, "softcap": 0.5, "scale": 0.25})
    decoder("gemma3", "Gemma3Text", {**scaled, "layer_types": ["sliding_attention"]}, {**window, "scale": 0.25})
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    decoder("gpt_oss", "GptOss", {**experts, "sliding_window": 2, "layer_types": ["sliding_attention"]}, window)
    decoder("llama_padded", "Llama", {}, causal, padded=2, empty="mean")
    decoder("llama_padded_sdpa", "Llama", {}, causal, "sdpa", padded=2, empty="zero")
    chunks = {**experts, "attention_chunk_size": 3, "intermediate_size_mlp": 8, "layer_types": ["chunked_attention"]}
    decoder("llama4", "Llama4Text", chunks, causal, tokens=7, score="chunks", number=3)
    decoder("llama4_padded", "Llama4Text", chunks, causal, "sdpa", tokens=7, padded=2, score="chunks", number=3, empty="zero")

    heads, ones = 6, torch.ones(1, 5, dtype=torch.long)
    sizes = dict(vocab_size=16, hidden_size=24, num_hidden_layers=1, num_attention_heads=heads)

    def alibi(name, model, layer, projection, split, last, tensors, **said):
        """The projected tensors of one layer, and what enters its last projection."""
        seen, by_head = {}, lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)
        projection.register_forward_hook(lambda layer, x, y: seen.update(zip("qkv", split(y) if split else map(by_head, y.chunk(3, -1)))))
        last.register_forward_pre_hook(lambda layer, x: seen.update(output=by_head(x[0])))
        run(model, 5)
        record.keep(name, {"call": f"{type(model).__name__}{said.pop('how', '')}", "layout": "BHLD", "options": causal, **said}, {**seen, **tensors})

    bloom = transformers.BloomModel(transformers.BloomConfig(**sizes))
    layer = bloom.h[0].self_attention
    alibi("bloom", bloom, layer, layer.query_key_value, layer._reshape, layer.dense, {"alibi_slopes": bloom_alibi(ones, heads, torch.float32)[:, 0, 1]})
    mpt = transformers.MptModel(transformers.MptConfig(**sizes, max_seq_len=8))
    layer = mpt.blocks[0].attn
    alibi("mpt", mpt, layer, layer.Wqkv, None, layer.out_proj, {"alibi_slopes": -mpt_alibi(heads, 8)[:, 0, -2]})
    for how, factor in (("sdpa", 1), ("eager", 2)):
        falcon = transformers.FalconModel(transformers.FalconConfig(**sizes, alibi=True, multi_query=False, attn_implementation=how))
        layer = falcon.h[0].self_attention
        table = falcon_alibi(ones, heads, torch.float32).view(heads, 5) / 2 * factor  # the root of the width is 2
        split = lambda x: [part.transpose(1, 2) for part in layer._split_heads(x)]
        alibi(f"falcon_{how}", falcon, layer, layer.query_key_value, split, layer.dense, {"key_table": table}, how=f", {how}", score="key_table")

    layer = Swinv2SelfAttention(transformers.Swinv2Config(num_heads=[2], embed_dim=8, depths=[1]), 8, 2, [2, 2]).eval()
    seen, by_head = {}, lambda x: x.unflatten(-1, (2, 4)).transpose(1, 2)
    for name, part in (("q", layer.query), ("k", layer.key), ("v", layer.value)):
        part.register_forward_hook(lambda layer, x, y, name=name: seen.update({name: by_head(y)}))
    layer.continuous_position_bias_mlp.register_forward_hook(lambda layer, x, y: seen.update(bias=16 * y.sigmoid()))
    torch.manual_seed(0)
    output = by_head(layer(torch.randn(1, 4, 8))[0])
    bias = seen.pop("bias").view(-1, 2)[layer.relative_position_index.view(-1)].view(4, 4, 2).permute(2, 0, 1)[None]
    record.keep("swinv2", {"call": "Swinv2SelfAttention", "layout": "BHLD", "options": {"scale": 1.0}, "score": "cosine"},
                {**seen, "output": output, "bias": bias, "head_scale": layer.logit_scale.exp().view(2)})
    return record


def x_transformers_cases():
    import torch
    from x_transformers.attend import Attend

    record = torch_recorder("x-transformers")

    def attend(**settings):
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        made = Attend(heads=2, **settings).eval()
        return record.call(f"Attend({text})", lambda *x, **given: made(*x, **given)[0])

    bottom, mask = {"causal": "BottomRight"}, {"mask": ("key_keep", np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], bool))}
    usual(attend(), "mask", None, "attn_bias", "zero")
    attend()("grouped", {}, sizes=GROUPED, groups="modulo")
    causal, flash = attend(causal=True), attend(causal=True, flash=True)
    causal("causal", bottom)
    causal("causal_longer", bottom, sizes=LONGER, empty="mean")
    causal("key_mask", bottom, mask)
    flash("flash_causal", bottom)
    flash("flash_causal_longer", {"causal": "TopLeft"}, sizes=LONGER)
    cap = attend(softclamp_logits=True, logit_softclamp_value=0.7)
    cap("cap", {"softcap": 0.7})
    cap("bias_in_cap", {}, {"attn_bias": ("bias_in_cap", numbers(1, 2, 3, 5))}, score="bias_in_cap", number=0.7)
    attend(add_zero_kv=True)("zero_kv", {"softmax_plus_one": True})
    return record


def timm_cases():
    import torch
    from timm.layers import Attention

    record = torch_recorder("timm")
    for fused in (True, False):
        made = Attention(24, 2, attn_head_dim=4, dim_out=8, proj_bias=False).eval()
        made.qkv.weight.copy_(torch.eye(24))
        made.proj.weight.copy_(torch.eye(8))
        made.fused_attn = fused
        call = lambda q, k, v, **given: made(torch.cat([q, k, v], -1), **given)
        attend = record.call("timm.layers.Attention(24, 2)", call, "BL(HD)", "" if fused else "not_fused_", SQUARE, inputs="cat(q, k, v)")
        usual(attend, "attn_mask", None, None, "zero" if fused else "nan", None, {"is_causal": True}, "BottomRight", mask_sizes=(2, 1, 4, 4))
    return record


def diffusers_cases():
    import torch
    from diffusers.models.attention_processor import Attention, AttnProcessor, AttnProcessor2_0

    record = torch_recorder("diffusers")

    def attend(processor):
        made = Attention(8, 16, heads=2, dim_head=4, processor=processor()).eval()
        for part, weight in ((made.to_q, torch.eye(8)), (made.to_k, torch.eye(16)[:8]), (made.to_v, torch.eye(16)[8:]), (made.to_out[0], torch.eye(8))):
            part.weight.copy_(weight)
        made.to_out[0].bias.zero_()
        call = lambda q, k, v, **given: made(q, encoder_hidden_states=torch.cat([k, v], -1), **given)
        return record.call(f"Attention(8, 16, processor={processor.__name__}())", call, "BL(HD)", inputs="q, cat(k, v)")

    attend(AttnProcessor)("plain")
    attend(AttnProcessor)("bias", {}, {"attention_mask": ("bias", 2, 2, numbers(4, 1, 5))})
    attend(AttnProcessor2_0)("fused_plain")
    attend(AttnProcessor2_0)("fused_mask", {}, {"attention_mask": ("keep", 2, 1, pattern(2, 1, 5))})
    attend(AttnProcessor2_0)("fused_bias", {}, {"attention_mask": ("bias", 2, 2, numbers(4, 1, 5))})
    return record


def xformers_cases():
    from xformers.ops.fmha import attn_bias as masks

    record = torch_recorder("xformers")
    blocks = masks.BlockDiagonalMask.from_seqlens([2, 3], [4, 3])
    triangle = blocks.make_causal_from_bottomright()
    bottom, packed = {"causal": "BottomRight"}, {"ends_q": np.array([0, 2, 5], "int32"), "ends_k": np.array([0, 4, 7], "int32")}
    for name, text, mask, sizes, options in (
        ("lower_triangular", "LowerTriangularMask()", masks.LowerTriangularMask(), (3, 5), {"causal": "TopLeft"}),
        ("bottom_right", "LowerTriangularFromBottomRightMask()", masks.LowerTriangularFromBottomRightMask(), (3, 5), bottom),
        ("bottom_right_longer", "LowerTriangularFromBottomRightMask()", masks.LowerTriangularFromBottomRightMask(), (5, 3), bottom),
        ("local_triangle", "LowerTriangularFromBottomRightLocalAttentionMask(2)", masks.LowerTriangularFromBottomRightLocalAttentionMask(2), (3, 5),
         {**bottom, "window": [1, 0]}),
        ("local", "LocalAttentionFromBottomRightMask(2, 1)", masks.LocalAttentionFromBottomRightMask(2, 1), (3, 5), {"window": [2, 1]}),
        ("blocks", "BlockDiagonalMask", blocks, (5, 7), {}),
        ("blocks_causal", "BlockDiagonalMask.make_causal()", blocks.make_causal(), (5, 7), {"causal": "TopLeft"}),
        ("blocks_bottom_right", "BlockDiagonalMask.make_causal_from_bottomright()", triangle, (5, 7), bottom),
        ("blocks_local", "BlockDiagonalMask.make_causal_from_bottomright().make_local_attention(2)", triangle.make_local_attention(2), (5, 7),
         {"causal": "TopLeft", "window": [1, 0], "align": "TopLeft"}),
        ("blocks_local_bottom_right", "BlockDiagonalMask.make_causal().make_local_attention_from_bottomright(2)",
         blocks.make_causal().make_local_attention_from_bottomright(2), (5, 7), {**bottom, "window": [1, 0]}),
    ):
        shown = {"visible": mask.materialize(sizes).eq(0).numpy(), **(packed if name.startswith("blocks") else {})}
        record.keep(name, {"call": text, "options": options}, shown)
    return record


def main():
    libraries = sys.argv[1:]
    if libraries[:1] == ["--here"]:
        global np
        import numpy as np

        record = globals()[f"{libraries[1]}_cases"]()
        metadata, entries = load(BUNDLE)
        mine = lambda key: key.startswith(record.library + "-")
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
