"""Tests attentive-bench as users run it: attentive_bench_test.py PROGRAM"""

import csv
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import processor

PROGRAM = sys.argv[1]
ONE_CASE = ["--suite", "tiny", "--case", "d64 h4 T=4,", "--threads", "1", "--budget", "0.01"]


def run(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, env={**os.environ, **environment})


def read(path):
    """The comments and the rows of a file of figures."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("# ")], list(csv.DictReader(line for line in lines if not line.startswith("#")))


def report(folder, **environment):
    """The standard output of a run of one case, and its file: the machine, its limits with their methods, the rows."""
    path = Path(folder) / "report.csv"
    done = run(*ONE_CASE, "--csv", str(path), **environment)
    assert done.returncode == 0, done
    (machine, *limits), rows = read(path)
    found = [re.fullmatch(r"# (fp32|bf16|read): (\S+) (?:flop|bytes)/s, (.+)", limit).groups() for limit in limits]
    return done.stdout, machine.removeprefix("# "), {name: (float(rate), method) for name, rate, method in found}, rows


def check_report(text, machine, peaks, rows):
    assert {row["case"] for row in rows} == {"d64 h4 T=4, 1 thread"}, rows
    ours, *others = rows
    assert ours["way"] == "attentive" and float(ours["seconds"]) > 0 and not ours["ratio"], rows
    assert others and all(0 < float(row["p10"]) <= float(row["ratio"]) <= float(row["p90"]) for row in others), rows
    assert re.fullmatch(rf"{re.escape(processor())} \(\S.*; LibTorch uses \S+\), \d+ cores, 1 threads; LibTorch \S+, .+", machine), machine
    assert text.splitlines()[0] == machine, text
    # No core reaches these rates; a loop that the compiler removed exceeds them. AMX computes 1,024 operations in a clock.
    for limit, most in {"fp32": 1e12, "bf16": 1e13, "read": 1e12}.items():
        rate, method = peaks[limit]
        assert 0 < rate < most, f"no core does that: {peaks}"
        assert method in text, text


with tempfile.TemporaryDirectory() as folder:
    check_report(*report(folder))

    # A CPU without bfloat16 products, or this CPU restricted to the same instructions.
    if platform.machine() == "x86_64":
        text, machine, peaks, rows = report(folder, ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")
        check_report(text, machine, peaks, rows)
        assert "avx512" not in machine and "amx" not in machine, machine
        assert peaks["bf16"][1].startswith("float32's limit; no product of bfloat16 is faster"), peaks
        assert peaks["bf16"][0] == peaks["fp32"][0], peaks
    else:
        print(f"SKIPPED: as on a CPU without bfloat16: {platform.machine()} is not limited by these variables")

# Each step is announced before it begins.
with subprocess.Popen([PROGRAM, *ONE_CASE], text=True, stdout=subprocess.PIPE) as program:
    assert processor() in program.stdout.readline()
    assert "limits" in program.stdout.readline()
    assert program.poll() is None, "the first lines came with the last ones"
    program.kill()

# The GPU suites, run on the CPU: every result is checked, and a missing kernel is reported, not timed.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "gpu.csv"
    done = run("--suite", "gpu-grid", "gpu-options", "gpu-decode", "--tokens", "24", "--head-dim", "8", "--dtype", "fp32",
               "--threads", "1", "--budget", "0.01", "--csv", str(path))
    assert done.returncode == 0, done
    rows = read(path)[1]
names = {row["case"] for row in rows}
options = ("window 256", "softcap", "ALiBi", "sinks", "keep mask", "documents")
want = {f"{name} {way} T=24 D8" for name in ("causal", *options) for way in ("fwd", "fwd+bwd")}
assert names == want | {"dropout fwd+bwd T=24 D8", "16/4 heads, 24 keys D8"}, names ^ want
for name in names:
    timed = [row for row in rows if row["case"] == name and row["seconds"]]
    assert timed[0]["way"].startswith("attentive") and "composed" in [row["way"] for row in timed], timed
    error, allowed = re.match(r"error (\S+) of (\S+) against ", timed[0]["note"]).groups()
    assert 0 < float(error) <= float(allowed), timed
    if name.startswith("causal"):
        refused = {row["way"] for row in rows if row["case"] == name and row["note"].startswith("not run: ")}
        assert refused == {"torch efficient", "torch cuDNN"} and "torch flash" in [row["way"] for row in timed], rows

done = run("--device", "cuda", "--suite", "tiny")
assert done.returncode == 2 and ("no CUDA device" in done.stderr or "the suite tiny is for the CPU" in done.stderr), done
done = run("--suite", "tiny", "--case", "no such case", "--budget", "0.01")
assert done.returncode == 2 and "no case was chosen" in done.stderr, done
assert run("--suite", "no_such_suite").returncode == 2
print("attentive-bench: all as expected")
