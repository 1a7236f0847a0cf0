"""attentive-port: what it writes and refuses, and its command and function; tests/package compiles what it writes."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

import attentive
from attentive._port import case as recorded_case
from attentive._port import cli, load, port
from attentive._port.kinds import Refusal
from attentive._port.options import Options

HERE = pathlib.Path(__file__).parent / "port"
spec = importlib.util.spec_from_file_location("port_cases", HERE / "cases.py")
cases = sys.modules["port_cases"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

SMALL = '''\
import os, time, torch
from torch import nn

class Small(nn.Module):
    """Attention of one head."""

    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.width = width
        self.q = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ x.transpose(1, 2) / self.width**0.5, dim=-1)
        return self.dropout(weights) @ x

class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("not today")

class Sleeps(nn.Module):
    def forward(self, x):
        time.sleep(600)

class Killed(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), 9)
'''


def build(case, folder, **more):
    inputs = [case.inputs] if isinstance(case.inputs, str) else list(case.inputs)
    options = Options(str(case.path), case.cls, "ported", case.args, inputs)
    for name, value in more.items():
        setattr(options, name, value)
    return port.build(options, folder)


def texts(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors: threads that wait would cost more than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small(tmp_path):
    """The file of SMALL, in a folder of its own; the result is written beside it."""
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


def run(path, name, *arguments, inputs="randn(B, T, 8)", out="out"):
    return cli.main([str(path), name, "--inputs", inputs, "--out", str(path.parent / out), *arguments])


@pytest.mark.parametrize("case", cases.cases(), ids=lambda case: case.id)
def test_class_is_written(case, tmp_path):
    try:
        written = build(case, tmp_path)
    except Refusal as error:
        assert case in cases.FURTHER, load.described(error)
        assert f"{case.file}:" in load.described(error)
        return
    assert len(written.recognised) == case.attention, (written.recognised, written.composed)
    assert written.composed or not case.composed
    assert case.hidden_rows or not written.hidden_rows
    assert set(written.files) == set(texts(tmp_path))


def test_each_draw_is_written_once(tmp_path):
    """What a second one would change is seen only where both sides have one release of PyTorch."""
    case = next(case for case in cases.cases() if case.id == "DrawOrder")
    build(case, tmp_path)
    python, cpp = case.path.read_text().partition("class DrawOrder(")[2].partition("\nclass ")[0], (tmp_path / "ported.h").read_text()
    for word in ("rand", "randn", "randn_like"):
        assert cpp.count(f"torch::{word}(") == python.count(f"torch.{word}("), word


@pytest.mark.parametrize("case", cases.REFUSED, ids=lambda case: case.cls)
def test_class_is_refused_by_name(case):
    try:
        build(case, None)
    except Refusal as error:
        message = load.described(error)
    else:
        assert case.or_equal  # then tests/package compares the numbers
        return
    assert "\n" not in message
    for fragment in (case.file, case.place, *case.names):
        assert fragment in message


def test_two_runs_may_round_differently():
    large = torch.tensor([300.0, 1e-4, float("nan"), float("-inf")])
    assert recorded_case._same(large, large + 1e-3)  # relative to the largest number
    assert not recorded_case._same(large, large + 1e-2)
    assert not recorded_case._same(large, large.nan_to_num())
    assert not recorded_case._same(torch.tensor([3]), torch.tensor([4]))
    assert not recorded_case._same(large, large[:3])
    assert recorded_case._same(large.bfloat16(), (large * 1.01).bfloat16())


@pytest.mark.parametrize("name", ["EncoderLayer_pre", "SmallGPT"])
def test_text_is_the_same_in_every_run(name, tmp_path):
    case = next(case for case in cases.cases() if case.id == name)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        torch.manual_seed(len(folder))
        build(case, tmp_path / folder)
        torch.rand(3)
    assert texts(tmp_path / "one") == texts(tmp_path / "two")


def test_notebook_with_cells_that_must_not_run(tmp_path, capsys):
    marker = tmp_path / "ran"
    cells = [
        "%matplotlib inline\n!pip install nothing\nimport torch\nfrom torch import nn",
        "WIDTH = 8\n" + SMALL[SMALL.index("class Small") : SMALL.index("class Raises")],
        f"model = Small(WIDTH)\nfor step in range(3):\n    open({str(marker)!r}, 'a').write('x')",
        "%%bash\ntouch ran",
    ]
    book = {"cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells], "nbformat": 4}
    path = tmp_path / "my book.ipynb"
    path.write_text(json.dumps(book))
    assert run(path, "Small", "--args", "WIDTH", "--train", "AdamW(lr=1e-3)", "--clip", "1.0", out="in a folder") == 0
    assert not marker.exists()
    out = tmp_path / "in a folder"
    names = {"CMakeLists.txt", "README.md", "case.safetensors", "checks.h", "driver.h", "in_a_folder.h", "test.cpp", "train.cpp"}
    assert set(texts(out)) == names
    readme = (out / "README.md").read_text()
    for part in ("%matplotlib inline", "!pip install nothing", "for step in range(3):", "my book.ipynb, cell 2", "--train"):
        assert part in readme
    assert "attention(" in (out / "in_a_folder.h").read_text()
    assert "became attention()" in capsys.readouterr().out


INSTALLED = '''\
import collections.abc, itertools
import torch
from torch import nn

def _ntuple(n):
    def parse(x):
        return tuple(x) if isinstance(x, collections.abc.Iterable) else tuple(itertools.repeat(x, n))
    return parse

to_2tuple = _ntuple(2)

def halved(x):
    return x / 2

class Gate(nn.Module):
    def __init__(self, width, kernel=3, drop=0.0):
        super().__init__()
        self.drops = to_2tuple(drop)
        self.mix = nn.Conv1d(width, width, to_2tuple(kernel)[0], padding=1)

    def forward(self, x):
        return halved(self.mix(x.transpose(1, 2)).transpose(1, 2)) * torch.sigmoid(x) * (1 - self.drops[0])
'''


def test_classes_of_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "site/small_layers").mkdir(parents=True)
    (tmp_path / "site/small_layers/__init__.py").write_text("from .gates import Gate, halved, to_2tuple\n")
    (tmp_path / "site/small_layers/gates.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "mine/of/user").mkdir(parents=True)
    folder = tmp_path / "mine/of/user"
    (folder / "norms.py").write_text("from torch import nn\n\nclass Norm(nn.LayerNorm):\n    pass\n")
    (folder / "parts.py").write_text("from torch import nn\nfrom norms import Norm\n\nclass Part(nn.Module):\n    def __init__(self, width):\n"
                                     "        super().__init__()\n        self.norm = Norm(width)\n\n    def forward(self, x):\n"
                                     "        return self.norm(x)\n")
    (folder / "net.py").write_text("from torch import nn\nfrom small_layers import Gate, halved\nfrom norms import Norm\nfrom parts import Part\n\n"
                                   "class Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
                                   "        self.gate, self.norm, self.part = Gate(width, drop=0.25), Norm(width), Part(width)\n\n"
                                   "    def forward(self, x):\n        return halved(self.gate(self.part(self.norm(x))))\n")
    result = port.build(Options(str(folder / "net.py"), "Net", "net", "8", ["randn(B, T, 8)"]), None)
    for name in ("Gate", "Norm", "Part", "Net"):
        assert result.header.count(f"class {name}Impl") == 1
    assert any("small_layers" in note and "licence" in note for note in result.notes)


def test_activations_of_transformers(tmp_path):
    pytest.importorskip("transformers")
    path = tmp_path / "net.py"
    path.write_text("import torch\nfrom torch import nn\nfrom transformers.activations import ACT2FN\n\nLAYERS = {'leaky': nn.LeakyReLU(0.2)}\n\n"
                    "class Net(nn.Module):\n    def __init__(self, act, old='gelu_new'):\n        super().__init__()\n"
                    "        self.act, self.old, self.leak = ACT2FN[act], ACT2FN[old], LAYERS['leaky']\n"
                    "        self.new = float(torch.__version__[:3]) >= 2.0\n\n"
                    "    def forward(self, x):\n        return self.old(self.act(x)) + self.leak(x)\n")
    header = port.build(Options(str(path), "Net", "net", "'silu'", ["randn(B, T, 8)"]), None).header
    assert "torch::nn::SiLU()" in header and '.approximate("tanh")' in header and ".negative_slope(0.2)" in header and re.search(r"= 2\.\d >= 2", header)
    with pytest.raises(Refusal, match="ACT2FN\\['quick_gelu'\\] has no translation"):
        port.build(Options(str(path), "Net", "net", "'quick_gelu'", ["randn(B, T, 8)"]), None)


def test_inputs_are_drawn_by_torch(small, capsys):
    small.write_text("from random import randint\nfrom math import sqrt\n" + SMALL)
    assert run(small, "Small", "--args", "int(sqrt(64))", "--check", inputs="randint(1, 9, (B, T, 8)).float()") == 0
    assert "would write" in capsys.readouterr().out


def test_check_writes_nothing_and_force_replaces(small, capsys):
    out = small.parent / "out"
    assert run(small, "Small", "--args", "8", "--check") == 0
    assert "would write" in capsys.readouterr().out
    assert list(small.parent.iterdir()) == [small]
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    assert run(small, "Small", "--args", "8") == 1
    assert "--force" in capsys.readouterr().err
    assert texts(out) == {"mine.txt": b"mine"}
    assert run(small, "Small", "--args", "8", "--force") == 0
    assert "mine.txt" not in texts(out)
    assert "out.h" in texts(out)
    assert {path.name for path in small.parent.iterdir()} == {"small.py", "out"}


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("Raises", (), ("small.py:", "ValueError", "not today")),
        ("Small", ("--args", "nothing_of_this_name"), ("nothing_of_this_name",)),
        ("Sleeps", ("--time-limit", "8"), ("8 s", "--time-limit")),
        ("Killed", (), ("SIGKILL",)),
    ],
)
def test_failure_is_one_line_and_writes_nothing(small, capfd, name, arguments, says):
    assert run(small, name, *arguments) == 1
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("attentive-port: ")
    assert printed.err.count("\n") == 1
    for word in says:
        assert word in printed.err
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Small",), "--inputs"),
        (("Small", "--inputs", "randn(2"), "never closed"),
        (("Small", "--inputs", "x", "--dtypes", "int8"), "float64, bfloat16 and autocast"),
        (("Small", "--inputs", "x", "--size", "B=two"), "B=2"),
        (("Small", "--inputs", "x", "--set", "N"), "NAME=VALUE"),
        (("Small", "--inputs", "x", "--train", "Muon"), "AdamW"),
        (("Small", "--inputs", "x", "--train", "SGD(rate=1)"), "momentum"),
        (("Small", "--inputs", "x", "--loss", "y.sum()"), "--train"),
        (("Small", "--inputs", "x", "--time-limit", "soon"), "float"),
        (("Small", "--inputs", "x", "--unknown"), "--unknown"),
    ],
)
def test_wrong_command_line(small, capsys, arguments, says):
    assert cli.main([str(small), *arguments, "--out", str(small.parent / "out")]) == 2
    assert says in capsys.readouterr().err
    assert list(small.parent.iterdir()) == [small]


def test_help_without_a_compiler():
    command = shutil.which("attentive-port", path=str(pathlib.Path(sys.executable).parent))
    command = [command] if command else [sys.executable, "-m", "attentive._port.cli"]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, env={**os.environ, "PATH": ""})
    assert done.returncode == 0, done.stderr
    for word in ("EXECUTES", "--inputs", "mask=", "dtype=torch", "Config("):
        assert word in done.stdout


def test_recorded_program(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch\n"
        "q = torch.randn(1, 2, int(sys.argv[1]), 8)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)\n"
    )
    out = tmp_path / "cases"
    assert cli.main(["--out", str(out), "--record", str(program), "5"]) == 0
    assert [path.suffix for path in out.iterdir()] == [".safetensors"]
    assert cli.main(["--out", str(tmp_path / "more"), "--record", str(program), "five"]) == 1
    assert "five" in capsys.readouterr().err


def of(small, monkeypatch, name):
    """A class of SMALL, imported as a user does."""
    monkeypatch.syspath_prepend(str(small.parent))
    sys.modules.pop("small", None)
    return getattr(importlib.import_module("small"), name)


def test_function(small, monkeypatch):
    cls = of(small, monkeypatch, "Small")
    module, x, longer = cls(8), torch.randn(2, 5, 8), torch.randn(3, 7, 8)
    before = torch.random.get_rng_state()
    written = attentive.port(module, [x, {"x": longer}], out=small.parent / "out")
    assert torch.equal(before, torch.random.get_rng_state())
    assert written.folder == small.parent / "out"
    assert set(written.files) == set(texts(written.folder))
    assert len(written.recognised) == 1
    assert written.never_ran == written.unseeded == []
    with pytest.raises(attentive.PortError, match="force=True"):
        attentive.port(module, x, out=small.parent / "out")
    with pytest.raises(attentive.PortError, match="MiB, more than 1 .* limit="):
        attentive.port(cls(512), torch.randn(1, 2, 512), out=small.parent / "large", limit=1)
    assert not (small.parent / "large").exists()
    checked = attentive.port(cls, "randn(B, T, 4)", out=None, args={"width": 4}, composed=True)
    assert checked.folder is None
    assert checked.recognised == []


def test_function_names_what_is_wrong(small, monkeypatch):
    cls = of(small, monkeypatch, "Small")
    x = torch.randn(2, 5, 8)
    with pytest.raises(attentive.PortError, match="constructor's arguments: .* another module"):
        attentive.port(cls(8, dropout=0.2), x, out=None)
    with pytest.raises(attentive.PortError, match=r"small\.py:.*not today"):
        attentive.port(of(small, monkeypatch, "Raises"), x, out=None)
    with pytest.raises(ValueError, match="float64, bfloat16 and autocast"):
        attentive.port(cls(8), x, out=None, dtypes=["half"])
    with pytest.raises(ValueError, match="as a text"):
        attentive.port(cls, x, out=None, args=(object(),))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        attentive.port(x, x, out=None)

    class Local(torch.nn.Module):
        pass

    with pytest.raises(attentive.PortError, match="inside a function"):
        attentive.port(Local(), x, out=None)
    typed = type("Typed", (torch.nn.Module,), {"__module__": "__main__"})
    with pytest.raises(attentive.PortError, match="attentive-port FILE Typed"):
        monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
        attentive.port(typed(), x, out=None)


def test_import_of_the_package_leaves_the_translator_out():
    code = "import sys, attentive; sys.exit(any(name.startswith('attentive._port') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
