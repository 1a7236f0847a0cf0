"""Cases of torch.nn.TransformerEncoderLayer and TransformerDecoderLayer, drawn from a seed or named."""

import pathlib
import random
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
from attentive_case import write_case  # noqa: E402
from case_layers import DECODER, ENCODER, built_layer  # noqa: E402
from case_support import hiding_mask, normal  # noqa: E402

LAYER_SAMPLES = 24
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
KINDS = {"encoder": ENCODER, "decoder": DECODER}


def layer_sample(index, rng):
    """One random combination: (file name, module, inputs, settings of write_case)."""
    kind = rng.choice(("encoder", "decoder"))
    heads = rng.choice((1, 2, 4))
    width = heads * rng.choice((1, 2, 3))
    options = {"d_model": width, "nhead": heads, "dim_feedforward": rng.randint(1, 6), "dropout": 0.0}
    options["activation"] = rng.choice(("relu", "relu", "gelu", "silu", "tanh"))
    options["batch_first"] = rng.random() < 0.6
    options["norm_first"] = rng.random() < 0.4
    options["bias"] = rng.random() < 0.7
    if rng.random() < 0.3:
        options["layer_norm_eps"] = 0.01
    batch = rng.choice((None, 1, 2, 3))
    tokens, keys = rng.randint(1, 5), rng.randint(1, 5)
    dtype_name = rng.choice(("fp32", "fp32", "fp32", "fp64", "bf16"))
    dtype = DTYPES[dtype_name]
    grads, train = rng.random() < 0.7, rng.random() < 0.5
    seed = 20000 + 20 * index

    def sequence(offset, length):
        shape = (length,) if batch is None else (batch, length) if options["batch_first"] else (length, batch)
        return normal(seed + offset, *shape, width, dtype=dtype)

    inputs, call = {}, {}

    def masks(offset, prefix, length):
        """Masks for `tokens` queries and `length` keys: pair mask, key mask and causal hint, each possibly absent."""
        form = rng.choice(("none", "bool", "float"))
        causal = form != "none" and length == tokens and rng.random() < 0.4
        shape = (tokens, length)
        if not causal and rng.random() < 0.3:
            shape = ((batch or 1) * heads, *shape)
        pairs = hiding_mask(form, seed + offset, shape, causal, dtype)
        padding = hiding_mask(form, seed + offset + 1, (batch, length) if batch else (length,), False, dtype)
        if pairs is not None and rng.random() < 0.7:
            inputs[f"{prefix}mask"] = pairs
            if causal:
                call["is_causal" if kind == "encoder" else f"{prefix}is_causal"] = True
        if padding is not None and rng.random() < 0.6:
            inputs[f"{prefix}key_padding_mask"] = padding

    if kind == "encoder":
        inputs["src"] = sequence(0, tokens)
        masks(2, "src_", tokens)
    else:
        inputs["tgt"], inputs["memory"] = sequence(0, tokens), sequence(1, keys)
        masks(2, "tgt_", tokens)
        masks(6, "memory_", keys)
    own_values = rng.random() < 0.7
    module = built_layer(KINDS[kind], options, index, dtype, value_seed=1000 * index if own_values else None)
    # The constructor takes a function, but the case has its name, so only these two can be drawn again.
    seeded = not own_values and options["activation"] in ("relu", "gelu")
    settings = {"options": options, "call": call, "train": train, "grads": grads}
    settings["init_seed"] = index if seeded else None
    if dtype == torch.bfloat16:
        settings["expected_dtype"] = torch.float64  # for a width of one, PyTorch's sums are too inexact
    return f"{kind}-{index:03d}-{dtype_name}", module, inputs, settings


def layer_random(folder):
    rng = random.Random(40)
    for index in range(1, LAYER_SAMPLES + 1):
        name, module, inputs, settings = layer_sample(index, rng)
        write_case(folder.file(name), module, **settings, **inputs)


def layer_named(folder):
    options = {"d_model": 4, "nhead": 2, "dim_feedforward": 5, "dropout": 0.0, "batch_first": True}
    x, memory = normal(21, 2, 3, 4), normal(22, 2, 5, 4)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    padding_of_memory = hiding_mask("bool", 23, (2, 5), False, torch.float32)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)

    def write(what, *inputs, seed=6, **settings):
        kind = ENCODER if len(inputs) == 1 else DECODER
        module = built_layer(kind, options, seed, inputs[0].dtype, value_seed=1000 * seed)
        write_case(folder.file(what), module, *inputs, **settings)

    # Options recovered from the layer. Without gradients and in eval, PyTorch uses its fused encoder layer.
    write("encoder-options_read", x)
    write("encoder-fused", x, train=False, grads=False)
    write("encoder-fused-padding", x, src_key_padding_mask=padding, train=False, grads=False)
    write("encoder-fused-causal", x, src_mask=causal, is_causal=True, train=False, grads=False)
    write("decoder-options_read", x, memory, tgt_mask=causal, tgt_is_causal=True)
    write("decoder-no_grads", x, memory, tgt_key_padding_mask=padding, train=False, grads=False)
    with torch.autocast("cpu", torch.bfloat16):
        write("autocast-encoder", x, src_key_padding_mask=padding)
        write("autocast-decoder", x, memory, tgt_mask=causal, memory_key_padding_mask=padding_of_memory)
