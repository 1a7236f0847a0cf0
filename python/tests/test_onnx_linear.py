"""The operator LinearAttention of ONNX (opset 27) and of onnxruntime over ``attentive.gated_delta_rule``: the cases of the wheel of
onnx 1.23.2, and drawn calls of its four rules, in onnx's reference evaluator and in onnxruntime 1.32.

tools/wheel --others installs both and runs them.
"""

import warnings

import pytest
import torch

from attentive import gated_delta_rule

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.long
PLACES = ("query", "key", "value", "past_state", "decay", "beta")
RULES = ("linear", "gated", "delta", "gated_delta")
try:
    onnx.defs.get_schema("LinearAttention", 27)
except onnx.defs.SchemaError:
    pytest.skip(f"onnx {onnx.__version__} has no LinearAttention", allow_module_level=True)


def onnx_linear_attention(
    query, key, value, past_state=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, update_rule="gated_delta", scale=0.0,
    chunk_size=64,
):
    """Returns output (B, T, heads * Dv) and present_state (B, kv_num_heads, Dk, Dv).

    A scale of 0 means 1 / sqrt(Dk). In ONNX several query heads share a key head and its state; here several value heads share
    one, so that keys, values and states are repeated for the query heads, and the state of one of each group is returned.
    """
    if update_rule not in RULES:
        raise ValueError(f"onnx_linear_attention: expected update_rule to be one of {', '.join(RULES)}, got {update_rule!r}")
    group = q_num_heads // kv_num_heads
    split = lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(1, 2)
    repeat = lambda x: x if x is None else x.repeat_interleave(group, 1)
    q, k, v = split(query, q_num_heads), split(key, kv_num_heads), split(value, kv_num_heads)
    if decay is not None:
        channels = decay.shape[-1] != kv_num_heads
        decay = repeat(split(decay, kv_num_heads) if channels else decay.transpose(1, 2))
    if beta is not None:
        beta = repeat(beta.expand(-1, -1, kv_num_heads).transpose(1, 2))
    wide = None if past_state is None else past_state.float()
    y, state = gated_delta_rule(
        q, repeat(k), repeat(v), decay, beta, repeat(wide), scale=scale or None, delta=update_rule in ("delta", "gated_delta")
    )
    kind = query.dtype if past_state is None else past_state.dtype
    return y.transpose(1, 2).flatten(2), state[:, ::group].to(kind)


def model_of(given, attributes, domain=""):
    from onnx import helper

    kind = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    names = [name if name in given else "" for name in PLACES]
    while not names[-1]:
        names.pop()
    outputs = ["output", "present_state"]
    node = helper.make_node("LinearAttention", names, outputs, domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info(name, kind(x), x.shape) for name, x in given.items()]
    results = [helper.make_tensor_value_info(name, kind(given["query"]), None) for name in outputs]
    graph = helper.make_graph([node], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 11
    return model


def drawn(seed):
    """Inputs and attributes: 1 to 70 tokens, one or more query heads for a key head, decays per head and per channel."""
    torch.manual_seed(seed)
    one_of = lambda *choices: choices[int(torch.randint(len(choices), ()))]
    rule, group, heads, length, batch, dk, dv = (
        RULES[seed % 4], one_of(1, 1, 2, 3), one_of(1, 2), one_of(1, 2, 5, 33, 70), one_of(1, 2), one_of(4, 8), one_of(3, 8))
    x = {"query": torch.randn(batch, length, group * heads * dk), "key": torch.randn(batch, length, heads, dk),
         "value": torch.randn(batch, length, heads * dv)}
    x["key"] = torch.nn.functional.normalize(x["key"], dim=-1).flatten(2) * one_of(1.0, 0.7)
    if one_of(True, False):
        x["past_state"] = torch.randn(batch, heads, dk, dv)
    if "gated" in rule:
        x["decay"] = -torch.rand(batch, length, heads * one_of(1, dk)) * one_of(0.2, 5.0)
    if "delta" in rule:
        x["beta"] = torch.rand(batch, length, one_of(heads, heads, 1))
    attributes = {"q_num_heads": group * heads, "kv_num_heads": heads, "update_rule": rule, **one_of({}, {"scale": 0.0}, {"scale": 0.3})}
    return x, attributes


def assert_equal(got, want, seed):
    for name, a, b in zip(("output", "present_state"), got, want, strict=True):
        b = torch.from_numpy(b.copy())
        assert a.shape == b.shape, name
        assert (a - b).abs().max() <= 1e-5 * max(1.0, b.abs().max()), (name, seed)


@pytest.mark.parametrize("seed", range(200))
def test_drawn_calls_equal_the_reference_evaluator(seed):
    from onnx.reference import ReferenceEvaluator

    x, attributes = drawn(seed)
    given = {name: some.numpy() for name, some in x.items()}
    assert_equal(onnx_linear_attention(**x, **attributes), ReferenceEvaluator(model_of(given, attributes)).run(None, given), seed)


@pytest.mark.parametrize("domain", ["", "com.microsoft"], ids=["ai.onnx", "com.microsoft"])
@pytest.mark.parametrize("seed", range(0, 200, 5))
def test_drawn_calls_equal_onnxruntime(seed, domain):
    """The first is a function that onnxruntime runs as a Scan, the second its own kernel."""
    runtime = pytest.importorskip("onnxruntime")
    x, attributes = drawn(seed)
    given = {name: some.numpy() for name, some in x.items()}
    session = runtime.InferenceSession(model_of(given, attributes, domain).SerializeToString(), providers=["CPUExecutionProvider"])
    assert_equal(onnx_linear_attention(**x, **attributes), session.run(None, given), seed)


def cases():
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases()  # a second call returns what the first did, whatever operator it names
        return [case for case in found if case.name.startswith("test_linear_attention") and not case.name.endswith("_expanded")]


CASES = cases()


def test_there_are_as_many_as_the_wheel_has():
    assert len(CASES) == 14


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_linear_attention_"))
def test_case(case):
    (node,) = case.model.graph.node
    tensor = lambda x: torch.from_numpy(x.astype("float32")).bfloat16() if x.dtype.name == "bfloat16" else torch.from_numpy(x.copy())
    inputs, outputs = ([tensor(x) for x in part] for part in case.data_sets[0])
    given = dict(zip([place for place, name in zip(PLACES, node.input) if name], inputs, strict=True))
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    attributes = {name: x.decode() if isinstance(x, bytes) else x for name, x in attributes.items()}
    for got, want in zip(onnx_linear_attention(**given, **attributes), outputs, strict=True):
        assert got.dtype is want.dtype and got.shape == want.shape
        tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[want.dtype]
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
