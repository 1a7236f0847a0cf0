"""Writes cases of torch.nn.TransformerEncoderLayer and TransformerDecoderLayer, gradients included.

    python tools/generators/make_transformer_cases.py [--out tests/parity]
"""

import torch

from case_layers import DECODER, ENCODER, SMALL, bool_mask, built_layer, causal, float_mask, write_layer_case
from case_support import normal, run_generator


def write(folders, stem, kind, inputs, fresh=False, call=None, train=True, **options):
    options = {**SMALL, **options}
    dtype = next(iter(inputs.values())).dtype
    module = built_layer(kind, options, 7, dtype, value_seed=None if fresh else 100)
    write_layer_case(folders, stem, module, inputs, options, fresh, call, train)


def encoder_cases(*folders):
    def encoder(stem, src=(3, 2, 4), dtype=torch.float32, masks=None, **settings):
        write(folders, f"encoder-{stem}", ENCODER, {"src": normal(1, *src, dtype=dtype), **(masks or {})}, **settings)

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


def decoder_cases(*folders):
    def decoder(stem, tgt=(3, 2, 4), memory=(5, 2, 4), dtype=torch.float32, masks=None, **settings):
        inputs = {"tgt": normal(11, *tgt, dtype=dtype), "memory": normal(12, *memory, dtype=dtype), **(masks or {})}
        write(folders, f"decoder-{stem}", DECODER, inputs, **settings)

    first = {"tgt": (2, 3, 4), "memory": (2, 5, 4), "batch_first": True}
    decoder("defaults")
    decoder("fresh", fresh=True)
    decoder("fresh-no_bias", fresh=True, bias=False)
    decoder("batch_first-norm_first", **first, norm_first=True)
    decoder("gelu-eps", activation="gelu", layer_norm_eps=0.1)
    decoder("function-norm_first", activation="silu", norm_first=True)
    decoder("no_bias", bias=False)
    every = {
        "tgt_mask": bool_mask(13, 3, 3),
        "memory_mask": bool_mask(14, 3, 5),
        "tgt_key_padding_mask": bool_mask(15, 2, 3),
        "memory_key_padding_mask": bool_mask(16, 2, 5),
    }
    decoder("every_mask", masks=every)
    decoder("every_mask-batch_first", **first, masks=every)
    decoder("float_masks", masks={"tgt_mask": float_mask(17, 3, 3), "memory_mask": float_mask(18, 4, 3, 5)})
    decoder(
        "unbatched",
        tgt=(3, 4),
        memory=(5, 4),
        masks={"tgt_mask": causal(3), "memory_key_padding_mask": bool_mask(19, 5)},
    )
    hints = {"tgt_is_causal": True, "memory_is_causal": True}
    wide = torch.ones(3, 5, dtype=torch.bool).triu(1)
    decoder("causal", masks={"tgt_mask": causal(3), "memory_mask": wide}, call=hints)
    decoder("fp64", dtype=torch.float64)
    decoder("bf16", dtype=torch.bfloat16)
    decoder("plain", dropout=0.25, masks={"memory_mask": float_mask(20, 3, 5)})
    decoder("batch_first", **first, dropout=0.4)


if __name__ == "__main__":
    run_generator(__doc__, {"layers": 20_000, "layers_dropout": 20_000}, encoder_cases, decoder_cases)
