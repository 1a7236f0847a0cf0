"""The attention implementation of attentive.transformers: model families with small random weights against "eager"."""

import re
import sys
import types
import warnings

import pytest
import torch

transformers = pytest.importorskip("transformers")

import attentive.transformers  # noqa: E402
import dense  # noqa: E402
from transformers import masking_utils  # noqa: E402

NEW = not transformers.__version__.startswith("4.")
LAYERS, WINDOW = 2, 7
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
DECODER = dict(vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=128, **SPECIAL)
WITH_HEAD = dict(DECODER, head_dim=16)
ALTERNATING = dict(WITH_HEAD, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])
ENCODER = dict(hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=96)

# family: (class, configuration, kind, options); docs/guide/python.md has the table of the classes that ask.
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", "text", DECODER),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", "text", dict(ALTERNATING, use_sliding_window=True)),
    "mistral": ("MistralForCausalLM", "MistralConfig", "text", dict(DECODER, sliding_window=WINDOW)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", "text", dict(ALTERNATING, attn_logit_softcapping=5.0)),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", "text", ALTERNATING),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", "text", dict(ALTERNATING, num_local_experts=2, num_experts_per_tok=1)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", "text", dict(vocab_size=99, n_embd=64, n_layer=LAYERS, n_head=4, n_positions=128, **SPECIAL)),
    "bert": ("BertForMaskedLM", "BertConfig", "masked", dict(ENCODER, vocab_size=99, **SPECIAL)),
    "vit": ("ViTForImageClassification", "ViTConfig", "image", dict(ENCODER, image_size=32, patch_size=8)),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", "sound",
                dict(vocab_size=99, d_model=64, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=4,
                     decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, num_mel_bins=8, max_source_positions=20,
                     decoder_start_token_id=3, begin_suppress_tokens=None, **SPECIAL)),
    "t5": ("T5ForConditionalGeneration", "T5Config", "translation",
           dict(vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=LAYERS, num_heads=4, decoder_start_token_id=0, **SPECIAL)),
}
SIDES = ("none", "left", "right")
ASKING = {name: NEW or name not in ("bert", "t5") for name in FAMILIES}


def calls_of(family):
    """Attentions of one forward pass."""
    return LAYERS * (3 if FAMILIES[family][2] in ("sound", "translation") else 1) * ASKING[family]


@pytest.fixture(scope="module", autouse=True)
def registered():
    transformers.logging.set_verbosity_error()
    attentive.transformers.register()


@pytest.fixture
def calls(monkeypatch):
    """The calls of attentive.attention: q, k and options of each."""
    found = []

    def attention(q, k, v, **options):
        found.append((q, k, options))
        return attentive.attention(q, k, v, **options)
    monkeypatch.setattr(attentive.transformers, "attention", attention)
    return found


def model_of(family, implementation, **more):
    name, configuration, _, options = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, configuration)(**{**options, **more})
    try:
        model = getattr(transformers, name)._from_config(config, attn_implementation=implementation)
    except KeyError:  # BERT before transformers 5 knows no implementations but its own
        torch.manual_seed(0)
        model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
    for parameter, values in model.named_parameters():
        if "sinks" in parameter:
            torch.nn.init.normal_(values)
        if parameter.endswith(("q_proj.weight", "query.weight")):
            values.data.mul_(20)  # scores of the size of trained ones; those of T5 are, as it does not divide them
    return model.eval()


def arguments_of(kind, side="none"):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 99, (2, 24), generator=generator)
    if kind == "image":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator), "labels": torch.tensor([0, 1])}
    if kind == "sound":
        return {"input_features": torch.randn(2, 8, 40, generator=generator), "labels": ids}
    real = torch.ones_like(ids)
    if side == "left":
        real[1, :5] = 0
    if side == "right":
        real[1, -5:] = 0
    labels = ids.masked_fill(real == 0, -100)
    if side == "left":
        labels[1, :6] = -100  # the token before the first real one has no key: eager gives it the mean of all values
    return {"input_ids": ids, "labels": labels, **({} if side == "none" else {"attention_mask": real})}


def trained(model, kind, side="none"):
    """Logits of real tokens, and all gradients in one vector."""
    model.zero_grad()
    arguments = arguments_of(kind, side)
    out = model(**arguments)
    out.loss.backward()
    logits = out.logits.detach()
    if kind in ("text", "masked") and "attention_mask" in arguments:
        logits = logits[arguments["attention_mask"].bool()]
    return logits, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def assert_near(got, want):
    """Differences of float32's rounding, against the size of the whole."""
    for a, b in zip(got, want, strict=True):
        assert (a - b).norm() <= 2e-6 * b.norm()


