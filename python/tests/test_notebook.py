"""python/examples/chapter3.ipynb prints what it shows, and its classes have the numbers of the restated ones."""

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
CELLS = json.loads((ROOT / "python/examples/chapter3.ipynb").read_text(encoding="utf-8"))["cells"]


@pytest.fixture(scope="module")
def executed():
    """The names that the cells define, and for each cell with output the recorded and the printed one."""
    names, outputs = {}, []
    for cell in CELLS:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        recorded = "".join(line for output in cell["outputs"] for line in output["text"])
        outputs.append((recorded, printed.getvalue()))
    return names, outputs


def test_outputs(executed):
    _, outputs = executed
    assert sum(1 for recorded, _ in outputs if recorded) == 4
    for recorded, printed in outputs:
        assert printed == recorded
    assert "differs" not in outputs[-2][0]


def test_one_line_changes(executed):
    """The function that every class calls is set in two lines; the second one brings this package."""
    lines = [line for cell in CELLS if cell["cell_type"] == "code" for line in cell["source"] if line.startswith("attend = ")]
    assert len(lines) == 2
    assert "attentive" not in lines[0] and lines[1].count("attentive.attention(") == 1


def test_numbers_of_the_restated_classes(executed, monkeypatch):
    names, _ = executed
    monkeypatch.syspath_prepend(str(ROOT / "tools/users"))
    import notebook_modules
    classes = {
        "self-attention": lambda: notebook_modules.SelfAttention_v1(3, 2),
        "causal": lambda: notebook_modules.CausalAttention(3, 2, 6, 0.0),
        "causal, dropout": lambda: notebook_modules.CausalAttention(3, 2, 6, 0.5),
        "several heads": lambda: notebook_modules.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2),
        "multi-head": lambda: notebook_modules.MultiHeadAttention(3, 2, 6, 0.0, 2),
        "multi-head, dropout": lambda: notebook_modules.MultiHeadAttention(3, 4, 6, 0.3, 2),
    }
    assert set(classes) == set(names["before"])
    batch = torch.stack([names["tokens"]] * 2)
    for name, make in classes.items():
        torch.manual_seed(123)
        want = make()(batch).detach()
        for found in (names["before"], names["after"]):
            torch.testing.assert_close(found[name][0], want, rtol=1e-5, atol=2e-6)
    sys.modules.pop("notebook_modules")
