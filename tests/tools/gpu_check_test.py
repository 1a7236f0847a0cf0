"""tools/gpu_check where there is no GPU, and its report where every program fails: gpu_check_test.py ROOT"""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])


def run(path, *arguments):
    return subprocess.run([sys.executable, str(ROOT / "tools/gpu_check"), *arguments], text=True, capture_output=True,
                          env={**os.environ, "PATH": str(path)}, timeout=120)


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    report = folder / "report.md"
    options = ["--report", str(report), "--build", str(folder / "build")]

    for why, answer in (("no nvidia-smi", None), ("a driver without a GPU", "exit 0\n"), ("no driver", "exit 9\n")):
        if answer:
            script(folder / "nvidia-smi", answer)
        done = run(folder, *options)
        assert done.returncode == 2, f"{why}: {done}"
        assert done.stderr.startswith("gpu_check: no GPU") and done.stderr.count("\n") == 1, f"{why}: {done}"
        assert done.stdout == "" and not report.exists() and not (folder / "build").exists(), f"{why}: {done}"

    script(folder / "nvidia-smi", "echo 'A card, 1 MiB, 1.0, 9.0'\n")
    for tool in ("ninja", "g++"):
        script(folder / tool, "exit 0\n")
    script(folder / "cmake", "echo '-- attentive: LibTorch of a test'; echo 'why | it failed'; exit 1\n")
    done = run(folder, *options)
    text = report.read_text()
    assert done.returncode == 1, done
    for part in ("* GPU: A card", "* attentive: LibTorch of a test", "| configure | **failed** (status 1) |", "why | it failed",
                 "| build | not run: not configured | – |", "| notebooks | not run: not built | – |"):
        assert part in text, f"{part!r} is not in\n{text}"

    # Everything built, every program absent: each step fails by itself and the others still run.
    script(folder / "cmake", "exit 0\n")
    (folder / "build").mkdir(exist_ok=True)
    done = run(folder, *options)
    text = report.read_text()
    assert done.returncode == 1 and "| build | passed |" in text, text
    assert text.count("**failed** (status 127)") >= 12 and "not run" not in text, text
print("gpu_check: all as expected")
