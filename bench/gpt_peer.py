#!/usr/bin/env python3
"""A plain PyTorch program that trains the model of attentive-train: the peer of its figures.

    bench/gpt_peer.py --text tinyshakespeare.txt --seed 1337

The same model, first weights, batches, schedule and optimiser as `attentive-train --preset shakespeare-small`:
the two runs differ by rounding alone. Prints the loss over the whole validation text and the time of a step.

    bench/gpt_peer.py --text tinyshakespeare.txt --against build/release/bench/gpt_step_bench

takes turns with this package's training loop: a few steps of one, a few of the other, in one run. First the losses
of both must agree; `--curve 300` compares so many of them instead. `--compile` compiles the peer by torch.compile.
"""

import argparse
import math
import statistics
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional as F

from machine import describe

PRESETS = {
    "shakespeare-small": dict(
        layers=4, heads=4, width=128, block=64, batch=12, dropout=0.0, steps=2000, warmup=100, lr=1e-3, min_lr=1e-4),
    "shakespeare-large": dict(
        layers=6, heads=6, width=384, block=256, batch=64, dropout=0.2, steps=5000, warmup=100, lr=1e-3, min_lr=1e-4),
}


class LayerNorm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.scale, self.shift, 1e-5)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, bias, qkv_bias):
        super().__init__()
        self.W_query = nn.Linear(width, width, bias=qkv_bias)
        self.W_key = nn.Linear(width, width, bias=qkv_bias)
        self.W_value = nn.Linear(width, width, bias=qkv_bias)
        self.out_proj = nn.Linear(width, width, bias=bias)
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        def split(y):
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

        y = F.scaled_dot_product_attention(
            split(self.W_query(x)), split(self.W_key(x)), split(self.W_value(x)),
            dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width, bias=bias), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width, bias=bias))

    def forward(self, x):
        return self.layers(x)


