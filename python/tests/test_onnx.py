"""The operator Attention of ONNX: the 93 cases of the wheel of onnx 1.23.2 through ``onnx_attention``. tools/wheel --onnx runs them."""

import warnings

import pytest
import torch

from onnx_attention import onnx_attention

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.long
PLACES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
TOLERANCES = {torch.float32: (1e-5, 2e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1e-2, 1e-2)}
# What no option expresses, by the name of the case, with the reason. There is none.
REFUSED = {}


def cases():
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        return [case for case in collect_testcases("Attention") if not case.name.endswith("_expanded")]


def tensor(x):
    return torch.from_numpy(x.astype("float32")).bfloat16() if x.dtype.name == "bfloat16" else torch.from_numpy(x.copy())


CASES = cases()


def test_there_are_as_many_as_the_wheel_has():
    assert len(CASES) == 93 and len({case.name for case in CASES}) == 93 and len(REFUSED) <= 12


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_attention_"))
def test_case(case):
    (node,) = case.model.graph.node
    inputs, outputs = ([tensor(x) for x in part] for part in case.data_sets[0])
    given = dict(zip([place for place, name in zip(PLACES, node.input) if name], inputs, strict=True))
    arguments = [given.get(place) for place in PLACES]
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    if "qk_matmul_output" in node.output:
        attributes.setdefault("qk_matmul_output_mode", 0)
    if case.name in REFUSED:
        with pytest.raises(NotImplementedError, match=REFUSED[case.name]):
            onnx_attention(*arguments, **attributes)
        return
    found = onnx_attention(*arguments, **attributes)
    found = [x for x, name in zip(found, node.output) if name]
    for name, got, want in zip([name for name in node.output if name], found, outputs, strict=True):
        assert got.dtype is want.dtype and got.shape == want.shape, name
        rtol, atol = TOLERANCES[want.dtype]
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=False, msg=lambda text, name=name: f"{name}: {text}")


def test_the_documentation_and_the_reference_evaluator_differ_in_mode_0():
    """Documented: "raw QK matmul result". The evaluator's is after the softcap, so is that of mode 1."""
    import numpy
    from onnx.reference import ReferenceEvaluator

    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    info = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "scores"], softcap=0.5, qk_matmul_output_mode=0)
    graph = onnx.helper.make_graph([node], "g", [info(x) for x in "qkv"], [info("y"), info("scores")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)])
    scores = ReferenceEvaluator(model).run(None, dict(zip("qkv", (x.numpy() for x in (q, k, v)))))[1]
    call = lambda mode: onnx_attention(q, k, v, softcap=0.5, qk_matmul_output_mode=mode)[3].numpy()
    assert numpy.allclose(scores, call(1), atol=1e-6) and not numpy.allclose(scores, call(0), atol=1e-2)
