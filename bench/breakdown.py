#!/usr/bin/env python3
"""Says where the time of one attention call goes, by sampling attention_loop with `perf record`.

    bench/breakdown.py build/release/bench/attention_loop --json bench/results/breakdown.json
    bench/breakdown.py build/release/bench/attention_loop --case "bf16 T=4k"

Start-up is not sampled. Every sample is put into one part by the function it fell into; what is in no named part is
"other", so the named parts never claim more than they have. Needs `perf` (Debian: linux-perf).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import processor

START_UP_MS = 4000  # loading LibTorch, drawing the inputs, first calls
SECONDS = 5

# First match wins.
PARTS = (
    ("projections by the library", r"mkl_|mkldnn|dnnl"),
    ("products", r"gemm|multiply<|multiply_b|multiply_pairs|amx|brgemm"),
    ("projections by the library", r"\[JIT\]"),
    ("softmax", r"softmax_rows|prepare|weigh|peak_of"),
    ("gradient rows", r"gradient_"),
    ("dropout bits", r"dropout_bits|philox|add_block"),
    ("few-row loops", r"few_|score_|output_rows|output_block|linear_block|FewQueries|forward_few|ForwardFew"),
    ("packing", r"transpose|pack_|copy_rows|widen_rows|finite|convert|from_bf16|to_bf16|memmove|memset|\bdot"),
    ("output", r"store_scaled|finish_row|cpu::.*::scale$|::add$"),
    ("loops and control", r"(Forward|Backward)<|kernels::cpu|attentive::"),
    ("waiting for the other thread", r"gomp|libgomp"),
    ("system", r"\[k\]"),
    ("LibTorch and allocation", r"c10|at::|torch|alloc|free|libc10|libtorch"),
)

CASES = {
    "forward fp32 T=256": ["--tokens", "256"], "forward fp32 T=1k": ["--tokens", "1024"],
    "forward fp32 T=4k": ["--tokens", "4096"],
    "forward bf16 T=256": ["--tokens", "256", "--dtype", "bf16"],
    "forward bf16 T=1k": ["--tokens", "1024", "--dtype", "bf16"],
    "forward bf16 T=4k": ["--tokens", "4096", "--dtype", "bf16"],
    "full fp32 T=1k": ["--tokens", "1024", "--full"],
    "full bf16 T=1k": ["--tokens", "1024", "--full", "--dtype", "bf16"],
    "full fp32 T=4k": ["--tokens", "4096", "--full"],
    "full bf16 T=4k": ["--tokens", "4096", "--full", "--dtype", "bf16"],
    "D128 fp32 T=1k": ["--tokens", "1024", "--heads", "8", "--head-dim", "128"],
    "D128 bf16 T=1k": ["--tokens", "1024", "--heads", "8", "--head-dim", "128", "--dtype", "bf16"],
    "D128 fp32 T=4k": ["--tokens", "4096", "--heads", "8", "--head-dim", "128"],
    "D128 bf16 T=4k": ["--tokens", "4096", "--heads", "8", "--head-dim", "128", "--dtype", "bf16"],
    "forward+backward fp32 T=256": ["--tokens", "256", "--backward"],
    "forward+backward fp32 T=1k": ["--tokens", "1024", "--backward"],
    "forward+backward fp32 T=4k": ["--tokens", "4096", "--backward"],
    "forward+backward bf16 T=1k": ["--tokens", "1024", "--backward", "--dtype", "bf16"],
    "forward+backward bf16 T=4k": ["--tokens", "4096", "--backward", "--dtype", "bf16"],
    "dropout 0.1 forward+backward fp32 T=1k": ["--tokens", "1024", "--backward", "--dropout", "0.1"],
    "dropout 0.1 forward+backward fp32 T=4k": ["--tokens", "4096", "--backward", "--dropout", "0.1"],
    "window 256 fp32 T=4k": ["--tokens", "4096", "--window", "256"],
    "window 256 bf16 T=4k": ["--tokens", "4096", "--window", "256", "--dtype", "bf16"],
    "softcap 30 fp32 T=4k": ["--tokens", "4096", "--softcap", "30"],
    "ALiBi fp32 T=4k": ["--tokens", "4096", "--alibi"],
    "softcap 30 bf16 T=4k": ["--tokens", "4096", "--softcap", "30", "--dtype", "bf16"],
    "ALiBi bf16 T=4k": ["--tokens", "4096", "--alibi", "--dtype", "bf16"],
    "forward+backward bf16 T=256": ["--tokens", "256", "--backward", "--dtype", "bf16"],
    "module forward fp32": ["--module", "--batch", "8"],
    "module forward bf16": ["--module", "--batch", "8", "--dtype", "bf16"],
    "module training step fp32": ["--module", "--batch", "8", "--backward"],
    "module training step, dropout 0.1, fp32": ["--module", "--batch", "8", "--backward", "--dropout", "0.1"],
    "module training step, dropout 0.1, bf16": ["--module", "--batch", "8", "--backward", "--dropout", "0.1", "--dtype", "bf16"],
    "tiny d64 h4 T=4, 1 thread": ["--module", "--tokens", "4", "--heads", "4", "--head-dim", "16", "--threads", "1"],
    "tiny d64 h4 T=16, 1 thread": ["--module", "--tokens", "16", "--heads", "4", "--head-dim", "16", "--threads", "1"],
    "decode bf16 32k keys": ["--tokens", "1", "--keys", "32768", "--heads", "32", "--kv-heads", "8", "--head-dim", "128",
                             "--dtype", "bf16"],
    "decode fp32 32k keys": ["--tokens", "1", "--keys", "32768", "--heads", "32", "--kv-heads", "8", "--head-dim", "128"],
}


def part_of(library, symbol):
    for name, pattern in PARTS:
        if re.search(pattern, f"{library} {symbol}"):
            return name
    return "other"


def sample(program, arguments):
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        seconds = str(START_UP_MS / 1000 + SECONDS)
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-D", str(START_UP_MS), "-o", str(data), "--",
                   program, *arguments, "--seconds", seconds]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"breakdown: {' '.join(command)} failed:\n{done.stderr}")
        report = subprocess.run(["perf", "report", "-i", str(data), "--stdio", "--sort", "dso,symbol", "-F",
                                 "sample,dso,symbol"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    samples = {}
    for line in report.stdout.splitlines():
        match = re.match(r"\s*(\d+)\s+(\S+(?: tid \d+)?)\s+(.*)", line)
        if match:
            name = part_of(match[2], match[3].strip())
            samples[name] = samples.get(name, 0) + int(match[1])
    if not samples:
        sys.exit(f"breakdown: no samples of {' '.join(arguments)}")
    return samples, float(re.search(r"([\d.]+) s a call", done.stdout)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="attention_loop of a release build")
    parser.add_argument("--case", nargs="+", default=[""], help="only the cases whose name contains one of these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="writes every share to this file")
    arguments = parser.parse_args()
    print(processor(), flush=True)
    result = []
    for name, flags in CASES.items():
        if not any(part in name for part in arguments.case):
            continue
        if "--threads" not in flags:
            flags = [*flags, "--threads", str(arguments.threads)]
        samples, seconds = sample(arguments.program, flags)
        total = sum(samples.values())
        shares = {part: count / total for part, count in sorted(samples.items(), key=lambda item: -item[1])}
        result.append({"case": name, "threads": int(flags[flags.index("--threads") + 1]), "seconds_a_call": seconds, "samples": total,
                       "named": 1 - shares.get("other", 0), "shares": shares})
        print(f"{name}: {seconds * 1e3:.3f} ms; "
              + ", ".join(f"{part} {100 * share:.0f} %" for part, share in shares.items() if share >= 0.005), flush=True)
    if not result:
        sys.exit(f"breakdown: no case contains {' or '.join(map(repr, arguments.case))}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"cpu": processor(), "rows": result}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
