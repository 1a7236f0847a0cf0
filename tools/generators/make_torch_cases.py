"""Writes small differential cases of torch.nn.MultiheadAttention, F.scaled_dot_product_attention and the layers.

    python tools/generators/make_torch_cases.py [--out tests/parity]

The option combinations are drawn from a fixed seed, so that running it twice gives the same bytes; combinations that
deserve a name of their own are written out by hand below them.
"""

import math
import random
import warnings

import torch

from case_support import DECODER, ENCODER, built_layer, hiding_mask, move_values, normal, run_generator, write_case

MHA_SAMPLES = 150
SDPA_SAMPLES = 74
LAYER_SAMPLES = 24
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
DTYPE_CHOICES = ("fp32",) * 6 + ("fp64", "bf16", "fp16")

sdpa = torch.nn.functional.scaled_dot_product_attention


# --- torch.nn.MultiheadAttention ----------------------------------------------------------------------------------


def mha_module(options, seed, dtype, own_biases):
    """The module that PyTorch draws after `seed`; with own_biases, the zero biases get values that the test can detect."""
    torch.manual_seed(seed)
    module = torch.nn.MultiheadAttention(**{key: value for key, value in options.items() if value is not None})
    if own_biases:
        move_values(module, 1000 * seed, lambda key: key.endswith("bias"))
    return module.to(dtype)


def mha_sample(index, rng):
    """One random combination: (file name, module, inputs, options, init_seed or None, call)."""
    heads = rng.choice((1, 2, 2, 4))
    embed = heads * rng.choice((1, 2, 3) if heads < 4 else (1, 2))
    form = rng.choice(("self", "self", "cross", "widths"))
    options = {"embed_dim": embed, "num_heads": heads}
    if rng.random() < 0.6:
        options["batch_first"] = True
    if rng.random() < 0.3:
        options["bias"] = False
    extra_key = rng.random() < 0.3
    zero_key = rng.random() < 0.3
    if extra_key:
        options["add_bias_kv"] = True
    if zero_key:
        options["add_zero_attn"] = True
    if rng.random() < 0.15:
        options["dropout"] = 0.3
    if form == "widths":
        options["kdim"], options["vdim"] = rng.choice(((3, 5), (embed, 2), (4, embed), (2, 2)))
    batch = rng.choice((None, 1, 2, 2, 3))
    queries = rng.randint(1, 5)
    keys = queries if form == "self" else rng.randint(1, 5)
    dtype_name = rng.choice(DTYPE_CHOICES)
    dtype = DTYPES[dtype_name]

    def tensor(seed, length, width):
        if batch is None:
            return normal(seed, length, width, dtype=dtype)
        first, second = (batch, length) if options.get("batch_first") else (length, batch)
        return normal(seed, first, second, width, dtype=dtype)

    seed = 10 * index
    query = tensor(seed, queries, embed)
    key = query if form == "self" else tensor(seed + 1, keys, options.get("kdim", embed))
    value = query if form == "self" else tensor(seed + 2, keys, options.get("vdim", embed))
    inputs = {"query": query, "key": key, "value": value}

    call = {}
    if rng.random() < 0.5:
        call["need_weights"] = rng.random() < 0.4
    if call.get("need_weights", True) and rng.random() < 0.5:
        call["average_attn_weights"] = False
    # If no weights are requested, PyTorch replaces the mask by its causal flag; with an added key, the two
    # disagree.
    causal = rng.random() < 0.2 and not ((extra_key or zero_key) and not call.get("need_weights", True))
    kind = rng.choice(("none", "bool", "float", "float")) if not causal else rng.choice(("bool", "float"))
    per_head = rng.random() < 0.4 and not causal
    shape = ((batch or 1) * heads, queries, keys) if per_head else (queries, keys)
    attn_mask = hiding_mask(kind, seed + 3, shape, causal, dtype)
    if attn_mask is not None:
        inputs["attn_mask"] = attn_mask
    if causal:
        call["is_causal"] = True
    padding_kind = rng.choice(("none", "none", "bool", "float")) if kind == "none" else rng.choice(("none", kind))
    padding = hiding_mask(padding_kind, seed + 5, (keys,) if batch is None else (batch, keys), False, dtype)
    if padding is not None:
        inputs["key_padding_mask"] = padding

    own_biases = rng.random() < 0.6
    init_seed = index
    module = mha_module(options, init_seed, dtype, own_biases)
    train = False if options.get("dropout") else rng.random() < 0.5
    name = f"mha-{index:03d}-{form}-{dtype_name}"
    return name, module, inputs, options, (None if own_biases else init_seed), call, train


