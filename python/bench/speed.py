"""Times programs of PyTorch with and without this package, on the CPU.

    python python/bench/speed.py [--rounds 9] [--threads 2] [--json FILE] [WORD ...]

Each row first compares the results of the two ways, then times them in turn, and prints the median of the ratios of
neighbouring runs, with the lowest and the highest one: PyTorch's time divided by the time with the package. Words select the
rows whose names contain one of them. A row of a whole model also prints the share of its time that attention takes, measured by
leaving attention out, the ratio of attention alone, and the ratio that follows from both.
"""

import argparse
import contextlib
import json
import platform
import statistics
import time

import torch
import torch.nn.functional as F

import attentive

ROWS = []


def row(name):
    """Registers a function that returns the parts of a row."""
    def register(make):
        ROWS.append((name, make))
        return make
    return register


class Ways:
    """The two ways of a program: functions without arguments that return tensors."""

    def __init__(self, off, on, tolerance, whole=None):
        self.off = off
        self.on = on
        self.tolerance = tolerance
        self.whole = whole  # for a whole model: (the program without attention, Ways of attention alone)


def accelerated(run, **options):
    """A program with PyTorch's attention on this package's kernel."""
    def with_package():
        with attentive.enabled(**options):
            return run()
    return with_package


def backward_of(run, leaves):
    """A training step: a forward pass, a sum of squares, a backward pass."""
    def step():
        for x in leaves:
            x.grad = None
        y = run()
        y.float().square().mean().backward()
        # In one tensor, since the gradient of queries with a single key is only the rounding of 0.
        return (y.detach(), torch.cat([x.grad.flatten() for x in leaves]))
    return step


def without_gradient(run):
    def forward():
        with torch.no_grad():
            return (run(),)
    return forward


# ---- Single calls

def calls(dtype, heads, kv_heads, tokens, dim, dropout=0.0, masked=False):
    torch.manual_seed(0)
    shape = lambda h: torch.randn(1, h, tokens, dim, dtype=dtype, requires_grad=True)
    q, k, v = shape(heads), shape(kv_heads), shape(kv_heads)
    mask = torch.rand(tokens, tokens).gt(0.1).tril_().logical_or_(torch.eye(tokens, dtype=torch.bool)) if masked else None

    def run():
        torch.manual_seed(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=not masked,
                                              enable_gqa=kv_heads != heads)

    def own():
        torch.manual_seed(1)
        return attentive.attention(q, k, v, causal="none" if masked else "top_left", dropout_p=dropout,
                                   mask=attentive.Mask.keep(mask) if masked else None)
    return run, own, (q, k, v)


def call_rows():
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        tolerance = 1e-4 if dtype is torch.float32 else 5e-2
        for what, settings in (
            ("B1 H12 T1024 D64 causal", dict(heads=12, kv_heads=12, tokens=1024, dim=64)),
            ("B1 H12 T1024 D64 causal, dropout 0.1", dict(heads=12, kv_heads=12, tokens=1024, dim=64, dropout=0.1)),
            ("B1 H32/8 T1024 D64, bool mask", dict(heads=32, kv_heads=8, tokens=1024, dim=64, masked=True)),
            ("B1 H4 T1 D32", dict(heads=4, kv_heads=4, tokens=1, dim=32)),
            ("B1 H4 T16 D32", dict(heads=4, kv_heads=4, tokens=16, dim=32)),
            ("B1 H4 T64 D32", dict(heads=4, kv_heads=4, tokens=64, dim=32)),
        ):
            # Dropout draws other bits with the package, so only the means of such results agree.
            allowed = None if "dropout" in what else tolerance
            for backward in (False, True):
                def make(settings=settings, dtype=dtype, backward=backward, allowed=allowed):
                    run, own, leaves = calls(dtype, **settings)
                    wrap = (lambda f: backward_of(f, leaves)) if backward else without_gradient
                    repeat = max(1, 2048 // settings["tokens"] ** 2) if settings["tokens"] < 256 else 1
                    many = lambda f: (lambda: [f() for _ in range(repeat)][-1])
                    return {"SDPA": Ways(many(wrap(run)), accelerated(many(wrap(run))), allowed),
                            "attentive.attention": Ways(many(wrap(run)), many(wrap(own)), allowed)}
                ROWS.append((f"call, {name}, {what}, {'forward and backward' if backward else 'forward'}", make))


call_rows()


# ---- A class of chapter 3

class MultiHead(torch.nn.Module):
    """Causal attention with four projections, its scores and weights computed one after the other."""

    def __init__(self, width, heads, tokens, dropout, attend):
        super().__init__()
        self.heads = heads
        self.project = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = torch.nn.Linear(width, width)
        self.dropout = dropout
        self.attend = attend
        self.register_buffer("hidden", torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), diagonal=1))

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.project)
        y = self.attend(self, q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


def step_by_step(module, q, k, v):
    scores = q @ k.transpose(2, 3)
    scores = scores.masked_fill(module.hidden[:q.shape[2], :q.shape[2]], -torch.inf)
    weights = torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1)
    return F.dropout(weights, module.dropout, module.training) @ v


def in_one_call(module, q, k, v):
    return attentive.attention(q, k, v, causal="bottom_right", dropout_p=module.dropout if module.training else 0.0)


@row("chapter 3 class, training step, dropout 0.1, B8 T1024 d768 H12")
def chapter_3():
    def training_step(attend, compiled=False):
        torch.manual_seed(0)
        module = MultiHead(768, 12, 1024, 0.1, attend)
        x = torch.randn(8, 1024, 768)
        forward = torch.compile(module) if compiled else module

        def step():
            module.zero_grad()
            y = forward(x)
            y.square().mean().backward()
            return (y.detach(),)
        return step
    ours = training_step(in_one_call)
    return {"against PyTorch": Ways(training_step(step_by_step), ours, None),
            "against torch.compile": Ways(training_step(step_by_step, compiled=True), ours, None)}


