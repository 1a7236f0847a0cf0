#!/usr/bin/env python3
"""Writes the project of one class by attentive-port, with a training loop, and runs a command that builds and tests it.

    project.py FOLDER [-- COMMAND ...]
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python/attentive"))

from _port import cli  # noqa: E402

folder, command = pathlib.Path(sys.argv[1]), sys.argv[3:]
folder.parent.mkdir(parents=True, exist_ok=True)
status = cli.main([
    str(ROOT / "python/tests/port/notebooks.ipynb"), "MultiHeadAttention",
    "--args", "12, 8, context_length=12, dropout=0.1, num_heads=2", "--inputs", "randn(B, T, 12)", "--dtypes", "float64,bfloat16,autocast", "--train", "AdamW(lr=1e-2)", "--clip", "1.0",
    "--out", str(folder), "--force",
])
if status or not command:
    sys.exit(status)
os.execvp(command[0], command)
