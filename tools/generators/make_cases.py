"""Writes the golden cases of the notebook classes: the bundles notebooks and dropout in tests/parity.

    python tools/generators/make_cases.py [--out tests/parity]

Running it twice gives the same bytes. Every case holds one module, one call, its results and its gradients.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
import notebook_modules as notebook  # noqa: E402
from attentive_case import SDPA_NAME, dropout_path, write_case  # noqa: E402
from case_support import emulated_dropout, normal, run_generator  # noqa: E402

# Six tokens, "Your journey starts with one step", three features each.
SENTENCE = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)
BATCH = torch.stack((SENTENCE, SENTENCE))
DTYPES = {"fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}


def built(kind, options, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    return kind(**options).to(dtype)


def write_module(folder, what, kind, options, *inputs, seed, dtype=torch.float32, **settings):
    """One case of one notebook class, with weights drawn in float32 from `seed` and cast to `dtype`."""
    write_case(
        folder.file(f"{kind.__name__}-{what}"),
        built(kind, options, seed, dtype),
        *inputs,
        name=getattr(kind, "case_name", kind.__name__),
        options=options,
        init_seed=seed,
        **settings,
    )


def in_all_dtypes(folder, what, kind, options, inputs, seed, **settings):
    for suffix, dtype in DTYPES.items():
        cast = [x.to(dtype) for x in inputs]
        write_module(folder, f"{what}-{suffix}", kind, options, *cast, seed=seed, dtype=dtype, **settings)


def plain_classes(folder):
    """The classes v1, v2 and the quoted matrix class: one head, no mask, two-dimensional in the notebook."""
    for kind, seed, names in (
        (notebook.SelfAttention_v1, 123, ("d_in", "d_out")),
        (notebook.SelfAttention_v2, 789, ("d_in", "d_out")),
        (notebook.MatrixSelfAttention, 123, ("d_model", "d_k")),
    ):

        def sizes(width, head, names=names):
            return dict(zip(names, (width, head)))

        # The notebook's call, with a plain sum as the loss, as for the printed gradients.
        write_module(folder, "notebook", kind, sizes(3, 2), SENTENCE, seed=seed, grad_output=None)
        write_module(folder, "weighted_loss", kind, sizes(3, 2), SENTENCE, seed=seed)
        write_module(folder, "batched", kind, sizes(3, 2), BATCH, seed=seed)
        write_module(folder, "wide_head", kind, sizes(4, 7), normal(1, 2, 5, 4), seed=7)
        write_module(folder, "one_token", kind, sizes(5, 3), normal(2, 1, 5), seed=8)
        write_module(folder, "batch_equals_tokens", kind, sizes(4, 3), normal(3, 3, 3, 4), seed=9)
        in_all_dtypes(folder, "batched", kind, sizes(6, 4), [normal(4, 2, 5, 6)], seed=10)
    biased = {"d_in": 3, "d_out": 2, "qkv_bias": True}
    write_module(folder, "bias", notebook.SelfAttention_v2, biased, SENTENCE, seed=789)
    write_module(folder, "bias_batched", notebook.SelfAttention_v2, {**biased, "d_out": 5}, BATCH, seed=11)
    in_all_dtypes(folder, "bias", notebook.SelfAttention_v2, biased, [SENTENCE], seed=12)


def causal_classes(folder):
    for kind, heads in (
        (notebook.CausalAttention, {}),
        (notebook.MultiHeadAttentionWrapper, {"num_heads": 2}),
        (notebook.MultiHeadAttention, {"num_heads": 2}),
    ):
        published = {"d_in": 3, "d_out": 2, "context_length": 6, "dropout": 0.0, **heads}
        write_module(folder, "notebook", kind, published, BATCH, seed=123, grad_output=None)
        write_module(folder, "weighted_loss", kind, published, BATCH, seed=123)
        write_module(folder, "unbatched", kind, published, SENTENCE, seed=123)
        write_module(folder, "shorter_than_context", kind, published, BATCH[:, :4], seed=123)
        write_module(folder, "one_token", kind, published, BATCH[:, :1], seed=123)
        eval_options = {**published, "dropout": 0.5}
        write_module(folder, "dropout_in_eval", kind, eval_options, BATCH, seed=123, train=False)
        wide = {**published, "d_in": 5, "d_out": 6, "context_length": 9, "qkv_bias": True}
        write_module(folder, "bias", kind, wide, normal(21, 2, 7, 5), seed=22)
        write_module(folder, "bias_unbatched", kind, wide, normal(23, 9, 5), seed=24)
        write_module(folder, "one_batch_item", kind, {**wide, "qkv_bias": False}, normal(25, 1, 8, 5), seed=26)
        in_all_dtypes(folder, "bias", kind, {**wide, "d_out": 4}, [normal(27, 2, 5, 5)], seed=28)
        in_all_dtypes(folder, "notebook", kind, published, [BATCH], seed=123)
    for heads, d_out in ((1, 4), (3, 6), (6, 6)):
        options = {"d_in": 4, "d_out": d_out, "context_length": 5, "dropout": 0.0, "num_heads": heads}
        x = normal(30 + heads, 2, 5, 4)
        write_module(folder, f"heads_{heads}", notebook.MultiHeadAttention, options, x, seed=31)
        options["d_out"] = 2
        write_module(folder, f"heads_{heads}", notebook.MultiHeadAttentionWrapper, options, x, seed=31)


def toy_attention(folder):
    kind = notebook.ScaledDotProductAttention
    q, k, v = normal(41, 2, 4, 6), normal(42, 2, 5, 6), normal(43, 2, 5, 3)
    square = normal(44, 2, 5, 6)
    rectangle = normal(45, 2, 4, 5) > -0.5
    rectangle[..., 0] = True

    def write(what, *inputs, options=None, **settings):
        options = options or {}
        write_case(folder.file(f"{kind.__name__}-{what}"), kind(**options), *inputs, options=options, **settings)

    write("cross", q, k, v)
    write("self", square, square, square)
    write("unbatched", q[0], k[0], v[0])
    write("four_axes", normal(46, 2, 2, 4, 3), normal(47, 2, 2, 5, 3), normal(48, 2, 2, 5, 2))
    write("head_width_one", q[..., :1], k[..., :1], v)
    for name, dtype in (("bool", torch.bool), ("int", torch.int64), ("float", torch.float32)):
        write(f"mask_{name}", q, k, v, rectangle.to(dtype))
    write("mask_two_axes", q, k, v, torch.ones(4, 5).tril(1))
    write("mask_row", q, k, v, torch.tensor([1, 1, 0, 1, 0]).expand(2, 1, 5).contiguous())
    write("mask_nothing", q, k, v, torch.ones(2, 4, 5, dtype=torch.bool))
    empty = rectangle.clone()
    empty[0, 2] = False
    write("mask_empty_row", q, k, v, empty)
    write("dropout_in_eval", q, k, v, options={"dropout": 0.5}, train=False)
    write("no_grads", q, k, v, rectangle, train=False, grads=False)
    write("no_grads-bf16", *(t.bfloat16() for t in (q, k, v)), rectangle, train=False, grads=False)
    for suffix, dtype in DTYPES.items():
        write(f"cross_{suffix}", q.to(dtype), k.to(dtype), v.to(dtype), rectangle)


def toy_multi_head(folder):
    kind = notebook.MultiHeadSelfAttention
    options = {"d_model": 8, "num_heads": 2, "dropout": 0.0}
    x = normal(51, 2, 4, 8)
    padding = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).reshape(2, 1, 1, 4)
    causal = torch.ones(4, 4).tril().reshape(1, 1, 4, 4)

    def write(what, *inputs, options=options, seed=42, **settings):
        write_module(folder, what, kind, options, *inputs, seed=seed, **settings)

    write("plain", x)
    write("plain_sum", x, grad_output=None)
    write("defaults", normal(52, 1, 3, 4), options={"d_model": 4})
    write("padding_int", x, padding)
    write("padding_bool", x, padding.bool())
    write("padding_float", x, padding.float())
    write("causal_float", x, causal)
    write("causal_uint8", x, causal.to(torch.uint8))
    write("general_per_item", x, (causal * padding).contiguous())
    write("general_per_head", x, torch.cat((causal, torch.ones(1, 1, 4, 4)), 1).repeat(2, 1, 1, 1))
    write("batch_equals_heads_and_tokens", normal(53, 2, 2, 8), torch.tensor([1, 1, 1, 0]).reshape(2, 1, 1, 2))
    empty = (causal * padding).bool()
    empty[1, 0, 2] = False
    write("empty_row", x, empty)
    write("no_grads", x, (causal * padding).contiguous(), train=False, grads=False)
    write("one_head", x, options={**options, "num_heads": 1})
    write("heads_of_width_one", x[..., :4], options={**options, "d_model": 4, "num_heads": 4})
    write("one_token", x[:, :1])
    write("dropout_in_eval", x, padding, options={**options, "dropout": 0.1}, train=False)
    for suffix, dtype in DTYPES.items():
        write(f"padding_{suffix}", x.to(dtype), padding.bool(), dtype=dtype)

    # The notebook's order is one seed, then the input, then the module, so no init_seed describes the
    # weights.
    torch.manual_seed(42)
    first = torch.randn(2, 4, 8)
    module = kind(**options)
    for what, mask in (("padding", padding), ("causal", causal)):
        write_case(folder.file(f"{kind.__name__}-input_drawn_first_{what}"), module, first, mask, options=options)


def blog_attention(folder):
    def write(what, *inputs, **settings):
        path = folder.file(f"scaled_dot_product_attention-{what}")
        write_case(path, notebook.scaled_dot_product_attention, *inputs, **settings)

    torch.manual_seed(3)
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 3)
    write("seed_3", q, k, v, grad_output=None)
    write("weighted_loss", q, k, v)
    write("unbatched", q[0], k[0], v[0])
    write("four_axes", normal(61, 2, 3, 4, 2), normal(62, 2, 3, 5, 2), normal(63, 2, 3, 5, 4))
    write("width_six_fp64", *(normal(64 + i, 2, 4, 6, dtype=torch.float64) for i in range(3)))
    write("no_grads", q, k, v, grads=False)
    write("no_grads-bf16", *(t.bfloat16() for t in (q, k, v)), grads=False)
    write("one_key", q, k[:, :1], v[:, :1])
    for suffix, dtype in DTYPES.items():
        write(suffix, q.to(dtype), k.to(dtype), v.to(dtype))


def shared_heads(folder):
    kind = notebook.SharedHeadAttention
    options = {"embed_size": 8, "heads": 2}
    values, keys, query = normal(71, 2, 6, 8), normal(72, 2, 6, 8), normal(73, 2, 4, 8)
    keep = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1]]).reshape(2, 1, 1, 6)
    general = (normal(74, 2, 1, 4, 6) > -0.5).float()
    general[..., 0] = 1

    def write(what, *inputs, options=options, seed=3, **settings):
        write_module(folder, what, kind, options, *inputs, seed=seed, **settings)

    write("cross", values, keys, query)
    write("cross_sum", values, keys, query, grad_output=None)
    write("self", query, query, query)
    write("mask_bool", values, keys, query, keep.bool())
    write("mask_int", values, keys, query, keep)
    write("mask_float", values, keys, query, keep.float())
    write("mask_general", values, keys, query, general)
    empty = general.clone()
    empty[1, 0, 3] = 0
    write("empty_row", values, keys, query, empty)
    write("one_head", values, keys, query, options={"embed_size": 8, "heads": 1})
    write("heads_of_width_one", values[..., :4], keys[..., :4], query[..., :4], options={"embed_size": 4, "heads": 4})
    write("one_query", values, keys, query[:, :1])
    # A head of width three: the blog's float32 root differs from the root of 3.
    three = [t[..., :6].double() for t in (values, keys, query)]
    write("heads_of_width_three-fp64", *three, options={"embed_size": 6, "heads": 2}, dtype=torch.float64)
    for suffix, dtype in DTYPES.items():
        write(suffix, values.to(dtype), keys.to(dtype), query.to(dtype), keep.bool(), dtype=dtype)

    # The input is drawn before the module, after one seed.
    torch.manual_seed(3)
    drawn = torch.randn(2, 6, 8), torch.randn(2, 6, 8), torch.randn(2, 4, 8)
    module = kind(**options)
    for what, mask in (("", ()), ("_mask", (keep.bool(),))):
        path = folder.file(f"{kind.__name__}-input_drawn_first{what}")
        write_case(path, module, *drawn, *mask, name=kind.case_name, options=options)


def fused_heads(folder):
    kind = notebook.FusedSelfAttention

    def write(what, options, *inputs, seed=4, **settings):
        write_module(folder, what, kind, options, *inputs, seed=seed, **settings)

    write("plain", {"embed_dim": 12, "num_heads": 4}, normal(81, 2, 5, 12))
    write("plain_sum", {"embed_dim": 12, "num_heads": 4}, normal(81, 2, 5, 12), grad_output=None)
    write("default_heads", {"embed_dim": 8}, normal(82, 2, 3, 8))
    write("one_head", {"embed_dim": 6, "num_heads": 1}, normal(83, 1, 7, 6))
    write("three_heads", {"embed_dim": 9, "num_heads": 3}, normal(84, 3, 3, 9))
    write("one_token", {"embed_dim": 8, "num_heads": 2}, normal(85, 2, 1, 8))
    for suffix, dtype in DTYPES.items():
        x = normal(86, 2, 5, 8, dtype=dtype)
        write(suffix, {"embed_dim": 8, "num_heads": 2}, x, dtype=dtype)
    torch.manual_seed(4)
    x = torch.randn(2, 5, 8)
    options = {"embed_dim": 8, "num_heads": 4}
    path = folder.file(f"{kind.__name__}-input_drawn_first")
    write_case(path, kind(**options), x, name=kind.case_name, options=options)


def dropout_cases(folder):
    """Training with dropout, once for each of PyTorch's two CPU streams."""
    causal = {"d_in": 3, "d_out": 2, "context_length": 6, "dropout": 0.5}
    toy_mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).reshape(2, 1, 1, 4)
    toy = {"d_model": 8, "num_heads": 2, "dropout": 0.1}
    mha = {"embed_dim": 8, "num_heads": 2, "dropout": 0.25, "batch_first": True}
    q, k, v = normal(91, 2, 4, 6), normal(92, 2, 5, 6), normal(93, 2, 5, 3)
    x = normal(94, 2, 4, 8)
    modules = [
        ("notebook", notebook.CausalAttention, causal, (BATCH,)),
        ("unbatched", notebook.CausalAttention, {**causal, "dropout": 0.2}, (SENTENCE[:5],)),
        ("notebook", notebook.MultiHeadAttentionWrapper, {**causal, "num_heads": 2}, (BATCH,)),
        ("notebook", notebook.MultiHeadAttention, {**causal, "num_heads": 2}, (BATCH,)),
        ("bias", notebook.MultiHeadAttention, {**causal, "d_out": 6, "num_heads": 3, "qkv_bias": True}, (BATCH,)),
        ("everything", notebook.MultiHeadAttention, {**causal, "num_heads": 2, "dropout": 1.0}, (BATCH,)),
        ("plain", notebook.MultiHeadSelfAttention, toy, (x,)),
        ("masked", notebook.MultiHeadSelfAttention, {**toy, "dropout": 0.5}, (x, toy_mask)),
        ("cross", notebook.ScaledDotProductAttention, {"dropout": 0.4}, (q, k, v)),
        ("self", torch.nn.MultiheadAttention, mha, (x, x, x)),
        *((suffix, notebook.MultiHeadAttention, {**causal, "num_heads": 2}, (BATCH.to(dtype),)) for suffix, dtype in DTYPES.items()),
    ]
    native = dropout_path()
    for stream in ("default", "intel_mkl"):
        settings = {"train": True, "forward_seed": 123, "metadata": {"dropout_path": stream}}
        for what, kind, options, inputs in modules:
            module = built(kind, options, 123, inputs[0].dtype)
            name = "torch.nn.MultiheadAttention" if kind is torch.nn.MultiheadAttention else kind.__name__
            with emulated_dropout(stream):
                path = folder.file(f"{name}-{what}-{stream}")
                write_case(path, module, *inputs, name=name, options=options, init_seed=123, **settings)
                emulated = outputs(module, inputs)
            exact = inputs[0].dtype == torch.float32
            if exact and stream == native and not all(map(torch.equal, emulated, outputs(module, inputs))):
                raise RuntimeError(f"{path.name}: this PyTorch draws another dropout mask than the emulation")
        for what, mask in (("plain", None), ("masked", torch.ones(4, 5, dtype=torch.bool).tril(1))):
            fused_dropout(folder, f"{what}-{stream}", stream, (q, k, v, mask), {**settings, "train": None})


