#!/usr/bin/env python3
"""Says where the time of one attention call goes, by sampling attention_loop with `perf record`.

    bench/breakdown.py build/release/bench/attention_loop
    bench/breakdown.py build/release/bench/attention_loop --case "bf16 T=4k" prompt
    bench/breakdown.py build/release/bench/gpt_step_bench --text tinyshakespeare.txt

With --text, the program is gpt_step_bench and the cases are training steps. Start-up is not sampled. Every sample is put
into one part by the function it fell into, for a prompt also by the functions that called it; what is in no named part is
"other", so the named parts never claim more than they have. Needs `perf` (Debian: linux-perf).
"""

import argparse
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

# For a Llama's prompt, the text of a sample is its function, then those that called it.
PROMPT_PARTS = (
    ("waiting for the other thread", r"^\S*libgomp"),
    ("page faults and system", r"^\[k\]"),
    ("attention", r"attention/|attention::|cpu::(forward|Forward)|Forward<|softmax_rows|NativeCpu"),
    ("packing of weights", r"^[^\n]*(pack_transposed|transpose)"),
    ("activation and gate", r"^[^\n]*(silu|multiply_by\b|gelu)"),
    ("products: gate and up", r"multiply_gated"),
    ("products: q, k, v, output, down", r"many_linear|multiply_panel|cpu::multiply<|multiply_block|multiply_by_blocks"),
    ("products by the library", r"mkl_|mkldnn|dnnl|\[JIT\]|perf-\d+\.map"),
    ("logits of one token", r"few_linear|few_rows|linear_block"),
    ("norms", r"rms_norm|mean_kernel|rsqrt"),
    ("rotation", r"rotate|rotated|Rotary"),
    ("keys and values to the cache", r"KVCache"),
    ("sums of residuals", r"add_kernel|binary_kernel|add_clamp"),
    ("copies", r"copy_kernel|memmove|memset|memcpy"),
    ("LibTorch and allocation", r"c10|at::|torch|alloc|free|libc10|libtorch"),
)

# For a training step.
STEP_PARTS = (
    ("waiting for the other thread", r"gomp"),
    ("products by the library", r"mkl_blas\w*kernel"),
    ("packing by the library", r"mkl_"),
    ("GELU", r"gelu"),
    ("dropout of features", r"dropout_bits|scale_survivors|survivors"),
    ("attention", r"attentive::kernels::cpu"),
    ("norms", r"LayerNorm|Rowwise|layer_norm|cascade_sum|[Ss]um"),
    ("optimizer", r"adam"),
    ("norm of gradients", r"[Nn]orm"),
    ("loss", r"softmax|nll|cross_entropy"),
    ("embedding", r"embedding|index"),
    ("sums and copies of tensors", r"VectorizedLoop|loop_2d|callback_fn|memmove|memset|memcpy|copy_kernel"),
    ("page faults and system", r"\[k\]"),
    ("autograd, dispatch and allocation", r"c10|at::|torch|libtorch|alloc|free|libc|ld-linux|libm\.|libstdc|attentive::|gpt_step_bench"),
)

STEPS = {
    "4 x 128, T 64, batch 12": ["small"],
    "6 x 384, T 256, batch 16, dropout 0.2": ["large", "--batch", "16"],
}

CASES = {
    "prompt of 512, Llama of 150 M, fp32": ["--prompt", "--tokens", "512"],
    "prompt of 512, Llama of 150 M, bf16": ["--prompt", "--tokens", "512", "--dtype", "bf16"],
    "forward fp32 T=128": ["--tokens", "128"], "forward fp32 T=256": ["--tokens", "256"],
    "forward fp32 T=512": ["--tokens", "512"], "forward fp32 T=1k": ["--tokens", "1024"],
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
    "module training step of T=256, dropout 0.1, fp32": ["--module", "--batch", "8", "--tokens", "256", "--backward", "--dropout",
                                                         "0.1"],
    "module training step of T=256, dropout 0.1, bf16": ["--module", "--batch", "8", "--tokens", "256", "--backward", "--dropout",
                                                         "0.1", "--dtype", "bf16"],
    "tiny d64 h4 T=4, 1 thread": ["--module", "--tokens", "4", "--heads", "4", "--head-dim", "16", "--threads", "1"],
    "tiny d64 h4 T=16, 1 thread": ["--module", "--tokens", "16", "--heads", "4", "--head-dim", "16", "--threads", "1"],
    "decode bf16 32k keys": ["--tokens", "1", "--keys", "32768", "--heads", "32", "--kv-heads", "8", "--head-dim", "128",
                             "--dtype", "bf16"],
    "decode fp32 32k keys": ["--tokens", "1", "--keys", "32768", "--heads", "32", "--kv-heads", "8", "--head-dim", "128"],
    "decode fp32 8k keys": ["--tokens", "1", "--keys", "8192", "--heads", "32", "--kv-heads", "8", "--head-dim", "128"],
}