def mha_random(folder):
    rng = random.Random(20)
    for index in range(1, MHA_SAMPLES + 1):
        name, module, inputs, options, init_seed, call, train = mha_sample(index, rng)
        settings = {"options": options, "init_seed": init_seed, "call": call, "train": train}
        write_case(folder.file(name), module, **settings, **inputs)


def mha_named(folder):
    """Special combinations: queries without keys, shared and mixed inputs, hints, the published defaults."""
    options = {"embed_dim": 4, "num_heads": 2, "batch_first": True}
    x, memory = normal(1, 2, 3, 4), normal(2, 2, 5, 4)
    all_padded = torch.tensor([[True, True, True], [False, True, False]])
    empty_row = torch.zeros(3, 3, dtype=torch.bool)
    empty_row[1] = True
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    causal_float = torch.zeros(3, 3).masked_fill(causal, -math.inf)
    wide_causal = torch.ones(3, 5, dtype=torch.bool).triu(1)
    last_padded = torch.tensor([[False, False, True], [False, False, False]])
    unweighted = {"is_causal": True, "need_weights": False}

    def write(what, *inputs, options=options, seed=5, own_biases=True, **settings):
        module = mha_module(options, seed, inputs[0].dtype, own_biases)
        path = folder.file(f"mha-{what}")
        write_case(path, module, *inputs, options=options, init_seed=None if own_biases else seed, **settings)

    # PyTorch returns NaN if weights are requested, and the output bias if they are not.
    for what, call in (("weights", {}), ("heads", {"average_attn_weights": False}), ("fused", {"need_weights": False})):
        write(f"all_keys_padded-{what}", x, x, x, key_padding_mask=all_padded, call=call)
        write(f"empty_row-{what}", x, x, x, attn_mask=empty_row, call=call)
        minus_inf = torch.zeros(3, 3).masked_fill(empty_row, -math.inf)
        write(f"empty_row_float-{what}", x, x, x, attn_mask=minus_inf, call=call)
    # With a zero key no row can be empty.
    with_zero = {**options, "add_zero_attn": True}
    write("all_keys_padded-zero_key", x, x, x, options=with_zero, key_padding_mask=all_padded)
    with_bias = {**options, "add_bias_kv": True}
    write("all_keys_padded-bias_key", x, x, x, options=with_bias, key_padding_mask=all_padded)

    sequence_first = {"embed_dim": 4, "num_heads": 2}
    write("defaults", normal(3, 3, 2, 4), normal(13, 5, 2, 4), normal(14, 5, 2, 4), options=sequence_first)
    write("key_is_value", x, memory, memory)
    write("value_is_query", x, normal(4, 2, 3, 4), x)
    write("key_is_query", x, x, normal(5, 2, 3, 4))
    write("equal_values_different_tensors", x, x.clone(), x.clone())
    write("plain_sum", x, x, x, grad_output=None)
    write("fresh_weights", x, x, x, own_biases=False)
    fresh_widths = {**options, "kdim": 3, "vdim": 5, "add_bias_kv": True}
    write("fresh_weights-widths", x, normal(6, 2, 5, 3), normal(7, 2, 5, 5), options=fresh_widths, own_biases=False)
    write("causal_hint-weights", x, x, x, attn_mask=causal, is_causal=True)
    write("causal_hint-fused", x, x, x, attn_mask=causal, **unweighted)
    write("causal_hint-float", x, x, x, attn_mask=causal_float, **unweighted)
    write("causal_hint-wide", x, memory, memory, attn_mask=wide_causal, **unweighted)
    write("causal_and_padding", x, x, x, attn_mask=causal, key_padding_mask=last_padded, **unweighted)
    write("mixed_mask_types", x, x, x, attn_mask=normal(8, 3, 3), key_padding_mask=last_padded)
    explicit = {**options, "kdim": None, "vdim": None, "bias": True, "add_bias_kv": False, "add_zero_attn": False}
    write("nulls_are_defaults", x, x, x, options=explicit, call={"need_weights": True, "average_attn_weights": True})
    bias = normal(9, 3, 3).requires_grad_()
    write("mask_gradient", x, x, x, attn_mask=bias)
    # Without gradients, another kernel computes the weights, and PyTorch may use its fused module.
    per_head = {"average_attn_weights": False}
    for what, call in (("averaged", {}), ("heads", per_head), ("fused", {"need_weights": False})):
        for suffix, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            y = x.to(dtype)
            write(f"no_grads-{what}-{suffix}", y, y, y, attn_mask=causal, call=call, train=False, grads=False)
    y = x.bfloat16()
    write("float_mask-bf16", y, y, y, attn_mask=2 * normal(10, 3, 3), need_weights=False)