# ---- Models of transformers, with random weights

def without_attention(query, key, value, *arguments, **options):
    return value if value.shape == query.shape else value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)


@contextlib.contextmanager
def attention_left_out():
    kept = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = without_attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = kept


def model_ways(model, inputs, training, tolerance, attention):
    leaf = next(model.parameters())

    def step():
        model.zero_grad()
        torch.manual_seed(1)
        out = model(**inputs)
        loss = out[0].float().square().mean()
        loss.backward()
        return (out[0].detach(), leaf.grad)

    def forward():
        with torch.no_grad():
            return (model(**inputs)[0],)
    model.train(training)
    run = step if training else forward

    def left_out():
        with attention_left_out():
            return run()
    return {"with enable()": Ways(run, accelerated(run), tolerance, whole=(left_out, attention))}


@row("GPT-2, 12 layers of 768, training step, B1 T1024, dropout 0.1, fp32")
def gpt2():
    from transformers import GPT2Config, GPT2Model
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(attn_implementation="sdpa", use_cache=False))
    run, _, leaves = calls(torch.float32, 12, 12, 1024, 64, dropout=0.1)
    step = backward_of(run, leaves)
    return model_ways(model, {"input_ids": torch.randint(0, 50000, (1, 1024))}, True, None, Ways(step, accelerated(step), None))


def llama(dtype):
    from transformers import LlamaConfig, LlamaModel
    torch.manual_seed(0)
    model = LlamaModel(LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                                   num_key_value_heads=4, attn_implementation="sdpa", use_cache=False)).to(dtype)
    run, _, _ = calls(dtype, 12, 12, 2048, 64)
    forward = without_gradient(run)
    return model_ways(model, {"input_ids": torch.randint(0, 32000, (1, 2048))}, False, 1e-4 if dtype is torch.float32 else 0.2,
                      Ways(forward, accelerated(forward), None))


@row("Llama, 12 layers of 768, prefill T2048, fp32")
def llama_fp32():
    return llama(torch.float32)


@row("Llama, 12 layers of 768, prefill T2048, bf16")
def llama_bf16():
    return llama(torch.bfloat16)


@row("BERT, 12 layers of 768, training step, B4 T512 with padding, dropout 0.1, fp32")
def bert():
    from transformers import BertConfig, BertModel
    torch.manual_seed(0)
    model = BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)
    kept = torch.ones(4, 512, dtype=torch.long)
    for i, length in enumerate((512, 400, 300, 200)):
        kept[i, length:] = 0
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 12, 512, 64, requires_grad=True) for _ in range(3))
    mask = kept.bool()[:, None, None, :].expand(4, 1, 512, 512)
    step = backward_of(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1), (q, k, v))
    return model_ways(model, {"input_ids": torch.randint(0, 30000, (4, 512)), "attention_mask": kept}, True, None,
                      Ways(step, accelerated(step), None))


# ---- Measuring

def seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def check(ways):
    off, on = ways.off(), ways.on()
    for a, b in zip(off, on):
        if not torch.isfinite(b).all():
            raise SystemExit("a result is not finite")
        scale = a.float().abs().max().item()
        if ways.tolerance is None:
            off_size, on_size = a.float().square().mean().sqrt().item(), b.float().square().mean().sqrt().item()
            if abs(off_size - on_size) > 0.15 * off_size:
                raise SystemExit(f"results have the sizes {off_size} and {on_size}")
        elif (a.float() - b.float()).abs().max().item() > ways.tolerance * scale:
            raise SystemExit(f"results differ by {(a.float() - b.float()).abs().max().item():.2g} of {scale:.2g}")


def measure(ways, rounds):
    check(ways)
    ways.off(), ways.on()
    pairs = []
    for n in range(rounds):
        if n % 2:
            on = seconds(ways.on)
            off = seconds(ways.off)
        else:
            off = seconds(ways.off)
            on = seconds(ways.on)
        pairs.append((off, on))
    ratios = sorted(off / on for off, on in pairs)
    found = {"off_ms": statistics.median(p[0] for p in pairs) * 1e3, "on_ms": statistics.median(p[1] for p in pairs) * 1e3,
             "ratio": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1]}
    if ways.whole:
        left_out, attention = ways.whole
        left_out()
        rest = statistics.median(seconds(left_out) for _ in range(rounds))
        alone = measure(attention, rounds)["ratio"]
        share = max(0.0, 1.0 - rest * 1e3 / found["off_ms"])
        found.update(share=share, attention_ratio=alone, possible=1.0 / (1.0 - share + share / alone))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {given.threads} threads, {platform.processor() or platform.machine()}, "
          f"{torch.backends.cpu.get_cpu_capability()}")
    results = []
    for name, make in ROWS:
        if given.words and not any(word in name for word in given.words):
            continue
        for way, ways in make().items():
            found = measure(ways, given.rounds)
            results.append({"row": name, "way": way, **found})
            text = (f"{found['ratio']:6.2f}  [{found['lowest']:.2f} … {found['highest']:.2f}]  {found['off_ms']:9.3f} ms off  "
                    f"{name}; {way}")
            if "share" in found:
                text += (f"; attention's share {found['share']:.2f}, its ratio {found['attention_ratio']:.2f}, "
                         f"so at most {found['possible']:.2f}")
            print(text, flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "threads": given.threads, "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