@pytest.mark.parametrize("family, side", [(family, side) for family in FAMILIES for side in SIDES
                                          if side == "none" or FAMILIES[family][2] not in ("image", "sound")])
def test_forward_and_backward(family, side, calls):
    kind = FAMILIES[family][2]
    want = trained(model_of(family, "eager"), kind, side)
    assert not calls
    got = trained(model_of(family, "attentive"), kind, side)
    assert len(calls) == calls_of(family)
    assert_near(got, want)


# Of each family, its configuration's fields of attention: values that are tried, one after another; none where the class sets it.
VALUES = {
    "llama": dict(num_key_value_heads=[1, 4], attention_bias=[True], head_dim=[8, 32], attention_dropout=[0.3]),
    "qwen3": dict(num_key_value_heads=[1, 4], attention_bias=[True], head_dim=[8, 32], attention_dropout=[0.3], sliding_window=[3],
                  use_sliding_window=[False], max_window_layers=[0, 1], layer_types=[["full_attention", "sliding_attention"]]),
    "mistral": dict(num_key_value_heads=[1, 4], head_dim=[8, 32], attention_dropout=[0.3], sliding_window=[3, None]),
    "gemma2": dict(num_key_value_heads=[1, 4], attention_bias=[True], head_dim=[8, 32], attention_dropout=[0.3], sliding_window=[3],
                   layer_types=[["sliding_attention"] * 2], query_pre_attn_scalar=[5], attn_logit_softcapping=[None, 0.7],
                   final_logit_softcapping=[None], use_bidirectional_attention=[True]),
    "gemma3": dict(num_key_value_heads=[1, 4], attention_bias=[True], head_dim=[8, 32], attention_dropout=[0.3], sliding_window=[3],
                   layer_types=[["full_attention"] * 2], query_pre_attn_scalar=[5], attn_logit_softcapping=[0.7],
                   final_logit_softcapping=[3.0], use_bidirectional_attention=[True], sliding_window_pattern=[]),
    "gpt_oss": dict(num_key_value_heads=[1, 4], attention_bias=[False], head_dim=[8, 32], attention_dropout=[0.3], sliding_window=[3],
                    layer_types=[["full_attention"] * 2]),
    "gpt2": dict(n_head=[2], scale_attn_weights=[False], scale_attn_by_inverse_layer_idx=[True], reorder_and_upcast_attn=[True],
                 add_cross_attention=[True], attn_pdrop=[0.3]),
    "bert": dict(num_attention_heads=[2], attention_probs_dropout_prob=[0.3], is_decoder=[True], add_cross_attention=[],
                 position_embedding_type=["relative_key", "relative_key_query"]),
    "vit": dict(num_attention_heads=[2], qkv_bias=[False], attention_probs_dropout_prob=[0.3]),
    "whisper": dict(encoder_attention_heads=[2], decoder_attention_heads=[2], attention_dropout=[0.3]),
    "t5": dict(num_heads=[2], d_kv=[8], is_decoder=[], relative_attention_num_buckets=[8], relative_attention_max_distance=[9]),
}
OF_ATTENTION = re.compile("attn|attention|window|softcap|sink|head|kv|qkv|bidirectional|layer_types|is_decoder|position_embedding_type")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_of_attention_is_tried(family):
    config = getattr(transformers, FAMILIES[family][1])(**FAMILIES[family][3])
    general = {"num_attention_heads", *transformers.PretrainedConfig().to_dict()}
    assert {name.lstrip("_") for name in config.to_dict() if OF_ATTENTION.search(name)} - general - set(VALUES[family]) == set()


@pytest.mark.parametrize("family, field, value", [(family, field, value) for family, fields in VALUES.items()
                                                  for field, values in fields.items() for value in values], ids=str)
def test_every_option(family, field, value, calls):
    """Logits and gradients are those of eager, whatever is switched."""
    kind = FAMILIES[family][2]
    if field not in getattr(transformers, FAMILIES[family][1])(**FAMILIES[family][3]).to_dict():
        pytest.skip(f"{FAMILIES[family][1]} of this release has no {field}")
    more = {field: value, **({"layer_types": None} if field == "use_sliding_window" else {})}
    want = trained(model_of(family, "eager", **more), kind)
    got = trained(model_of(family, "attentive", **more), kind)
    assert len(calls) == calls_of(family)
    assert_near(got, want)


