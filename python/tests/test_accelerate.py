"""PyTorch's own attention on this package's kernel: the switch, what it reaches, and the report."""

import pytest
import torch
import torch.nn.functional as F

import attentive

SHAPE = (1, 4, 128, 32)


@pytest.fixture(autouse=True)
def off():
    attentive.disable()
    attentive.reset_report()
    yield
    attentive.disable()


def accelerates():
    return torch.ops.attentive.accelerates_sdpa()


def counted(run, **options):
    """Runs with acceleration: the calls that were taken, and those left to PyTorch."""
    attentive.reset_report()
    with attentive.enabled(**options):
        run()
    found = attentive.report()
    return found.taken, sum(found.left.values())


def test_results():
    torch.manual_seed(1)
    q, k, v = (torch.randn(SHAPE, requires_grad=True) for _ in range(3))

    def run():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [y, *torch.autograd.grad(y.square().sum(), (q, k, v))]
    want = run()
    assert attentive.report().taken == 0
    attentive.enable()
    got = run()
    assert attentive.report().taken == 1
    assert got[0].equal(attentive.attention(q, k, v, causal="top_left"))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=5e-6)
    attentive.disable()
    assert run()[0].equal(want[0])


def test_switch():
    assert not accelerates()
    with attentive.enabled():
        assert accelerates()
        with attentive.enabled(exact_dropout=True):
            assert counted(lambda: F.scaled_dot_product_attention(*[torch.randn(SHAPE)] * 3, dropout_p=0.1),
                           exact_dropout=True) == (0, 1)
        assert counted(lambda: None) == (0, 0)
        assert accelerates()
    assert not accelerates()
    attentive.enable(exact_dropout=True)
    with pytest.raises(KeyError), attentive.enabled():
        raise KeyError
    assert accelerates()
    attentive.reset_report()
    F.scaled_dot_product_attention(*[torch.randn(SHAPE)] * 3, dropout_p=0.1)  # exact again
    assert sum(attentive.report().left.values()) == 1


def test_report():
    x = torch.randn(SHAPE)
    attentive.enable(exact_dropout=True)
    for _ in range(3):
        F.scaled_dot_product_attention(x, x, x)
    for _ in range(2):
        F.scaled_dot_product_attention(x.double(), x.double(), x.double())
    F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)
    found = attentive.report()
    assert found.taken == 3
    assert list(found.left.values()) == [2, 1]
    assert str(found).splitlines() == [
        "        3 taken",
        "        3 left to PyTorch",
        "        2   it accepts only float32, bfloat16 and float16",
        "        1   dropout is left to PyTorch's random numbers (exact_dropout=True)",
    ]
    attentive.reset_report()
    assert attentive.report() == attentive.SdpaReport(0, {})


