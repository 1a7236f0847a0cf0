"""Models of ``transformers`` whose gated delta rule is ``attentive.gated_delta_rule``, against the loops of their own."""

import pytest
import torch

transformers = pytest.importorskip("transformers")
patching = pytest.importorskip("transformers.monkey_patching", reason="this release of transformers has no register_patch_mapping")

import attentive.transformers  # noqa: E402

COMMON = dict(
    vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=8, linear_conv_kernel_dim=4,
    linear_num_heads=4, linear_head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=256,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32)
MODELS = {
    "qwen3_next": ("Qwen3NextConfig", EXPERTS),
    "qwen3_5": ("Qwen3_5TextConfig", {}),
    "olmo_hybrid": ("OlmoHybridConfig", {}),
    "kimi_linear": ("KimiLinearConfig", dict(layer_types=["linear_attention"] * 3 + ["full_attention"], num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, num_experts=4,
                                             num_experts_per_token=2, moe_intermediate_size=32)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_patches():
    yield
    patching.clear_patch_mapping()


@pytest.fixture
def calls(monkeypatch):
    """The numbers of tokens of the calls of the kernel."""
    found = []

    def counted(*arguments, **options):
        found.append(arguments[2].shape[2])
        return attentive.gated_delta_rule(*arguments, **options)

    monkeypatch.setattr(attentive.transformers, "gated_delta_rule", counted)
    return found


def model_of(model_type, dtype=torch.float32):
    name, more = MODELS[model_type]
    config = getattr(transformers, name)(**{**COMMON, **more})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


def both(model_type, **options):
    theirs = model_of(model_type, **options)
    attentive.transformers.register_delta_rule(model_type)
    ours = model_of(model_type, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def ids_of(length, batch=2):
    torch.manual_seed(2)
    return torch.randint(3, 99, (batch, length))


def assert_near(got, want, limit):
    assert (got - want).abs().max() <= limit * want.abs().max()


@pytest.mark.parametrize("model_type", MODELS)
def test_training(model_type, calls):
    ours, theirs = both(model_type)
    ids, mask = ids_of(75), torch.ones(2, 75, dtype=torch.int64)
    mask[1, :9] = 0
    for step in range(3):
        found = []
        for model in (ours, theirs):
            if model is theirs:
                assert len(calls) == 3 * (step + 1)
            result = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100))
            model.zero_grad()
            result.loss.backward()
            found.append((result, {name: x.grad for name, x in model.named_parameters() if x.grad is not None}))
        assert_near(found[0][0].logits[mask == 1], found[1][0].logits[mask == 1], 1e-5)
        assert found[0][1].keys() == found[1][1].keys()
        for name, gradient in found[0][1].items():
            largest = found[1][1][name].abs().max()
            assert (gradient - found[1][1][name]).abs().max() <= 2e-5 * max(largest, 1e-3), (step, name)
        with torch.no_grad():  # both take their step from one gradient, so that each step is compared alone
            for name, x in (*ours.named_parameters(), *theirs.named_parameters()):
                if name in found[1][1]:
                    x -= 0.05 * found[1][1][name]


@pytest.mark.parametrize("model_type", MODELS)
def test_generation(model_type, calls):
    ours, theirs = (model.eval() for model in both(model_type))
    ids, mask = ids_of(70), torch.ones(2, 70, dtype=torch.int64)
    mask[0, :5] = 0
    options = dict(max_new_tokens=6, min_new_tokens=6, do_sample=False, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
    got, want = (model.generate(ids, attention_mask=mask, **options) for model in (ours, theirs))
    assert got.sequences.equal(want.sequences)
    for a, b in zip(got.logits, want.logits, strict=True):
        assert_near(a, b, 1e-5)
    assert calls == [70] * 3 + [1] * 15


def test_half_types():
    ours, theirs = both("qwen3_next", dtype=torch.bfloat16)
    with torch.no_grad():
        got, want = (model.eval()(input_ids=ids_of(40)).logits.float() for model in (ours, theirs))
    assert_near(got, want, 5e-2)


def test_compiled():
    ours, _ = both("qwen3_5")
    ids = ids_of(33)
    with torch.no_grad():
        want = ours.eval()(input_ids=ids, use_cache=False).logits
        got = torch.compile(ours, backend="aot_eager", fullgraph=True)(input_ids=ids, use_cache=False).logits
    assert_near(got, want, 1e-5)


def test_the_layers():
    """Subclasses of the same name, which forget nothing when the mapping is taken away; the module of transformers stays as it was."""
    from transformers.models.qwen3_next import modeling_qwen3_next as module

    kind, rule = module.Qwen3NextGatedDeltaNet, module.torch_chunk_gated_delta_rule
    ours, theirs = both("qwen3_next")
    assert module.Qwen3NextGatedDeltaNet is kind and module.torch_chunk_gated_delta_rule is rule
    assert type(theirs.model.layers[0].linear_attn) is kind
    layer = ours.model.layers[0].linear_attn
    assert type(layer) is not kind and isinstance(layer, kind) and type(layer).__name__ == kind.__name__
    patching.unregister_patch_mapping(["Qwen3NextGatedDeltaNet"])
    assert type(model_of("qwen3_next").model.layers[0].linear_attn) is kind


def test_packed_sequences_are_refused():
    ours, _ = both("qwen3_next")
    with pytest.raises(ValueError, match="can't keep packed sequences apart"):
        ours(input_ids=ids_of(8, 1), cu_seq_lens_q=torch.tensor([0, 3, 8]), use_cache=False)


def test_all_that_are_known():
    attentive.transformers.register_delta_rule()
    assert {"Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "OlmoHybridGatedDeltaNet", "KimiLinearDeltaAttention"} <= set(
        patching.get_patch_mapping()
    )


@pytest.mark.parametrize(("model_type", "message"), [("llama", "a model type with a gated delta rule, got 'llama'"),
                                                     ("lama", "a model type of transformers, got 'lama'")])  # fmt: skip
def test_errors(model_type, message):
    with pytest.raises(ValueError, match=f"register_delta_rule: expected {message}"):
        attentive.transformers.register_delta_rule(model_type)
