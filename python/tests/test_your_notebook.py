"""docs/guide/your_notebook.md shows what attentive-port writes for python/examples/my_notebook.ipynb, and so does its picture."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide"
PAGE = (GUIDE / "your_notebook.md").read_text(encoding="utf-8")
COMMAND, PRINTED = re.search(r"```sh\n(attentive-port .*?)```\n\n```text\n(.*?)```", PAGE, re.S).groups()
SHOWN = dict(re.findall(r"<!-- ported: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S))
COLUMNS = re.findall(r'<text class="(python|cpp)[^>]*>(.*?)</text>', (GUIDE / "your-notebook.svg").read_text(encoding="utf-8"))


def squeezed(text):
    """Without white space: clang-format breaks lines elsewhere."""
    return "".join(text.split())


@pytest.fixture(scope="module")
def ported(tmp_path_factory):
    """The files that the page's command writes, and what it prints."""
    folder = tmp_path_factory.mktemp("ported")
    notebook = ROOT / "python/examples/my_notebook.ipynb"
    (folder / notebook.name).write_bytes(notebook.read_bytes())
    words = shlex.split(COMMAND.replace("\\\n", ""))[1:]
    done = subprocess.run([sys.executable, "-m", "_port.cli", *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python/attentive")})
    assert done.returncode == 0, done.stderr
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    files = {name: (folder / "my_attention" / name).read_text(encoding="utf-8") for name in ("my_attention.h", "train.cpp")}
    return {**files, notebook.name: "\n".join("".join(cell["source"]) for cell in cells)}, done.stdout


def test_summary(ported):
    assert ported[1] == PRINTED


@pytest.mark.parametrize("name", SHOWN)
def test_code_of_the_page(ported, name):
    rest = squeezed(ported[0][name])
    for part in SHOWN[name].split("…"):
        _, found, rest = rest.partition(squeezed(part))
        assert found, part


@pytest.mark.parametrize(("column", "name"), [("python", "my_notebook.ipynb"), ("cpp", "my_attention.h")])
def test_picture(ported, column, name):
    rest = squeezed(ported[0][name])
    lines = [html.unescape(text) for kind, text in COLUMNS if kind == column and text != "…"]
    assert len(lines) > 20
    for line in lines:
        _, found, rest = rest.partition(squeezed(line))
        assert found, line