def test_scale_of_gpt2():
    """All of its options together, in a cached step too."""
    found = []
    for implementation in ("eager", "attentive"):
        model = model_of("gpt2", implementation, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True)
        ids = arguments_of("text")["input_ids"]
        with torch.no_grad():
            first = model(input_ids=ids[:, :20], use_cache=True)
            found.append(model(input_ids=ids[:, 20:], past_key_values=first.past_key_values).logits)
    assert_near(found[1:], found[:1])


@pytest.mark.skipif(not hasattr(transformers, "DeepseekV4Config"), reason="this release has no DeepSeek V4")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("full", [False, True])
def test_class_that_computes_with_its_mask(full, side, calls):
    """DeepSeek V4 appends a bias for its compressed keys to the mask."""
    attentive.transformers.register("attentive_full", full_masks=True)
    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    options = dict(vocab_size=99, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, head_dim=32,
                   q_lora_rank=32, o_groups=2, o_lora_rank=16, index_n_heads=2, index_head_dim=16, index_topk=2, sliding_window=7,
                   n_routed_experts=4, num_experts_per_tok=2, hc_mult=2, layer_types=kinds, mlp_layer_types=["moe"] * 3,
                   compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}, **SPECIAL)
    found = []
    for implementation in ("eager", "attentive_full" if full else "attentive"):
        torch.manual_seed(0)
        model = transformers.DeepseekV4ForCausalLM._from_config(transformers.DeepseekV4Config(**options), attn_implementation=implementation)
        for name, values in model.named_parameters():
            if values.dim() > 1 or "sinks" in name:
                torch.nn.init.normal_(values, std=0.1)
        found.append(trained(model.eval(), "text", side))
    assert len(calls) == 3
    assert_near(found[1], found[0])


def test_options_reach_the_kernel(calls):
    """Windows, sinks, softcaps and grouped heads are those of the kernel; no mask of pairs is made."""
    for family in ("mistral", "gpt_oss", "gemma2", "qwen3"):
        calls.clear()
        model = model_of(family, "attentive")
        trained(model, "text")
        trained(model, "text", "left")
        windows = [options["window"] for _, _, options in calls]
        assert windows == [(WINDOW - 1, 0), (WINDOW - 1, 0) if family == "mistral" else None] * 2
        for q, k, options in calls:
            assert q.shape[1] == 4 and k.shape[1] == 2
            assert options["causal"] == "bottom_right"
            assert not options["mask"]._keep and not options["mask"]._bias
            assert (options["sinks"] is not None) == (family == "gpt_oss")
            assert options["softcap"] == (5.0 if family == "gemma2" else None)
        assert [len(options["mask"]._key_keep) for _, _, options in calls] == [0, 0, 1, 1]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family[2] in ("text", "translation", "sound")])
