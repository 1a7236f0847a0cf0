"""Calls on a GPU: skipped without one."""

import pytest
import torch
from torch.nn import functional as F

import attentive

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def qkv(dtype, heads=(8, 2, 2)):
    torch.manual_seed(0)
    return [torch.randn(2, h, 300, 64, device="cuda", dtype=dtype, requires_grad=True) for h in heads]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_output_and_gradients(dtype):
    q, k, v = qkv(dtype)
    y = attentive.attention(q, k, v, causal="bottom_right")
    want = F.scaled_dot_product_attention(q.double(), *(x.double().repeat_interleave(4, 1) for x in (k, v)), is_causal=True)
    got, exact = (torch.autograd.grad(x.sin().sum(), (q, k, v)) for x in (y, want))
    for a, b in zip((y, *got), (want, *exact)):
        assert (a.double() - b.double()).abs().max() <= BOUNDS[dtype] * b.abs().max()


@pytest.mark.parametrize("stream", ["counter", "aten"])
def test_dropout_in_the_backward_pass(stream):
    """The random numbers of a call are on its device, and the backward pass draws the same."""
    q, k, v = (x.double().detach().requires_grad_() for x in qkv(torch.float32, (2, 2, 2)))
    y = attentive.attention(q, k, v, dropout_p=0.5, dropout_stream=stream)
    by_v, = torch.autograd.grad(y.sum(), v)  # the sums of the weights' columns after dropout
    torch.testing.assert_close((by_v * v).sum(), y.sum())


def test_compiled():
    q, k, v = qkv(torch.float16)
    call = lambda q, k, v: attentive.attention(q, k, v, causal="bottom_right", softcap=20.0) * 2  # noqa: E731
    assert torch.equal(torch.compile(call)(q, k, v), call(q, k, v))


def test_enabled_leaves_calls_on_a_gpu_to_pytorch():
    q, k, v = qkv(torch.float16, (2, 2, 2))
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with attentive.enabled():
        attentive.reset_report()
        assert torch.equal(F.scaled_dot_product_attention(q, k, v, is_causal=True), want)
        assert attentive.report().taken == 0


def test_transformers():
    transformers = pytest.importorskip("transformers")
    import attentive.transformers

    attentive.transformers.register()
    config = transformers.LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8,
                                      num_key_value_heads=2, vocab_size=100)
    ids = (torch.arange(60, device="cuda").reshape(2, 30) * 7) % 100
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    logits, tokens = [], []
    for implementation in ("eager", "attentive"):
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation=implementation).cuda().eval()
        with torch.no_grad():
            logits.append(model(ids, attention_mask=mask).logits[mask.bool()])
        tokens.append(model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False))
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-5)
    assert torch.equal(tokens[0], tokens[1])
