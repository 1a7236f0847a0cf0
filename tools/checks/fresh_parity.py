"""Writes fresh random parity cases from this PyTorch, runs attentive-parity on them, and provokes its failures.

    python tools/checks/fresh_parity.py --parity build/dev/apps/attentive-parity [--count 5] [--seed N] [--keep FOLDER]

The committed cases could in principle have been fitted; these cannot: sizes, weights, inputs, masks and dtypes are drawn
anew in every run (the seed is printed, so that a failure can be repeated). Then a number is flipped, a name misspelt, a
tensor removed and a file cut off, and the executable has to say so; the cases run as one bundle as well. Needs PyTorch
only. Exit status 0 if everything came out as it should.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "generators"))
import notebook_modules as notebook  # noqa: E402
from attentive_case import SDPA, dropout_path, save_safetensors, write_case  # noqa: E402
from case_support import normal, tensors_of, write_bundle  # noqa: E402
from make_torch_cases import layer_sample, mha_sample, sdpa_sample  # noqa: E402


# Float16 is left out, because some CPUs that PyTorch supports do not implement all of its products.
DTYPES = (torch.float32,) * 4 + (torch.float64, torch.bfloat16)


# --- Fresh cases --------------------------------------------------------------------------------------------------


class Draw:
    """Draws random sizes and values for one case."""

    def __init__(self, rng):
        self.rng = rng
        self.dtype = rng.choice(DTYPES)
        self.seed = rng.randrange(1, 2**31)
        self.batch, self.tokens, self.keys = rng.randint(1, 4), rng.randint(1, 40), rng.randint(1, 40)
        self.heads, self.head_dim = rng.randint(1, 6), rng.randint(1, 24)
        self.d_in = rng.randint(1, 48)
        self._next = self.seed

    def tensor(self, *shape):
        self._next += 1
        return normal(self._next, *shape, dtype=self.dtype)

    def mask(self, *shape):
        """A mask of visible keys, as bool, integer or 0/1 numbers; the first key is always visible."""
        self._next += 1
        keep = normal(self._next, *shape) > -0.5
        keep[..., 0] = True
        return keep.to(self.rng.choice((torch.bool, torch.int64, torch.float32)))


def single_head(kind, names):
    def case(draw):
        options = dict(zip(names, (draw.d_in, draw.head_dim)))
        if kind is notebook.SelfAttention_v2:
            options["qkv_bias"] = draw.rng.random() < 0.5
        shape = (draw.batch, draw.tokens, draw.d_in) if draw.rng.random() < 0.5 else (draw.tokens, draw.d_in)
        # With standard normal inputs, matrices of U[0, 1) or N(0, 1) give scores in the hundreds, whose
        # rounding exceeds every tolerance in both implementations. Inputs of this size keep scores near one.
        return options, (draw.tensor(*shape) / draw.d_in**0.5 / draw.head_dim**0.25,)

    return kind, case


def chapter_3(kind):
    def case(draw):
        width = draw.head_dim * (draw.heads if kind is notebook.MultiHeadAttention else 1)
        options = {"d_in": draw.d_in, "d_out": width, "context_length": draw.tokens + draw.rng.randint(0, 5)}
        options |= {"dropout": draw.rng.choice((0.0, 0.2, 0.5)), "qkv_bias": draw.rng.random() < 0.5}
        if kind is not notebook.CausalAttention:
            options["num_heads"] = draw.heads
        return options, (draw.tensor(draw.batch, draw.tokens, draw.d_in),)

    return kind, case


def toy_attention(draw):
    lead, wide = draw.rng.choice(((draw.batch,), (draw.batch, draw.heads))), draw.rng.randint(1, 20)
    q, k = draw.tensor(*lead, draw.tokens, draw.head_dim), draw.tensor(*lead, draw.keys, draw.head_dim)
    inputs = (q, k, draw.tensor(*lead, draw.keys, wide))
    if draw.rng.random() < 0.5:
        inputs += (draw.mask(*lead, draw.tokens, draw.keys),)
    return {"dropout": 0.0}, inputs


def toy_multi_head(draw):
    width = draw.heads * draw.head_dim
    inputs = (draw.tensor(draw.batch, draw.tokens, width),)
    if draw.rng.random() < 0.6:
        rows = draw.rng.choice((1, draw.tokens))
        inputs += (draw.mask(draw.batch, 1, rows, draw.tokens),)
    return {"d_model": width, "num_heads": draw.heads, "dropout": draw.rng.choice((0.0, 0.1))}, inputs


def blog_multi_head(draw):
    width = draw.heads * draw.head_dim
    memory = draw.tensor(draw.batch, draw.keys, width)
    inputs = (memory, draw.tensor(*memory.shape), draw.tensor(draw.batch, draw.tokens, width))
    if draw.rng.random() < 0.5:
        inputs += (draw.mask(draw.batch, 1, draw.rng.choice((1, draw.tokens)), draw.keys),)
    return {"embed_size": width, "heads": draw.heads}, inputs


def fused(draw):
    width = draw.heads * draw.head_dim
    return {"embed_dim": width, "num_heads": draw.heads}, (draw.tensor(draw.batch, draw.tokens, width),)


CLASSES = (
    single_head(notebook.SelfAttention_v1, ("d_in", "d_out")),
    single_head(notebook.SelfAttention_v2, ("d_in", "d_out")),
    single_head(notebook.MatrixSelfAttention, ("d_model", "d_k")),
    chapter_3(notebook.CausalAttention),
    chapter_3(notebook.MultiHeadAttentionWrapper),
    chapter_3(notebook.MultiHeadAttention),
    (notebook.ScaledDotProductAttention, toy_attention),
    (notebook.MultiHeadSelfAttention, toy_multi_head),
    (notebook.SharedHeadAttention, blog_multi_head),
    (notebook.FusedSelfAttention, fused),
)


def oracle(dtype, random=False):
    """Half precision is compared with what exact arithmetic makes of the same rounded numbers: PyTorch's own half
    results are off by about the tolerance themselves. A random forward is drawn in its own dtype."""
    return torch.float64 if dtype in (torch.bfloat16, torch.float16) and not random else None


def write_notebook_cases(folder, count, rng):
    for kind, case in CLASSES:
        for index in range(count):
            draw = Draw(rng)
            options, inputs = case(draw)
            torch.manual_seed(draw.seed)
            module = kind(**options).to(draw.dtype)
            # Uses dropout in training mode if the class has it, otherwise a plain call.
            train = options.get("dropout", 0.0) > 0 and rng.random() < 0.5 and dropout_path() != "unknown"
            write_case(
                folder / f"{kind.__name__}-{index}.safetensors",
                module,
                *inputs,
                name=getattr(kind, "case_name", kind.__name__),
                options=options,
                init_seed=draw.seed,
                train=train,
                grads=index == 0 or rng.random() < 0.7,
                forward_seed=draw.seed % 1000 if train else None,
                expected_dtype=oracle(draw.dtype, random=train),
            )


def write_function_cases(folder, count, rng):
    for index in range(count):
        draw = Draw(rng)
        q, k = draw.tensor(draw.batch, draw.tokens, draw.head_dim), draw.tensor(draw.batch, draw.keys, draw.head_dim)
        v = draw.tensor(draw.batch, draw.keys, draw.d_in)
        path = folder / f"function-{index}.safetensors"
        grads = rng.random() < 0.7
        settings = {"grads": grads, "expected_dtype": oracle(draw.dtype)}
        write_case(path, notebook.scaled_dot_product_attention, q, k, v, **settings)
        name, inputs, call = sdpa_sample(rng.randrange(10**6), rng)
        write_case(folder / f"{index}-{name}.safetensors", SDPA, call=call, grads=grads, **inputs)
        name, module, inputs, options, init_seed, call, train = mha_sample(rng.randrange(10**6), rng)
        settings = {"options": options, "init_seed": init_seed, "call": call, "train": train, "grads": grads}
        write_case(folder / f"{index}-{name}.safetensors", module, **settings, **inputs)
        for _ in range(2):  # on average, one encoder and one decoder
            name, module, inputs, settings = layer_sample(rng.randrange(10**6), rng)
            write_case(folder / f"{index}-{name}.safetensors", module, **settings, **inputs)


# --- The executable, and failures on purpose ----------------------------------------------------------------------


class Parity:
    def __init__(self, executable):
        self.executable = executable
        self.problems = 0

    def run(self, *arguments):
        done = subprocess.run([self.executable, *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def expect(self, what, status, phrase, *arguments):
        """Prints the relevant line; counts a problem if the status or the text differs from the expected one."""
        code, text = self.run(*arguments)
        line = next((line.strip() for line in text.splitlines() if phrase in line), None)
        good = code == status and line is not None
        self.problems += not good
        print(f"{'ok ' if good else 'BAD'} {what}: exit {code}: {line or text.strip()}")


def provoke(parity, folder, good):
    """Provokes every fault that a case can have, starting from a case that passed."""
    target = folder / "provoked.safetensors"

    def changed(what, status, phrase, edit):
        metadata, tensors = tensors_of(good)
        edit(metadata, tensors)
        save_safetensors(target, tensors, metadata)
        parity.expect(what, status, phrase, target)

    def flip(name):
        def edit(_, tensors):
            kind = name.split(".")[0]  # gradients are judged by the largest of them all
            largest = max(float(t.abs().max()) for other, t in tensors.items() if other.split(".")[0] == kind and t.numel())
            tensors[name].view(-1)[0] += 0.1 * max(1.0, largest)

        return edit

    def options(**values):
        return lambda metadata, _: metadata.update(options=json.dumps(json.loads(metadata["options"]) | values))

    changed("untouched copy", 0, "passed", lambda *_: None)
    changed("one output number flipped", 1, "DIFFERENT", flip("expected.output"))
    changed("one gradient number flipped", 1, "DIFFERENT", flip("grad.input.x"))
    changed("one weight flipped", 1, "DIFFERENT", flip("state.W_query.weight"))
    changed("NaN for a number", 1, "DIFFERENT", lambda _, t: t["expected.output"].view(-1)[:1].fill_(float("nan")))
    changed("unknown module", 2, "unknown module", lambda m, _: m.update(module="Attention"))
    changed("gradients beside grads=false", 2, "holds gradients", lambda m, _: m.update(grads="false"))
    changed("unknown option", 2, "unknown option", options(heads=2))
    changed("wrong option", 2, "expected", options(num_heads=0))
    changed("unknown call argument", 2, "unknown call argument", lambda m, _: m.update(call='{"causal": true}'))
    changed("missing input", 2, "input.x", lambda _, t: t.pop("input.x"))
    changed("missing weight", 2, "W_key.weight", lambda _, t: t.pop("state.W_key.weight"))
    changed("missing expected output", 2, "expected.output", lambda _, t: t.pop("expected.output"))
    content = good.read_bytes()
    for what, size in (("file cut in its data", len(content) - 1), ("cut in its header", 40), ("empty file", 0)):
        target.write_bytes(content[:size])
        parity.expect(what, 2, "unusable", target)
    target.unlink()
    parity.expect("no such file", 2, "unusable", target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parity", required=True, help="the executable attentive-parity")
    parser.add_argument("--count", type=int, default=5, help="cases of each class (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the run that printed this seed")
    parser.add_argument("--keep", help="write the cases into this folder and leave them there")
    settings = parser.parse_args()
    seed = time.time_ns() % 2**31 if settings.seed is None else settings.seed
    rng = random.Random(seed)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*mismatched key_padding_mask and attn_mask.*")
    parity = Parity(settings.parity)
    print(f"torch {torch.__version__}, seed {seed}")
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(settings.keep or temporary)
        fresh = root / "fresh"
        fresh.mkdir(parents=True, exist_ok=True)
        write_notebook_cases(fresh, settings.count, rng)
        write_function_cases(fresh, settings.count, rng)
        cases = sorted(fresh.glob("*.safetensors"))
        everything = f"{len(cases)} cases: {len(cases)} passed, 0 different, 0 skipped, 0 unusable"
        for backend in ("auto", "reference"):
            parity.expect(f"{len(cases)} fresh cases, backend {backend}", 0, everything, "--quiet", "--backend", backend, *cases)

        bundle = root / "bundle.safetensors"
        write_bundle(bundle, {path.stem: tensors_of(path) for path in cases})
        parity.expect("the same cases as a bundle", 0, everything, "--quiet", bundle)
        parity.expect("one of its cases", 0, "passed", f"{bundle}#{cases[0].stem}")
        parity.expect("a case that it lacks", 2, '"nobody"', f"{bundle}#nobody")
        provoke(parity, root, fresh / "MultiHeadAttention-0.safetensors")
    print(f"{parity.problems} problems")
    sys.exit(parity.problems > 0)


if __name__ == "__main__":
    main()