def test_greedy_texts(family, cache, calls):
    kind = FAMILIES[family][2]
    ids = torch.randint(4, 99, (2, 9), generator=torch.Generator().manual_seed(2))
    real = torch.ones_like(ids)
    real[1, :3] = 0
    arguments = dict(inputs=ids, attention_mask=real)
    if kind == "sound":
        arguments = dict(input_features=torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(3)))
    arguments.update(max_new_tokens=20, min_new_tokens=20, do_sample=False)
    if cache == "static":
        arguments.update(cache_implementation="static")
    try:
        want = model_of(family, "eager").generate(**arguments)
    except (AttributeError, NotImplementedError, ValueError, RuntimeError) as error:
        pytest.skip(f"eager cannot do it: {error}")
    got = model_of(family, "attentive").generate(**arguments)
    assert got.equal(want)
    assert len(calls) > 0 or not ASKING[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_weights(family):
    if family in ("gpt2", "vit") and not NEW:
        pytest.skip("GPT-2 and ViT of transformers 4 do not hand on that weights are wanted")
    arguments = {name: value for name, value in arguments_of(FAMILIES[family][2]).items() if name != "labels"}
    if FAMILIES[family][2] in ("sound", "translation"):
        arguments["decoder_input_ids"] = torch.randint(4, 99, (2, 9), generator=torch.Generator().manual_seed(2))
    found = []
    for implementation in ("eager", "attentive"):
        with torch.no_grad():
            out = model_of(family, implementation)(**arguments, output_attentions=True)
        names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
        found.append([weights for name in names for weights in getattr(out, name, None) or ()])
    want, got = found
    assert len(got) == len(want) >= LAYERS
    assert_near(got, want)


@pytest.mark.parametrize("family", ["gpt2", "gpt_oss"])
def test_dropout_in_training(family, calls):
    name = "attn_pdrop" if family == "gpt2" else "attention_dropout"
    more = dict(embd_pdrop=0.0, resid_pdrop=0.0) if family == "gpt2" else {}
    model = model_of(family, "attentive", **{name: 0.4}, **more)

    def run(seed):
        torch.manual_seed(seed)
        return trained(model, "text")
    plain = run(1)
    assert all(options["dropout_p"] == 0.0 for _, _, options in calls)
    calls.clear()
    model.train()
    first, again, other = run(1), run(1), run(2)
    assert all(options["dropout_p"] == 0.4 for _, _, options in calls)
    assert first[0].equal(again[0]) and not first[0].equal(other[0]) and not first[0].equal(plain[0])
    assert (first[1] - again[1]).norm() <= 2e-6 * again[1].norm()


def test_packed_sequences():
    """Several sequences in one row, told apart by their positions."""
    ids = torch.randint(4, 99, (1, 24), generator=torch.Generator().manual_seed(2))
    positions = torch.cat([torch.arange(9), torch.arange(15)])[None]
    for family in ("llama", "mistral"):
        with torch.no_grad():
            want, got = (model_of(family, implementation)(input_ids=ids, position_ids=positions, use_cache=False).logits
                         for implementation in ("eager", "attentive"))
        assert_near([got], [want])


def test_masks_of_pairs():
    """A mask of the caller's own, bool or numbers to add, is taken as it is."""
    ids = torch.randint(4, 99, (2, 12), generator=torch.Generator().manual_seed(2))
    keep = (torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(3)) > 0.4).tril() | torch.eye(12, dtype=torch.bool)
    added = torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min)
    with torch.no_grad():
        want = model_of("llama", "eager")(input_ids=ids, attention_mask=added).logits
        for mask in (keep, added):
            assert_near([model_of("llama", "attentive")(input_ids=ids, attention_mask=mask).logits], [want])


def test_continued_text():
    """Several tokens after a filled cache: the last of them sees every key, in windows too."""
    for family in ("llama", "mistral", "gemma3"):
        ids = torch.randint(4, 99, (2, 20), generator=torch.Generator().manual_seed(2))
        found = []
        for implementation in ("eager", "attentive"):
            model = model_of(family, implementation)
            with torch.no_grad():
                first = model(input_ids=ids[:, :12], use_cache=True)
                found.append(model(input_ids=ids[:, 12:], past_key_values=first.past_key_values).logits)
        assert_near(found[1:], found[:1])


@pytest.mark.long
@pytest.mark.skipif(not NEW, reason="a mask of transformers 4 depends on numbers of a traced tensor")
@pytest.mark.parametrize("part", ["model", "layers"])
def test_compiled_model(part):
    """Windows, sinks and padding in a compiled model, and in compiled layers, whose masks are made outside of them."""
    torch._dynamo.reset()
    want = trained(model_of("gpt_oss", "eager"), "text", "left")
    model = model_of("gpt_oss", "attentive")
    if part == "model":
        model.forward = torch.compile(model.forward)
    else:
        for layer in model.model.layers:
            layer.compile()
    assert_near(trained(model, "text", "left"), want)


@pytest.mark.skipif(not NEW, reason="not of this kind before transformers 5")
@pytest.mark.parametrize("side", SIDES)
def test_decoder_without_causal_order(side):
    """A decoder whose configuration takes the causal order away; its layers still say that they are causal."""
    arguments = {name: value for name, value in arguments_of("text", side).items() if name != "labels"}
    found = []
    for implementation in ("eager", "attentive"):
        model = model_of("llama", implementation)
        with torch.no_grad():
            causal = model(**arguments).logits
            model.config.is_causal = False
            found.append(model(**arguments).logits)
        assert (found[-1] - causal).norm() > 0.01 * causal.norm()
    real = arguments.get("attention_mask", torch.ones_like(arguments["input_ids"])).bool()
    assert_near([found[1][real]], [found[0][real]])


# ---- The attention of one layer alone

