"""Writes cases of torch.nn.TransformerEncoderLayer, TransformerDecoderLayer, their stacks and Transformer, gradients included.

    python tools/generators/make_transformer_cases.py [--out tests/parity]
"""

import warnings

import torch

from case_support import (
    DECODER, ENCODER, SMALL, bool_mask, built_layer, causal, float_mask, move_values, normal, run_generator, with_function,
    write_layer_case)

DECODED_FIRST = {"tgt": (2, 3, 4), "memory": (2, 5, 4), "batch_first": True}
HINTS = {"tgt_is_causal": True, "memory_is_causal": True}
WIDE = torch.ones(3, 5, dtype=torch.bool).triu(1)  # a causal mask of more keys than queries


def built(kind, options):
    """What PyTorch draws after seed 7: a stack of copies of one layer, or a whole Transformer."""
    torch.manual_seed(7)
    if kind is torch.nn.Transformer:
        return kind(**with_function(options))
    layer = {key: value for key, value in options.items() if key not in ("num_layers", "norm")}
    arguments = {"num_layers": options["num_layers"]}
    if options.get("norm"):
        bias, eps = options.get("bias", True), options.get("layer_norm_eps", 1e-5)
        arguments["norm"] = torch.nn.LayerNorm(options["d_model"], eps=eps, bias=bias)
    if kind is torch.nn.TransformerDecoder:
        return kind(DECODER(**with_function(layer)), **arguments)
    # check_nested_tensors shows what enable_nested_tensor changes
    return kind(ENCODER(**with_function(layer)), **arguments, enable_nested_tensor=False)


def write(folders, stem, kind, inputs, fresh=False, call=None, train=True, grads=True, **options):
    options = {**SMALL, **options}
    dtype = next(iter(inputs.values())).dtype
    if kind in (ENCODER, DECODER):
        folders, module = folders[:2], built_layer(kind, options, 7, dtype, value_seed=None if fresh else 100)
    else:
        folders, module = folders[2:], built(kind, options)
        if not fresh:
            move_values(module, 100)  # all parameters, so that the layers of a stack differ and no bias is zero
    write_layer_case(folders, stem, module.to(dtype), inputs, options, fresh, call, train, grads)


def encoder_writer(folders, kind, **usual):
    def encoder(stem, src=(3, 2, 4), dtype=torch.float32, masks=None, **settings):
        inputs = {"src": normal(1, *src, dtype=dtype), **(masks or {})}
        write(folders, f"encoder-{stem}", kind, inputs, **{**usual, **settings})

    return encoder


def decoder_writer(folders, kind, **usual):
    def decoder(stem, tgt=(3, 2, 4), memory=(5, 2, 4), dtype=torch.float32, masks=None, **settings):
        inputs = {"tgt": normal(11, *tgt, dtype=dtype), "memory": normal(12, *memory, dtype=dtype), **(masks or {})}
        write(folders, f"decoder-{stem}", kind, inputs, **{**usual, **settings})

    return decoder


def decoder_masks():
    return {"tgt_mask": bool_mask(13, 3, 3), "memory_mask": bool_mask(14, 3, 5),
            "tgt_key_padding_mask": bool_mask(15, 2, 3), "memory_key_padding_mask": bool_mask(16, 2, 5)}


def encoder_layer_cases(*folders):
    encoder = encoder_writer(folders, ENCODER)
    encoder("defaults")
    encoder("fresh", fresh=True)
    encoder("fresh-no_bias", fresh=True, bias=False)
    encoder("eval", train=False)
    encoder("dropout_in_eval", dropout=0.5, train=False)
    encoder("batch_first", src=(2, 3, 4), batch_first=True)
    encoder("unbatched", src=(3, 4), masks={"src_mask": bool_mask(2, 3, 3), "src_key_padding_mask": bool_mask(3, 3)})
    encoder("norm_first", norm_first=True)
    encoder("norm_first-gelu-eps", norm_first=True, activation="gelu", layer_norm_eps=0.1)
    encoder("gelu", activation="gelu")
    encoder("function", activation="silu")
    encoder("no_bias", bias=False, norm_first=True)
    encoder("bool_mask", masks={"src_mask": bool_mask(4, 3, 3)})
    encoder("float_mask", masks={"src_mask": float_mask(5, 3, 3)})
    encoder("mask_per_head", masks={"src_mask": float_mask(6, 4, 3, 3)})
    encoder("padding", src=(2, 3, 4), batch_first=True, masks={"src_key_padding_mask": bool_mask(7, 2, 3)})
    encoder("causal", masks={"src_mask": causal(3)}, call={"is_causal": True})
    encoder(
        "causal_and_padding",
        masks={"src_mask": causal(3), "src_key_padding_mask": bool_mask(8, 2, 3)},
        call={"is_causal": True},
    )
    encoder("fp64", dtype=torch.float64, masks={"src_mask": float_mask(9, 3, 3, dtype=torch.float64)})
    encoder("bf16", dtype=torch.bfloat16)
    encoder("fp16", dtype=torch.float16, norm_first=True)
    encoder("plain", dropout=0.25)
    encoder("norm_first", dropout=0.5, norm_first=True, activation="gelu")
    encoder("batch_first", src=(2, 3, 4), batch_first=True, dropout=0.4)