class TestReach:
    """The table of docs/guide/python.md."""

    def test_function_with_every_argument(self):
        q, k = torch.randn(2, 8, 128, 32), torch.randn(2, 2, 128, 32)
        mask = torch.rand(2, 1, 128, 128) > 0.2
        run = lambda: F.scaled_dot_product_attention(q, k, k, attn_mask=mask, dropout_p=0.1, scale=0.3, enable_gqa=True)
        assert counted(run) == (1, 0)

    def test_compiled_program(self):
        torch._dynamo.reset()
        x = torch.randn(SHAPE, requires_grad=True)
        compiled = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), fullgraph=True)
        want, = torch.autograd.grad(compiled(x).square().sum(), x)
        taken, _ = counted(lambda: compiled(x).square().sum().backward())
        assert taken > 0
        torch.testing.assert_close(x.grad, want, rtol=1e-5, atol=5e-6)

    def test_compiled_dropout(self):
        """Inductor composes a call with dropout of single operations; attentive.attention stays one operator."""
        torch._dynamo.reset()
        x = torch.randn(SHAPE)
        compiled = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), fullgraph=True)
        taken, _ = counted(lambda: compiled(x))
        assert taken == 0

    def test_aotinductor_package(self, tmp_path):
        """Its code calls PyTorch's kernel without asking the dispatcher."""
        x = torch.randn(SHAPE)
        program = torch.export.export(CallsFunction(), (x,))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "function.pt2"))
        loaded = torch._inductor.aoti_load_package(package)
        assert counted(lambda: loaded(x)) == (0, 0)

    def test_multihead_attention(self):
        x = torch.randn(2, 128, 64)
        module = torch.nn.MultiheadAttention(64, 4, batch_first=True)
        assert counted(lambda: module(x, x, x, need_weights=False)) == (1, 0)
        assert counted(lambda: module(x, x, x, need_weights=True)) == (0, 0)  # it multiplies by itself
        module.eval()
        with torch.no_grad():
            assert counted(lambda: module(x, x, x, need_weights=False)) == (0, 0)  # the fast path

    def test_transformer_encoder(self):
        x = torch.randn(2, 128, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        assert counted(lambda: encoder(x)) == (3, 0)
        encoder.eval()
        with torch.no_grad():
            want = encoder(x)
            assert counted(lambda: encoder(x)) == (0, 0)  # the fast path
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                assert counted(lambda: encoder(x)) == (3, 0)
                with attentive.enabled():
                    torch.testing.assert_close(encoder(x), want, rtol=1e-5, atol=1e-5)
            finally:
                torch.backends.mha.set_fastpath_enabled(fast)

    def test_torchscript(self):
        x = torch.randn(SHAPE)
        scripted = torch.jit.script(scripted_attention)
        assert counted(lambda: scripted(x)) == (1, 0)

    def test_program_that_asks_for_the_definition(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        x = torch.randn(SHAPE)
        with sdpa_kernel(SDPBackend.MATH):
            taken, _ = counted(lambda: F.scaled_dot_product_attention(x, x, x))
        assert taken == 0

    @pytest.mark.parametrize("family, taken", [("bert", 2), ("gpt2", 2), ("t5", 6)])
    def test_transformers(self, family, taken):
        """T5 calls the function where its class asks for attention implementations; older ones multiply by themselves."""
        transformers = pytest.importorskip("transformers")
        sizes = dict(vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        if family == "bert":
            model = transformers.BertModel(transformers.BertConfig(**sizes, hidden_size=64, num_hidden_layers=2,
                                                                   num_attention_heads=4, intermediate_size=96))
        elif family == "gpt2":
            model = transformers.GPT2Model(transformers.GPT2Config(**sizes, n_embd=64, n_layer=2, n_head=4, n_positions=64))
        else:
            model = transformers.T5Model(transformers.T5Config(**sizes, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4))
            if transformers.__version__.startswith("4."):
                taken = 0
        model.train()
        ids = torch.randint(3, 99, (2, 40))
        arguments = {"decoder_input_ids": ids} if family == "t5" else {}
        found = counted(lambda: model(input_ids=ids, **arguments)[0].sum().backward())
        assert found == (taken, 0)


class TestRandomness:
    """Dropout is PyTorch's where a compiler or a transform sees the call, so it is as random as without this package."""

    @pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "inductor"])
    def test_two_compiled_calls(self, backend):
        x = torch.randn(SHAPE, requires_grad=True)
        call = lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        torch._dynamo.reset()
        attentive.enable()
        first, second = torch.compile(lambda x: (call(x), call(x)), fullgraph=True, backend=backend)(x)
        assert not first.equal(second)

    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_checkpoint(self, use_reentrant):
        from torch.utils.checkpoint import checkpoint
        q, v = torch.randn(SHAPE), torch.randn(SHAPE, requires_grad=True)
        attentive.enable()
        y = checkpoint(lambda v: F.scaled_dot_product_attention(q, q, v, dropout_p=0.5), v, use_reentrant=use_reentrant)
        y.sum().backward()
        assert attentive.report().taken == 2
        torch.testing.assert_close((v.grad * v).sum(), y.sum(), rtol=1e-4, atol=1e-2)  # one mask in both passes

    def test_torchscript(self):
        x = torch.randn(SHAPE)
        attentive.enable()
        scripted = torch.jit.script(scripted_twice)
        for _ in range(4):  # the executor changes its graph during the first calls
            first, second = scripted(x)
            assert not first.equal(second)
        assert attentive.report().taken == 8

    @pytest.mark.parametrize("mapped", [True, False], ids=["items", "one call for all items"])
    @pytest.mark.parametrize("randomness", ["error", "same", "different"])
    def test_vmap(self, randomness, mapped):
        x = torch.randn(SHAPE)

        def call(item):
            return F.scaled_dot_product_attention(*[item if mapped else x] * 3, dropout_p=0.5) + 0 * item

        def outcome():
            torch.manual_seed(2)
            try:
                y = torch.func.vmap(call, randomness=randomness)(x.expand(3, *SHAPE))
            except RuntimeError as error:
                return str(error)
            return "equal items" if y[0].equal(y[1]) else "other items"
        want = outcome()
        attentive.enable()
        assert outcome() == want
        if mapped:
            assert {"error": "randomness error mode", "same": "equal items", "different": "other items"}[randomness] in want


class CallsFunction(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def scripted_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))


def scripted_attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)