def layer(causal):
    module = torch.nn.Module()
    module.is_causal = causal
    return module


def compact(keep, queries, length=None, **options):
    return attentive.transformers._CompactMask(keep, queries, length or keep.shape[1], torch.bool, **options)


def test_attention_of_a_layer():
    """Every form of a mask, on more keys than queries, against the definition."""
    torch.manual_seed(4)
    q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, :2] = False
    pairs = torch.rand(2, 1, 3, 7) > 0.3
    longer = torch.cat([pairs, torch.ones(2, 1, 3, 4, dtype=torch.bool)], dim=3)
    added = torch.randn(2, 1, 3, 7)
    of_keys = real[:, None, None]
    first = compact(torch.ones(1, 1, dtype=torch.bool).expand(2, 5), 3, 7)
    indices = torch.rand(2, 3, 7).argsort(dim=-1)[..., :4].to(torch.int32)
    chosen = torch.zeros(2, 1, 3, 7, dtype=torch.bool).scatter(-1, indices[:, None].long(), True)
    bias = torch.randn(1, 4, 3, 7)
    cases = [
        (None, True, {}, {"causal": "bottom_right"}),
        (None, False, {}, {}),
        (None, False, {"is_causal": True}, {"causal": "bottom_right"}),
        (None, True, {"is_causal": False}, {}),
        (compact(real, 3), False, {}, {"causal": "bottom_right", "keep": of_keys}),
        (compact(real, 3, window=3), False, {}, {"causal": "bottom_right", "keep": of_keys, "window": (2, 0)}),
        (compact(real, 3, causal=False), True, {}, {"keep": of_keys}),
        (real, False, {}, {"keep": of_keys}),  # a mask of keys that a class makes by itself
        (real, True, {}, {"causal": "bottom_right", "keep": of_keys}),
        (of_keys, True, {}, {"keep": of_keys}),
        (pairs, True, {}, {"keep": pairs}),
        (longer, True, {}, {"keep": pairs}),
        (added, True, {}, {"bias": added.double()}),
        (None, True, {"position_bias": bias}, {"causal": "bottom_right", "bias": bias.double()}),
        (pairs, True, {"position_bias": bias}, {"keep": pairs, "bias": bias.double()}),
        (pairs, True, {"indices": indices}, {"keep": pairs & chosen}),
        (compact(real, 3), True, {"indices": indices}, {"causal": "bottom_right", "keep": of_keys & chosen}),
    ]
    for mask, causal, options, wanted in cases:
        got, weights = attentive.transformers.attention_forward(layer(causal), q, k, v, mask, **options)
        assert weights is None and got.is_contiguous()
        dense.close(got.transpose(1, 2), dense.attend(q.double(), k.double(), v.double(), **wanted)[0], torch.float32)
    # Five of the seven keys: the last query sees the fifth. An index may be that of a key that is not there yet.
    got, _ = attentive.transformers.attention_forward(layer(False), q, k, v, first)
    want = dense.attend(q.double(), k[:, :, :5].double(), v[:, :, :5].double(), causal="bottom_right")[0]
    dense.close(got.transpose(1, 2), want, torch.float32)
    got, _ = attentive.transformers.attention_forward(layer(False), q, k, v, first, position_bias=bias)
    want = dense.attend(q.double(), k[:, :, :5].double(), v[:, :, :5].double(), causal="bottom_right", bias=bias[..., :5].double())[0]
    dense.close(got.transpose(1, 2), want, torch.float32)
    got, _ = attentive.transformers.attention_forward(layer(False), q, k, v, first, indices=indices)
    want = dense.attend(q.double(), k[:, :, :5].double(), v[:, :, :5].double(), causal="bottom_right", keep=chosen[..., :5])[0]
    dense.close(got.transpose(1, 2), want, torch.float32)
    # Learned queries that all batch items share.
    got, _ = attentive.transformers.attention_forward(layer(False), q[:1], k, v, None)
    dense.close(got.transpose(1, 2), dense.attend(q[:1].expand(2, -1, -1, -1).double(), k.double(), v.double())[0], torch.float32)
    _, weights = attentive.transformers.attention_forward(layer(False), q, k, v, None, output_attentions=True)
    assert weights.shape == (2, 4, 3, 7)
    # With dropout, the weights are those that were used.
    got, weights = attentive.transformers.attention_forward(layer(False), q, k, v, None, dropout=0.5, output_attentions=True)
    assert 0 < weights.count_nonzero() < weights.numel()
    dense.close(got.transpose(1, 2), weights @ v[:, [0, 0, 1, 1]], torch.float32)