def part_of(text, parts):
    for name, pattern in parts:
        if re.search(pattern, text):
            return name
    return "other"


def recorded(data, command, *options, text=None):
    """Records one run, to whose standard input it writes a text, and returns what the program printed."""
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-D", str(START_UP_MS), *options, "-o", str(data), "--", *command]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"breakdown: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def functions(data, parts):
    """The parts of the samples by the function they fell into, with their numbers."""
    for line in output_of("perf", "report", "-i", str(data), "--stdio", "--sort", "dso,symbol", "-F", "sample,dso,symbol").splitlines():
        match = re.match(r"\s*(\d+)\s+(\S+(?: tid \d+)?)\s+(.*)", line)
        if match:
            yield part_of(f"{match[2]} {match[3].strip()}", parts), int(match[1])


def stacks(data):
    """The parts of the samples by their functions and callers."""
    for sample in output_of("perf", "script", "-i", str(data), "-F", "ip,sym,dso", "--no-inline").split("\n\n"):
        frames = re.findall(r"^\s*[0-9a-f]+ (.*) \(([^()]*)\)$", sample, re.MULTILINE)
        if frames:
            names = [f"{'[k]' if 'kernel' in library else Path(library).name} {symbol}" for symbol, library in frames]
            yield part_of("\n".join(names), PROMPT_PARTS), 1


def sum_of(found):
    samples = {}
    for name, count in found:
        samples[name] = samples.get(name, 0) + count
    if not samples:
        sys.exit("breakdown: no samples")
    return samples


def sample(program, arguments):
    """The samples of each part, and the seconds of a call."""
    command = [program, *arguments, "--seconds", str(START_UP_MS / 1000 + SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        if "--prompt" in arguments:
            said = recorded(data, command, "-F", "499", "--call-graph", "dwarf,16384")
            samples = sum_of(stacks(data))
        else:
            said = recorded(data, command)
            samples = sum_of(functions(data, PARTS))
    return samples, float(re.search(r"([\d.]+) s a call", said)[1])


def sample_steps(program, text, arguments, threads):
    """The samples of each part of a training step, and the seconds of a step."""
    size, *options = arguments
    command = [program, text, size, "1", str(threads), *options]
    once = subprocess.run(command, input="3\n", stdout=subprocess.PIPE, text=True, check=True).stdout
    steps = int((START_UP_MS / 1000 + SECONDS) / float(once.split()[0])) + 1
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        said = recorded(data, command, text=f"{steps}\n")
        return sum_of(functions(data, STEP_PARTS)), float(said.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="attention_loop or gpt_step_bench of a release build")
    parser.add_argument("--text", help="a text to learn: breaks down training steps of gpt_step_bench")
    parser.add_argument("--case", nargs="+", default=[""], help="only the cases whose name contains one of these")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(processor(), flush=True)
    found = False

    def add(name, samples, seconds):
        total = sum(samples.values())
        shares = {part: count / total for part, count in sorted(samples.items(), key=lambda item: -item[1])}
        print(f"{name}: {seconds * 1e3:.3f} ms; "
              + ", ".join(f"{part} {100 * share:.0f} %" for part, share in shares.items() if share >= 0.005), flush=True)

    for name, flags in (STEPS if arguments.text else CASES).items():
        if not any(part in name for part in arguments.case):
            continue
        found = True
        if arguments.text:
            for threads in sorted({1, arguments.threads}):
                add(f"{name}, {threads} thread{'s' * (threads > 1)}",
                    *sample_steps(arguments.program, arguments.text, flags, threads))
            continue
        if "--threads" not in flags:
            flags = [*flags, "--threads", str(arguments.threads)]
        add(name, *sample(arguments.program, flags))
    if not found:
        sys.exit(f"breakdown: no case contains {' or '.join(map(repr, arguments.case))}")


if __name__ == "__main__":
    main()
