"""The programs of python/examples print what docs/guide/python.md shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/python.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"<!-- file: python/examples/(\w+\.py) -->\n```python\n.*?\n```\n\n```text\n(.*?)```", PAGE, re.S))


def test_every_program_is_on_the_page():
    assert set(SHOWN) == {path.name for path in (ROOT / "python/examples").glob("*.py")}


@pytest.mark.parametrize("name", SHOWN)
def test_program(name, tmp_path):
    done = subprocess.run([sys.executable, ROOT / "python/examples" / name], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN[name]