# ---- The mask function alone

def call_of(queries, keys, offset, first, window=None, real=None, chunk=None):
    call = dict(batch_size=2, kv_length=keys, kv_offset=first, attention_mask=real, allow_is_causal_skip=True,
                mask_function=masking_utils.causal_mask_function, config=Config(chunk))
    if window is not None:
        call.update(local_size=window, mask_function=masking_utils.sliding_window_causal_mask_function(window))
    if chunk is not None:
        call.update(local_size=chunk, mask_function=masking_utils.chunked_causal_mask_function(chunk, torch.zeros(2, dtype=torch.long)))
    if NEW:
        call.update(q_length=queries, q_offset=offset, device="cpu", use_vmap=False)
    else:
        call.update(cache_position=torch.arange(offset, offset + queries))
    return call


class Config:
    def __init__(self, chunk=None):
        self.attention_chunk_size = chunk


ALL_ATTENTION_FUNCTIONS = None  # marks this module as one whose models ask the interface


class EagerConfig(Config):
    """A configuration beside which a model class supports no "sdpa"."""


EagerConfig.__module__ = "eager_alone.configuration"
sys.modules["eager_alone.modeling_classes"] = types.SimpleNamespace(
    __name__="eager_alone.modeling_classes", ALL_ATTENTION_FUNCTIONS=None,
    Model=types.SimpleNamespace(__module__="eager_alone.modeling_classes", _supports_sdpa=False))


@pytest.mark.parametrize("padding", ["none", "all real", "left", "right"])
@pytest.mark.parametrize("window, chunk", [(None, None), (3, None), (5, None), (8, None), (40, None), (None, 4)])
@pytest.mark.parametrize("queries, keys, offset, first", [
    (6, 6, 0, 0), (1, 9, 8, 0), (4, 9, 5, 0), (6, 20, 0, 0), (1, 20, 8, 0), (4, 20, 7, 0), (3, 8, 10, 5), (1, 3, 10, 8), (2, 3, 1, 0),
    (3, 5, 4, 0),
], ids=str)
def test_mask_function(queries, keys, offset, first, window, chunk, padding):
    """Every form of a mask lets the pairs attend that the mask of transformers has."""
    real = None
    if padding != "none":
        real = torch.ones(2, offset + queries, dtype=torch.bool)
        if padding == "left":
            real[1, :2] = False
        if padding == "right":
            real[1, -1:] = False
    call = call_of(queries, keys, offset, first, window, real, chunk)
    want = masking_utils.sdpa_mask(**{**call, "allow_is_causal_skip": False}).expand(2, 1, queries, keys)
    full = attentive.transformers._make_mask(masking_utils, True, dict(call))
    assert type(full) is torch.Tensor and full.dtype is torch.bool and full.equal(want)
    got = attentive.transformers._make_mask(masking_utils, False, dict(call))
    assert got.shape == want.shape and got.dtype is torch.bool
    compact = chunk is None and offset + queries <= first + keys  # not for queries after the last key
    assert isinstance(got, attentive.transformers._CompactMask) == compact
    if compact:  # no mask of pairs before an operation asks for them
        visible = offset + queries - first
        assert got.key_keep.shape == (2, visible) and got.made is None
        padded = real is not None and not real[:, first : first + visible].all()
        assert (got.key_keep.stride(-1) == 0) == (not padded and visible > 1)
        assert (got.window is None) == (window is None or window >= visible)
    assert got.equal(want) and (~got).equal(~want) and torch.cat([want, got], dim=-1).equal(torch.cat([want, want], dim=-1))
    # A class that supports no "sdpa" gets the numbers to add.
    added = attentive.transformers._make_mask(masking_utils, False, dict(call, config=EagerConfig(chunk), dtype=torch.bfloat16))
    assert added.dtype is torch.bfloat16
    assert added.equal(masking_utils.eager_mask(**dict(call, dtype=torch.bfloat16)).expand(2, 1, queries, keys))


