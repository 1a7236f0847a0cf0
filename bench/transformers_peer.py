#!/usr/bin/env python3
"""Tokens a second of `transformers` and of this package, from the same folder, one sequence, greedy, with a cache.

    bench/transformers_peer.py --against build/release/bench/folder_decode_bench [--model gpt2|llama]

Builds a random model as large as GPT-2 (124 million parameters), or a Llama of 162 million, saves it, and continues one
prompt in turns: this package, `generate` of transformers, and a plain loop over its model and DynamicCache. The tokens of
all must be equal first. Timed is from the first new token to the last. A fourth turn reads what a token must read, the
weights, and nothing else: no program can be faster. Needs PyTorch and transformers.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers

from machine import describe

MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)),
}


class Clock:
    """A streamer for `generate` that records when each new token came."""

    def __init__(self):
        self.times = []

    def put(self, _):
        self.times.append(time.perf_counter())

    def end(self):
        pass


@torch.no_grad()
def by_generate(model, prompt, tokens):
    clock = Clock()  # put() is called for the prompt, too
    made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                          max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0, streamer=clock)
    return 1e3 * (clock.times[-1] - clock.times[1]), made[0, len(prompt):].tolist()


@torch.no_grad()
def by_loop(model, prompt, tokens):
    cache = transformers.DynamicCache(config=model.config)
    made, times = [], []
    ids = torch.tensor([prompt])
    for _ in range(tokens):
        ids = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)
        made.append(ids.item())
        times.append(time.perf_counter())
    return 1e3 * (times[-1] - times[0]), made


def plain_read(model, tokens):
    """A function that reads, for each token after the first, as many bytes as the weights used for a token."""
    numbers = sum(parameter.numel() for parameter in model.parameters())
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if embedding.data_ptr() != head.data_ptr():
        numbers -= embedding.numel()  # only one row of it is read
    weights = torch.ones(numbers)

    def read():
        begin = time.perf_counter()
        for _ in range(tokens - 1):
            weights.sum()
        return 1e3 * (time.perf_counter() - begin), None
    return read


def take_turns(ways, turns):
    expected = None
    for name, way in ways.items():
        _, made = way()
        if made is None:
            continue
        expected = expected or made
        if made != expected:
            raise SystemExit(f"{name} writes {made}, not {expected}")
    times = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            times[name].append(way()[0])
            time.sleep(0.3)  # lets its idle threads go to sleep
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, help="folder_decode_bench")
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(", ".join(f"{name} {value}" for name, value in describe(torch, args.threads).items()), "transformers", transformers.__version__)
    torch.manual_seed(1)
    model = MODELS[args.model]().eval()
    model.generation_config.eos_token_id = None
    prompt = torch.randint(model.config.vocab_size, (args.prompt,)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        command = [args.against, folder, str(args.tokens), str(args.threads)]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def by_attentive():
            print(*prompt, file=program.stdin, flush=True)
            milliseconds, *made = program.stdout.readline().split()
            return float(milliseconds), [int(token) for token in made]

        times = take_turns({"attentive": by_attentive, "generate": lambda: by_generate(model, prompt, args.tokens),
                            "loop": lambda: by_loop(model, prompt, args.tokens),
                            "plain read": plain_read(model, args.tokens)}, args.turns)
        program.stdin.close()
        if program.wait() != 0:
            sys.exit("folder_decode_bench failed")
    print(f"{args.model}, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters, prompt of {args.prompt}, "
          f"{args.tokens} new tokens, {args.turns} turns; the same tokens")
    for name, taken in times.items():
        ratio = statistics.median(peer / attentive for peer, attentive in zip(taken, times["attentive"]))
        rate = 1e3 * (args.tokens - 1) / statistics.median(taken)
        print(f"{name:10} {rate:7.2f} tokens a second, {ratio:.2f} of our time")


if __name__ == "__main__":
    main()
