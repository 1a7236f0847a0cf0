"""Tests attentive-bench as users run it: attentive_bench_test.py PROGRAM"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import processor

PROGRAM = sys.argv[1]
ONE_CASE = ["--suite", "tiny", "--case", "d64 h4 T=4,", "--threads", "1", "--budget", "0.01"]


def run(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, env={**os.environ, **environment})


def report(folder, **environment):
    """The standard output and the JSON of a run of one case."""
    path = Path(folder) / "report.json"
    done = run(*ONE_CASE, "--json", str(path), **environment)
    assert done.returncode == 0, done
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def check_report(text, data):
    machine, peaks = data["machine"], data["peaks"]
    assert [row["case"] for row in data["rows"]] == ["d64 h4 T=4, 1 thread"], data["rows"]
    assert machine["cpu"] == processor() and machine["isa"] and machine["capability"] and machine["libtorch"], machine
    assert peaks["threads"] == 1, peaks
    # No core reaches these rates; a loop that the compiler removed exceeds them. AMX computes 1,024 operations in a clock.
    for limit, most in {"fp32_flops": 1e12, "bf16_flops": 1e13, "read_bytes_per_second": 1e12}.items():
        assert 0 < peaks[limit] < most, f"no core does that: {peaks}"
    first, *_ = text.splitlines()
    for part in (machine["cpu"], machine["isa"], f"LibTorch {machine['libtorch']}", "1 threads"):
        assert part in first, f"{part!r} is not in {first!r}"
    for method in ("fp32_method", "bf16_method", "read_method"):
        assert peaks[method] in text, text


with tempfile.TemporaryDirectory() as folder:
    check_report(*report(folder))

    # A CPU without bfloat16 products, or this CPU restricted to the same instructions.
    if platform.machine() == "x86_64":
        text, data = report(folder, ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")
        check_report(text, data)
        assert "avx512" not in data["machine"]["isa"] and "amx" not in data["machine"]["isa"], data["machine"]
        assert data["peaks"]["bf16_method"].startswith("float32's limit; no product of bfloat16 is faster"), data["peaks"]
        assert data["peaks"]["bf16_flops"] == data["peaks"]["fp32_flops"], data["peaks"]
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
    path = Path(folder) / "gpu.json"
    done = run("--suite", "gpu-grid", "gpu-options", "gpu-decode", "--tokens", "24", "--head-dim", "8", "--dtype", "fp32",
               "--threads", "1", "--budget", "0.01", "--json", str(path))
    assert done.returncode == 0, done
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
names = {row["case"] for row in rows}
options = ("window 256", "softcap", "ALiBi", "sinks", "keep mask", "documents")
want = {f"{name} {way} T=24 D8" for name in ("causal", *options) for way in ("fwd", "fwd+bwd")}
assert names == want | {"dropout fwd+bwd T=24 D8", "16/4 heads, 24 keys D8"}, names ^ want
for row in rows:
    timed = [timing["contender"] for timing in row["timings"]]
    assert timed[0].startswith("attentive") and "composed" in timed, row
    assert 0 < row["check"]["error"] <= row["check"]["allowed"], row
    if row["case"].startswith("causal"):
        refused = {refusal["contender"]: refusal["why"] for refusal in row["refusals"]}
        assert set(refused) == {"torch efficient", "torch cuDNN"} and "torch flash" in timed, row

done = run("--device", "cuda", "--suite", "tiny")
assert done.returncode == 2 and ("no CUDA device" in done.stderr or "the suite tiny is for the CPU" in done.stderr), done
done = run("--suite", "tiny", "--case", "no such case", "--budget", "0.01")
assert done.returncode == 2 and "no case was chosen" in done.stderr, done
assert run("--suite", "no_such_suite").returncode == 2
print("attentive-bench: all as expected")