# --- torch.nn.functional.scaled_dot_product_attention -------------------------------------------------------------


def sdpa_sample(index, rng):
    """One random combination: (file name, inputs, call)."""
    rank = rng.choice((2, 3, 4, 4, 4))
    batch = rng.choice((1, 2, 3))
    groups = rng.random() < 0.25 and rank == 4
    key_heads = rng.choice((1, 2))
    heads = key_heads * rng.choice((2, 3)) if groups else key_heads
    width = rng.choice((1, 2, 3, 4, 8))
    value_width = rng.choice((width, width, 1, 2, 5))
    queries, keys = rng.randint(1, 6), rng.randint(1, 6)
    dtype_name = rng.choice(DTYPE_CHOICES)
    dtype = DTYPES[dtype_name]
    lead = {2: (), 3: (batch,), 4: (batch, heads)}[rank]
    key_lead = (batch, key_heads) if rank == 4 else lead
    seed = 5000 + 10 * index
    inputs = {
        "query": normal(seed, *lead, queries, width, dtype=dtype),
        "key": normal(seed + 1, *key_lead, keys, width, dtype=dtype),
        "value": normal(seed + 2, *key_lead, keys, value_width, dtype=dtype),
    }
    call = {}
    if groups:
        call["enable_gqa"] = True
    if rng.random() < 0.4:
        call["scale"] = rng.choice((1.0, 0.125, 0.3, 2.0, -0.5, 0.7))
    kind = rng.choice(("none", "causal", "bool", "bool", "float", "float"))
    if kind == "causal":
        call["is_causal"] = True
    elif kind != "none":
        shapes = [(queries, keys), (1, keys), (queries, 1)]
        if rank >= 3:
            shapes += [(batch, queries, keys)] if rank == 3 else [(1, 1, queries, keys), (batch, 1, 1, keys)]
        if rank == 4:
            shapes += [(batch, heads, queries, keys), (1, heads, queries, keys), (heads, queries, keys)]
        shape = rng.choice(shapes)
        keep = normal(seed + 3, *shape) > -0.5
        if shape[-1] > 1:
            keep[..., 0] = True
        if kind == "bool":
            inputs["attn_mask"] = keep
        else:
            bias = normal(seed + 4, *shape)
            if rng.random() < 0.5 and shape[-1] > 1:
                bias = bias.masked_fill(~keep, -math.inf)
            inputs["attn_mask"] = bias.to(dtype)
    return f"sdpa-{index:03d}-{kind}-{dtype_name}", inputs, call


def sdpa_random(folder):
    rng = random.Random(30)
    for index in range(1, SDPA_SAMPLES + 1):
        name, inputs, call = sdpa_sample(index, rng)
        write_case(folder.file(name), sdpa, call=call, **inputs)


