"""The operator Attention of ONNX: all 93 cases of the wheel of onnx 1.23.2, and drawn calls, through ``onnx_attention``.

tools/wheel --others installs that wheel and runs them.
"""

import warnings

import pytest
import torch

from onnx_attention import onnx_attention

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.long
PLACES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
TOLERANCES = {torch.float32: (1e-5, 2e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1e-2, 1e-2)}


def cases():
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        found = collect_testcases()  # a second call returns what the first did, whatever operator it names
        return [case for case in found if case.name.startswith("test_attention") and not case.name.endswith("_expanded")]


def tensor(x):
    return torch.from_numpy(x.astype("float32")).bfloat16() if x.dtype.name == "bfloat16" else torch.from_numpy(x.copy())


CASES = cases()


def test_there_are_as_many_as_the_wheel_has():
    assert len(CASES) == 93 and len({case.name for case in CASES}) == 93


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_attention_"))
def test_case(case):
    (node,) = case.model.graph.node
    inputs, outputs = ([tensor(x) for x in part] for part in case.data_sets[0])
    given = dict(zip([place for place, name in zip(PLACES, node.input) if name], inputs, strict=True))
    arguments = [given.get(place) for place in PLACES]
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    if "qk_matmul_output" in node.output:
        attributes.setdefault("qk_matmul_output_mode", 0)
    found = onnx_attention(*arguments, **attributes)
    found = [x for x, name in zip(found, node.output) if name]
    for name, got, want in zip([name for name in node.output if name], found, outputs, strict=True):
        assert got.dtype is want.dtype and got.shape == want.shape, name
        rtol, atol = TOLERANCES[want.dtype]
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=False, msg=lambda text, name=name: f"{name}: {text}")


def evaluated(inputs, attributes):
    """The outputs of onnx's reference evaluator; an input that is None is absent."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    info = lambda name, kind=onnx.TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, None)
    given = {name: x.numpy() for name, x in zip(PLACES, inputs) if x is not None}
    names = [name if name in given else "" for name in PLACES]
    while not names[-1]:
        names.pop()
    past = "past_key" in given
    outputs = ["Y", *(["present_key", "present_value"] if past else ["", ""]), *(["scores"] if "qk_matmul_output_mode" in attributes else [])]
    node = helper.make_node("Attention", names, outputs, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in given.items()}
    graph = helper.make_graph([node], "g", [info(name, kind) for name, kind in kinds.items()], [info(name) for name in outputs if name])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return [torch.from_numpy(x.copy()) for x in ReferenceEvaluator(model).run(None, given)]


@pytest.mark.parametrize("seed", range(500))
def test_drawn_calls_equal_the_reference_evaluator(seed):
    """Settings that no case of the wheel combines, such as windows beside lengths and scores of mode 2."""
    torch.manual_seed(seed)
    one_of = lambda *choices: choices[int(torch.randint(len(choices), ()))]
    queries, new, key_heads, group = (one_of(1, 2, 3, 4) for _ in range(4))
    cache = one_of("none", "past", "lengths")
    past = one_of(1, 3) if cache == "past" else 0
    q, k, v = torch.randn(2, key_heads * group, queries, 4), torch.randn(2, key_heads, new, 4), torch.randn(2, key_heads, new, 3)
    before = [torch.randn(2, key_heads, past, width) for width in (4, 3)] if past else [None, None]
    lengths = torch.randint(0, new + 1, (2,)) if cache == "lengths" else None
    attributes = {"is_causal": one_of(0, 1), "left_window_size": one_of(-1, -1, 0, 1, 2), "right_window_size": one_of(-1, -1, 0, 1, 2)}
    attributes |= one_of({}, {"softcap": 0.7}, {"scale": 0.3}, {"qk_matmul_output_mode": one_of(1, 2, 3)},
                         {"qk_matmul_output_mode": 2, "softcap": 0.7}, {"qk_matmul_output_mode": 0})
    columns = one_of(past + new, max(1, past + new - 1 if lengths is None else int(lengths.max())))
    shape = one_of((columns,), (queries, columns), (1, columns), (key_heads * group, queries, columns), (2, 1, queries, columns))
    mask = one_of(None, torch.rand(shape) > 0.3, torch.randn(shape), torch.randn(shape).masked_fill(torch.rand(shape) < 0.3, -torch.inf))
    inputs = [q, k, v, mask, *before, lengths]
    causal, windowed = attributes["is_causal"], attributes["left_window_size"] >= 0 or attributes["right_window_size"] >= 0
    if lengths is not None and windowed and not causal and attributes["right_window_size"] != 0 and (lengths < queries).any():
        with pytest.raises(NotImplementedError, match="before the first key"):
            onnx_attention(*inputs, **attributes)
        return
    found = onnx_attention(*inputs, **attributes)
    if causal and not windowed and mask is not None:  # of a row for all queries, the evaluator reads the causal order wrongly
        inputs[3] = mask.broadcast_to(*mask.shape[:-2], queries, columns)
    found = [x for x, wanted in zip(found, (True, past, past, "qk_matmul_output_mode" in attributes)) if wanted]
    for got, want in zip(found, evaluated(inputs, attributes), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=5e-6)


def test_the_documentation_and_the_reference_evaluator_differ_in_mode_0():
    """Documented: "raw QK matmul result". The evaluator's is after the softcap, so is that of mode 1."""
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    scores = evaluated([q, k, v] + [None] * 4, {"softcap": 0.5, "qk_matmul_output_mode": 0})[1]
    call = lambda mode: onnx_attention(q, k, v, softcap=0.5, qk_matmul_output_mode=mode)[3]
    torch.testing.assert_close(scores, call(1))
    assert not torch.allclose(scores, call(0), atol=1e-2)


def test_the_documentation_and_the_reference_evaluator_differ_for_one_row_of_a_mask():
    """Documented: a mask of any shape that broadcasts. Beside is_causal, the evaluator lets every query see what the first one sees,
    and for a mask of rank 1 raises an error; beside a window it does neither."""
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4), torch.eye(3, 4).expand(1, 2, 3, 4)
    inputs = [q, k, v, torch.zeros(1, 3)] + [None] * 3
    seen = lambda y: y[0, 0].gt(0).sum(-1).tolist()
    assert seen(onnx_attention(*inputs, is_causal=1)[0]) == [1, 2, 3] and seen(evaluated(inputs, {"is_causal": 1})[0]) == [1, 1, 1]
    assert seen(evaluated(inputs, {"is_causal": 1, "left_window_size": 2})[0]) == [1, 2, 3]
    inputs[3] = torch.zeros(3)
    assert seen(onnx_attention(*inputs, is_causal=1)[0]) == [1, 2, 3]
    with pytest.raises(ValueError, match="not enough values to unpack"):
        evaluated(inputs, {"is_causal": 1})


def test_a_softmax_in_float64():
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    exact = onnx_attention(q.double(), k.double(), v.double())[0].float()
    assert onnx_attention(q, k, v, softmax_precision=11)[0].equal(exact)