def fused_dropout(folder, what, stream, inputs, settings):
    """SDPA draws its dropout in C++, so the case is computed by the definition, then compared with SDPA."""

    def definition(query, key, value, attn_mask=None, dropout_p=0.0):
        hidden = None if attn_mask is None else ~attn_mask
        return notebook.attend(query, key, value, hidden, lambda w: torch.nn.functional.dropout(w, dropout_p))[0]

    path = folder.file(f"sdpa-{what}")
    with emulated_dropout(stream):
        write_case(path, definition, *inputs, 0.4, name=SDPA_NAME, **settings)
        torch.manual_seed(123)
        emulated = definition(*inputs, 0.4)
    if stream == dropout_path():
        torch.manual_seed(123)
        real = torch.nn.functional.scaled_dot_product_attention(*inputs, 0.4)
        torch.testing.assert_close(real, emulated, rtol=1e-5, atol=2e-6)


def outputs(module, inputs):
    torch.manual_seed(123)
    result = module(*inputs)
    return result if isinstance(result, tuple) else (result,)


NOTEBOOKS = (plain_classes, causal_classes, toy_attention, toy_multi_head, blog_attention, shared_heads, fused_heads)


def notebook_cases(folder, _):
    for part in NOTEBOOKS:
        part(folder)


if __name__ == "__main__":
    run_generator(__doc__, {"notebooks": 20_000, "dropout": 20_000}, notebook_cases, lambda _, folder: dropout_cases(folder))