class Block(nn.Module):
    def __init__(self, width, heads, dropout, bias, qkv_bias):
        super().__init__()
        self.att = Attention(width, heads, dropout, bias, qkv_bias)
        self.ff = FeedForward(width, bias)
        self.norm1 = LayerNorm(width, bias)
        self.norm2 = LayerNorm(width, bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.att(self.norm1(x)))
        return x + self.drop(self.ff(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, vocab, block, width, heads, layers, dropout=0.0, bias=True, qkv_bias=False, tied=False):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab, width)
        self.pos_emb = nn.Embedding(block, width)
        self.drop = nn.Dropout(dropout)
        self.trf_blocks = nn.ModuleList([Block(width, heads, dropout, bias, qkv_bias) for _ in range(layers)])
        self.final_norm = LayerNorm(width, bias)
        if not tied:
            self.out_head = nn.Linear(width, vocab, bias=False)
        self.layers, self.tied = layers, tied

    def gpt2_init(self):
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                residual = name.endswith(("out_proj.weight", "layers.2.weight"))
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * self.layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids):
        x = self.drop(self.tok_emb(ids) + self.pos_emb.weight[: ids.shape[1]])
        for block in self.trf_blocks:
            x = block(x)
        return F.linear(self.final_norm(x), self.tok_emb.weight if self.tied else self.out_head.weight)

    def loss(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


class Sampler:
    """Draws random blocks by torch.randint with a separate generator."""

    def __init__(self, tokens, block, batch, seed):
        self.windows = tokens.unfold(0, block + 1, 1)
        self.block, self.batch = block, batch
        self.generator = torch.Generator().manual_seed(seed)

    def next(self):
        starts = torch.randint(self.windows.shape[0], (self.batch,), generator=self.generator)
        rows = self.windows[starts]
        return rows[:, :-1], rows[:, 1:]


def learning_rate(step, p):
    if step < p["warmup"]:
        return p["lr"] * (step + 1) / (p["warmup"] + 1)
    if step >= p["steps"]:
        return p["min_lr"]
    progress = (step - p["warmup"]) / (p["steps"] - p["warmup"])
    return p["min_lr"] + (p["lr"] - p["min_lr"]) * 0.5 * (1 + math.cos(math.pi * progress))


@torch.no_grad()
def evaluate(model, tokens, block, batch):
    """Mean loss over the whole text in blocks without overlap, the last one shorter."""
    model.eval()
    total, at, targets = 0.0, 0, len(tokens) - 1
    while at < targets:
        width = min(block, targets - at)
        rows = min(batch, (targets - at) // width)
        x = tokens[at : at + rows * width].view(rows, width)
        y = tokens[at + 1 : at + 1 + rows * width].view(rows, width)
        total += model.loss(x, y).item() * rows * width
        at += rows * width
    model.train()
    return total / targets


class Run:
    """One training run, a step at a time, so that a benchmark can take turns with another program."""

    def __init__(self, text, preset, seed, device="cpu", autocast=False, batch=None, compiled=False):
        p = self.p = PRESETS[preset] | ({"batch": batch} if batch else {})
        self.device, self.autocast = device, autocast
        characters = sorted(set(text))
        ids = {c: i for i, c in enumerate(characters)}
        tokens = torch.tensor([ids[c] for c in text])
        cut = int(0.9 * len(tokens))
        self.training, self.validation = tokens[:cut], tokens[cut:]
        torch.manual_seed(seed)
        self.model = GPT(len(characters), p["block"], p["width"], p["heads"], p["layers"], p["dropout"], bias=False,
                         tied=True)
        self.model.gpt2_init()
        self.model.to(device)
        self.loss_of = torch.compile(self.model.loss) if compiled else self.model.loss
        self.sampler = Sampler(self.training, p["block"], p["batch"], seed)
        decayed = [q for q in self.model.parameters() if q.dim() >= 2]
        plain = [q for q in self.model.parameters() if q.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [dict(params=decayed, weight_decay=0.1), dict(params=plain, weight_decay=0.0)], lr=p["lr"],
            betas=(0.9, 0.99), fused=True)
        self.done = 0

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.done, self.p)
        x, y = self.sampler.next()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = self.loss_of(x.to(self.device), y.to(self.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        return loss.item()

    def validate(self):
        return evaluate(self.model, self.validation.to(self.device), self.p["block"], self.p["batch"])


def timed(run, steps):
    """Median seconds a step, mean processor seconds a step (all threads), and the last loss."""
    times = []
    processor = time.process_time()
    for _ in range(steps):
        start = time.perf_counter()
        loss = run.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times), (time.process_time() - processor) / steps, loss


def compare_curves(attentive_steps, run, steps):
    """Prints the largest difference between the losses of both programs, and ends with status 1 unless four digits are equal."""
    largest = 0.0
    for i in range(steps):
        ours, peer = attentive_steps(1)[2], run.step()
        largest = max(largest, abs(ours - peer))
    print(f"{steps} steps: last losses {ours:.6f} and {peer:.6f}, largest difference {largest:.1e}")
    raise SystemExit(int(largest >= 5e-4))  # losses are between 1 and 10


def take_turns(args, run):
    size = args.preset.removeprefix("shakespeare-")
    flags = ["--device", args.device, *(["--autocast"] if args.autocast else []),
             *(["--batch", str(args.batch)] if args.batch else [])]
    program = subprocess.Popen([args.against, args.text, size, str(args.seed), str(args.threads), *flags],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def attentive_steps(steps):
        print(steps, file=program.stdin, flush=True)
        return tuple(float(x) for x in program.stdout.readline().split())

    if args.curve:
        compare_curves(attentive_steps, run, args.curve)
    for i in range(args.burst):  # the same model, batches and optimiser: the same losses, up to rounding
        a, b = attentive_steps(1)[2], timed(run, 1)[2]
        if run.p["dropout"] == 0 and abs(a - b) > (2e-2 if args.autocast else 1e-3):
            raise SystemExit(f"step {i + 1}: loss {a} against {b}")
    pairs = []
    for turn in range(args.turns):
        pairs.append((attentive_steps(args.burst), timed(run, args.burst)))
        time.sleep(0.02)  # lets the other program's idle threads go to sleep
        if args.verbose:
            print(f"turn {turn + 1:3} ours {1e3 * pairs[-1][0][0]:8.2f} ms peer {1e3 * pairs[-1][1][0]:8.2f} ms",
                  flush=True)
    program.stdin.close()
    # On a shared machine, processor time is more reliable than wall time.
    for i, clock in enumerate(["wall", "processor"]):
        a, b = (statistics.median(pair[side][i] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(x[i] / y[i] for x, y in pairs)
        where = "" if args.device == "cpu" else f", {torch.cuda.get_device_name()}"
        how = (", autocast bfloat16" if args.autocast else "") + (", peer compiled" if args.compile else "")
        print(f"{args.preset}, batch {run.p['batch']}, {args.threads} threads{where}{how}, {clock} time a step, medians of {args.turns} turns of "
              f"{args.burst} steps: ours {1e3 * a:.2f} ms, peer {1e3 * b:.2f} ms, ratio {ratio:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="a text file; its first 90 %% are for training")
    parser.add_argument("--preset", default="shakespeare-small", choices=PRESETS)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--steps", type=int, help="stop earlier; the schedule stays the preset's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--autocast", action="store_true", help="to bfloat16")
    parser.add_argument("--batch", type=int, help="rows of a step; default: the preset's")
    parser.add_argument("--compile", action="store_true", help="torch.compile for the loss of the peer")
    parser.add_argument("--curve", type=int, help="with --against: compare the losses of so many steps")
    parser.add_argument("--against", help="gpt_step_bench: compare the time of a step")
    parser.add_argument("--verbose", action="store_true", help="print every turn")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--burst", type=int, default=10, help="steps a turn")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(", ".join(f"{name} {value}" for name, value in describe(torch, args.threads).items()), flush=True)
    with open(args.text, encoding="utf-8", newline="") as file:
        run = Run(file.read(), args.preset, args.seed, args.device, args.autocast, args.batch, args.compile)
    if args.against:
        return take_turns(args, run)
    steps = args.steps or run.p["steps"]
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = run.step()
        times.append(time.perf_counter() - start)
        if run.done % 250 == 0:
            print(f"step {run.done} loss {loss:.4f} median {1e3 * sorted(times)[len(times) // 2]:.2f} ms", flush=True)
    print(f"seed {args.seed} steps {steps} validation {run.validate():.4f} "
          f"median step {1e3 * sorted(times)[len(times) // 2]:.2f} ms")


if __name__ == "__main__":
    main()