def decoder_layer_cases(*folders):
    decoder = decoder_writer(folders, DECODER)
    decoder("defaults")
    decoder("fresh", fresh=True)
    decoder("fresh-no_bias", fresh=True, bias=False)
    decoder("batch_first-norm_first", **DECODED_FIRST, norm_first=True)
    decoder("gelu-eps", activation="gelu", layer_norm_eps=0.1)
    decoder("function-norm_first", activation="silu", norm_first=True)
    decoder("no_bias", bias=False)
    every = decoder_masks()
    decoder("every_mask", masks=every)
    decoder("every_mask-batch_first", **DECODED_FIRST, masks=every)
    decoder("float_masks", masks={"tgt_mask": float_mask(17, 3, 3), "memory_mask": float_mask(18, 4, 3, 5)})
    decoder(
        "unbatched",
        tgt=(3, 4),
        memory=(5, 4),
        masks={"tgt_mask": causal(3), "memory_key_padding_mask": bool_mask(19, 5)},
    )
    decoder("causal", masks={"tgt_mask": causal(3), "memory_mask": WIDE}, call=HINTS)
    decoder("fp64", dtype=torch.float64)
    decoder("bf16", dtype=torch.bfloat16)
    decoder("plain", dropout=0.25, masks={"memory_mask": float_mask(20, 3, 5)})
    decoder("batch_first", **DECODED_FIRST, dropout=0.4)


def encoder_cases(*folders):
    encoder = encoder_writer(folders, torch.nn.TransformerEncoder, num_layers=2)
    first = {"src": (2, 3, 4), "batch_first": True}
    encoder("defaults")
    encoder("three_layers-norm", num_layers=3, norm=True)
    encoder("fresh", fresh=True, norm=True)
    encoder("fresh-no_bias", fresh=True, norm=True, bias=False)
    encoder("norm_first-gelu-eps", **first, norm=True, norm_first=True, activation="gelu", layer_norm_eps=0.1)
    encoder("no_bias-function", norm=True, bias=False, activation="silu")
    unbatched = {"mask": bool_mask(2, 3, 3), "src_key_padding_mask": bool_mask(3, 3)}
    encoder("unbatched", src=(3, 4), masks=unbatched)
    encoder("bool_mask", masks={"mask": bool_mask(4, 3, 3)})
    encoder("float_mask", masks={"mask": float_mask(5, 3, 3)})
    encoder("mask_per_head", masks={"mask": float_mask(6, 4, 3, 3)})
    encoder("padding", **first, norm=True, masks={"src_key_padding_mask": bool_mask(7, 2, 3)})
    encoder("causal_found", masks={"mask": causal(3)})
    additive = torch.nn.Transformer.generate_square_subsequent_mask(3)
    encoder("additive_causal_found", **first, masks={"mask": additive})
    encoder("causal_said", masks={"mask": causal(3)}, call={"is_causal": True})
    encoder("causal_denied", masks={"mask": causal(3)}, call={"is_causal": False})
    # Python trusts a wrong hint.
    encoder("wrong_hint", masks={"mask": bool_mask(4, 3, 3)}, call={"is_causal": True})
    both = {"mask": causal(3), "src_key_padding_mask": bool_mask(8, 2, 3)}
    encoder("causal_and_padding", masks=both)
    encoder("eval-no_grad", **first, train=False, grads=False)
    padding = torch.tensor([[False, False, False], [False, False, True]])
    encoder("eval-padding", **first, norm=True, train=False, grads=False, masks={"src_key_padding_mask": padding})
    encoder("fp64", dtype=torch.float64, norm=True, masks={"mask": float_mask(9, 3, 3, dtype=torch.float64)})
    encoder("bf16", dtype=torch.bfloat16, norm=True)
    encoder("plain", dropout=0.25)
    encoder("batch_first", **first, dropout=0.4, norm_first=True)