def test_mask_that_a_class_changes():
    """A class may write into its mask, directly or through a view: all layers after it see that."""
    torch.manual_seed(5)
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, :2] = False

    def hide_by_view(mask):
        mask[:, :, 2:, 3] = False

    def hide_in_place(mask):
        mask.masked_fill_(torch.arange(9) == 4, False)
    for change in (hide_by_view, hide_in_place):
        call = call_of(6, 9, 3, 0, window=4, real=real)
        want = masking_utils.sdpa_mask(**{**call, "allow_is_causal_skip": False}).clone()
        got = attentive.transformers._make_mask(masking_utils, False, dict(call))
        for mask in (want, got):
            change(mask)
        out, _ = attentive.transformers.attention_forward(layer(True), q, k, v, got)
        dense.close(out.transpose(1, 2), dense.attend(q.double(), k.double(), v.double(), keep=want)[0], torch.float32)


def test_class_that_does_not_ask():
    """Bloom adds its mask to its scores, so it gets the mask that it expects, and a warning."""
    config = transformers.BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4, **SPECIAL)
    found = []
    for implementation in ("eager", "attentive"):
        torch.manual_seed(0)
        model = transformers.BloomForCausalLM._from_config(config, attn_implementation=implementation).eval()
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            arguments = {name: value for name, value in arguments_of("text", "right").items() if name != "labels"}
            found.append(model(**arguments).logits)
    assert found[0].equal(found[1])
    if NEW:
        assert any("does not ask AttentionInterface" in str(one.message) for one in caught)


@pytest.mark.skipif(not NEW, reason="not of this kind before transformers 5")
def test_class_that_hands_on_no_window():
    """The window comes with the mask, so a class that does not tell its layers' windows has them too."""
    more = dict(DECODER, sliding_window=WINDOW, use_sliding_window=True, max_window_layers=0, num_experts=2, num_experts_per_tok=1,
                moe_intermediate_size=32, shared_expert_intermediate_size=32)
    found = []
    for implementation in ("eager", "attentive"):
        torch.manual_seed(0)
        model = transformers.Qwen2MoeForCausalLM._from_config(transformers.Qwen2MoeConfig(**more), attn_implementation=implementation)
        with torch.no_grad():
            found.append(model.eval()(input_ids=arguments_of("text")["input_ids"]).logits)
    assert_near(found[1:], found[:1])


# ---- What a class keeps to itself

def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    weights = query @ key.transpose(2, 3) * scaling * module.temperature
    return (weights.softmax(-1) @ value).transpose(1, 2), weights


class Keeping(torch.nn.Module):
    """A layer whose eager attention reads a number that other implementations do not get."""

    temperature = 3.0

    def forward(self, x, implementation=None):
        interface = implementation or eager_attention_forward
        return interface(self, x, x, x, None, scaling=1.0)[0]


class Handing(torch.nn.Module):
    def forward(self, x, blocks=None, **options):
        return attentive.transformers.attention_forward(self, x, x, x, None, scaling=1.0, block_indices=blocks, **options)[0]


class Sinks(torch.nn.Module):
    """A layer whose sinks are read from it."""

    sinks = torch.tensor([0.5, -1.0])

    def forward(self, x):
        return sinks_eager_attention_forward, attentive.transformers.attention_forward(self, x, x, x, None, scaling=1.0)[0]


def sinks_eager_attention_forward(module, query, key, value, attention_mask, **kwargs):
    return module.sinks


def test_what_a_class_keeps():
    x = torch.randn(1, 2, 4, 8)
    with pytest.raises(NotImplementedError, match='Keeping computes its attention with temperature, .*attn_implementation="eager"'):
        Keeping()(x, attentive.transformers.attention_forward)
    with pytest.raises(NotImplementedError, match="Handing computes its attention with block_indices"):
        Handing()(x, torch.zeros(1))
    Handing()(x, own_option=torch.zeros(1))  # what the caller of a model gives to all layers is not meant for this one
    want = dense.attend(x.double(), x.double(), x.double(), causal="bottom_right", scale=1.0, sinks=Sinks.sinks.double())[0]
    dense.close(Sinks()(x)[1].transpose(1, 2), want, torch.float32)


def test_refusals(monkeypatch):
    x = torch.randn(1, 2, 4, 8)
    module = torch.nn.Module()
    with pytest.raises(NotImplementedError, match="head_mask"):
        attentive.transformers.attention_forward(module, x, x, x, None, head_mask=torch.ones(2))
    with pytest.raises(NotImplementedError, match="continuous batching"):
        attentive.transformers.attention_forward(module, x, x, x, None, cache=object())
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    with pytest.raises(ImportError, match="needs transformers 4.56 or later"):
        attentive.transformers.register()