def sdpa_named(folder):
    q, k, v = normal(1, 2, 2, 3, 4), normal(2, 2, 2, 5, 4), normal(3, 2, 2, 5, 4)

    def write(what, *inputs, **settings):
        write_case(folder.file(f"sdpa-{what}"), sdpa, *inputs, **settings)

    write("defaults", q, k, v)
    write("plain_sum", q, k, v, grad_output=None)
    write("positional", q, k, v, None, 0.0, True)
    write("causal-fewer_queries", q, k, v, is_causal=True)
    write("causal-more_queries", k, q, q, is_causal=True)
    write("causal-square", k, k.flip(-1), v, is_causal=True)
    write("value_wider", q, k, normal(4, 2, 2, 5, 7))
    keep = torch.ones(3, 5, dtype=torch.bool)
    keep[1] = False
    write("empty_row-bool", q, k, v, attn_mask=keep)
    write("empty_row-float", q, k, v, attn_mask=torch.zeros(3, 5).masked_fill(~keep, -math.inf))
    item = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    item[0] = False
    write("empty_item-bool", q, k, v, attn_mask=item)
    write("empty_everything", q, k, v, attn_mask=torch.zeros(3, 5, dtype=torch.bool))
    write("mask_gradient-2d", q, k, v, attn_mask=normal(5, 3, 5).requires_grad_())
    write("mask_gradient-4d", q, k, v, attn_mask=normal(6, 2, 1, 3, 5).requires_grad_())
    # In float64, because at this size the rounding of float32 scores exceeds the tolerance.
    write("large_scores-fp64", *(10 * t.double() for t in (q, k)), v.double())
    write("gqa-causal", normal(7, 2, 4, 3, 4), k, v, is_causal=True, enable_gqa=True)
    write("mqa-masked", normal(8, 2, 4, 3, 4), k[:, :1], v[:, :1], attn_mask=keep.logical_not(), enable_gqa=True)
    write("same_tensor_three_times", k, k, k)
    write("scale-one", q, k, v, scale=1.0)
    write("no_grads", q, k, v, is_causal=True, grads=False)
    half = [t.bfloat16() for t in (q, k, v)]
    write("no_grads-bf16", *half, grads=False)
    write("float_mask-bf16", *half, attn_mask=2 * normal(9, 3, 5))


# --- The transformer layers ---------------------------------------------------------------------------------------


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
    layer = ENCODER if kind == "encoder" else DECODER
    module = built_layer(layer, options, index, dtype, value_seed=1000 * index if own_values else None)
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


# --- Attention under autocast ------------------------------------------------------------------------------------


def autocast_named(folder):
    """Each tensor keeps the dtype that the call received, and a float32 mask is rounded like the other tensors."""
    module = mha_module({"embed_dim": 4, "num_heads": 2, "batch_first": True}, 5, torch.float32, own_biases=True)
    x, memory, mask = normal(1, 2, 3, 4), normal(2, 2, 5, 4), 2 * normal(11, 3, 5)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    q, k, v = normal(1, 2, 2, 3, 4), normal(2, 2, 2, 5, 4), normal(3, 2, 2, 5, 4)

    def write(what, *call, **settings):
        write_case(folder.file(f"autocast-{what}"), *call, **settings)

    with torch.autocast("cpu", torch.bfloat16):
        write("mha", module, x, memory, memory, attn_mask=mask, call={"average_attn_weights": False})
        write("mha-fused", module, x, x, x, key_padding_mask=padding, need_weights=False)
        write("mha-no_grads", module, x.bfloat16(), memory, memory, train=False, grads=False)
        write("sdpa", sdpa, q, k, v, attn_mask=mask)
        write("sdpa-mixed", sdpa, q, k.bfloat16(), v.bfloat16(), attn_mask=mask.clone().requires_grad_())


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*mismatched key_padding_mask and attn_mask.*")
    parts = (mha_random, mha_named, sdpa_random, sdpa_named, autocast_named, layer_random, layer_named)
    run_generator(__doc__, {"torch": 20_000}, *parts)