def decoder_cases(*folders):
    decoder = decoder_writer(folders, torch.nn.TransformerDecoder, num_layers=2)
    decoder("defaults")
    decoder("fresh", fresh=True, norm=True)
    decoder("three_layers-norm_first", **DECODED_FIRST, num_layers=3, norm=True, norm_first=True, activation="gelu")
    decoder("no_bias", norm=True, bias=False, layer_norm_eps=0.1)
    every = decoder_masks()
    decoder("every_mask", masks=every)
    decoder("every_mask-batch_first", **DECODED_FIRST, masks=every, norm=True)
    decoder("unbatched", tgt=(3, 4), memory=(5, 4), masks={"memory_key_padding_mask": bool_mask(19, 5)})
    decoder("causal_found", masks={"tgt_mask": causal(3)})
    decoder("causal_said", masks={"tgt_mask": causal(3), "memory_mask": WIDE}, call=HINTS)
    decoder("fp64", dtype=torch.float64, norm=True)
    decoder("bf16", dtype=torch.bfloat16, norm=True)
    decoder("plain", dropout=0.25)


def transformer_cases(*folders):
    def transformer(stem, src=(5, 2, 4), tgt=(3, 2, 4), dtype=torch.float32, masks=None, layers=(2, 2), **settings):
        inputs = {"src": normal(21, *src, dtype=dtype), "tgt": normal(22, *tgt, dtype=dtype), **(masks or {})}
        counts = {"num_encoder_layers": layers[0], "num_decoder_layers": layers[1]}
        write(folders, f"transformer-{stem}", torch.nn.Transformer, inputs, **counts, **settings)

    first = {"src": (2, 5, 4), "tgt": (2, 3, 4), "batch_first": True}
    transformer("fresh", fresh=True, layers=(2, 3))
    transformer("fresh-no_bias", fresh=True, bias=False)
    transformer("defaults", layers=(1, 2))
    transformer("batch_first-norm_first", **first, norm_first=True, activation="gelu")
    transformer("no_bias-eps", bias=False, layer_norm_eps=0.1)
    every = {
        "src_mask": bool_mask(23, 5, 5),
        "tgt_mask": causal(3),
        "memory_mask": bool_mask(24, 3, 5),
        "src_key_padding_mask": bool_mask(25, 2, 5),
        "tgt_key_padding_mask": bool_mask(26, 2, 3),
        "memory_key_padding_mask": bool_mask(27, 2, 5),
    }
    transformer("every_mask", masks=every)
    transformer("every_mask-batch_first", **first, masks=every)
    found = {"src_mask": causal(5), "tgt_mask": torch.nn.Transformer.generate_square_subsequent_mask(3)}
    transformer("causal_found", masks=found)
    hints = {"src_is_causal": False, **HINTS}
    said = {"src_mask": causal(5), "tgt_mask": causal(3), "memory_mask": WIDE}
    transformer("causal_said", masks=said, call=hints)
    transformer("unbatched", src=(5, 4), tgt=(3, 4), masks={"src_key_padding_mask": bool_mask(28, 5)})
    transformer("fp64", dtype=torch.float64, layers=(1, 1))
    transformer("bf16", dtype=torch.bfloat16, layers=(1, 1))
    transformer("plain", dropout=0.25, layers=(1, 1))


def check_nested_tensors(*_):
    """Checks the effect of enable_nested_tensor in evaluation (docs/porting.md): only padded tokens change, to zero."""
    options = {**SMALL, "batch_first": True, "num_layers": 2, "norm": True}
    module = built(torch.nn.TransformerEncoder, options).eval()
    move_values(module, 100)
    src = normal(1, 2, 3, 4)
    padding = torch.tensor([[False, False, False], [False, False, True]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        computed = module(src, src_key_padding_mask=padding)
        module.use_nested_tensor = True
        nested = module(src, src_key_padding_mask=padding)
        torch.testing.assert_close(nested[~padding], computed[~padding])
        torch.testing.assert_close(nested[padding][0], module.norm.bias)
        if torch.allclose(computed[padding], nested[padding]):
            raise ValueError("nested tensors change nothing: mend the page")


if __name__ == "__main__":
    limits = {"layers": 20_000, "layers_dropout": 20_000, "stacks": 40_000, "stacks_dropout": 40_000}
    layers = (encoder_layer_cases, decoder_layer_cases)
    run_generator(__doc__, limits, check_nested_tensors, *layers, encoder_cases, decoder_cases, transformer_cases)
