"""The league's second part: whole language models of one folder, a prompt of 512 tokens and greedy tokens after it."""

import datetime
import functools
import itertools
import random
import shutil
import subprocess
import sys
from contextlib import ExitStack

import environments
import peers
from contender import Refused, compared, take_turns

NAMES = {"llama": "Llama 150M", "gpt2": "GPT-2 124M"}
PROMPT, NEW = 512, 17
SAME = 32  # tokens that must be equal in float32
ALLOWED = {"fp32": 1e-3, "bf16": 0.1, "int8": 0.2}  # of the last logits, relative to the largest; other weights, other logits


def model_folder(league, model):
    """The model in Hugging Face's format, which transformers makes at the first use. Raises Missing without it."""
    folder = league.out / "models" / model / "folder"
    if not (folder / "config.json").exists():
        transformers = peers.peer("transformers_model").environment
        environments.ensure(league.environments, transformers, league.may_install)
        python = environments.python_in(league.environments, transformers)
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.with_name("partial")
        subprocess.run([python, __file__, model, partial], check=True)
        partial.rename(folder)
    return folder


def converted(league, module, peer, model, dtype):
    """The folder that the peer reads, and the seconds of making it, once; None if it reads the model's own."""
    folder = model_folder(league, model)
    if not hasattr(peer, "convert"):
        return folder, None
    target = folder.with_name(f"{module}-{dtype}")
    done = target.with_suffix(".seconds")
    if not done.exists():
        shutil.rmtree(target, ignore_errors=True)
        with league.started(module, peer) as contender:
            answer = contender.ask("convert", folder=str(folder), dtype=dtype, target=str(target))
        done.write_text(f"{answer['seconds']}\n", encoding="utf-8")
    return target, float(done.read_text(encoding="utf-8"))


def prompt_of(turn):
    """Other tokens in every round, so that a runtime that keeps prefixes calculates every one."""
    draw = random.Random(turn)
    return [draw.randrange(10, 32000) for _ in range(PROMPT)]


def difference(logits, expected):
    return max(abs(a - b) for a, b in zip(logits, expected, strict=True)) / max(map(abs, expected))


def check(contender, dtype, expected):
    """A sentence about the results; raises Refused if they are wrong."""
    prompt = prompt_of(0)
    said = []
    if dtype == "fp32":
        ids = contender.ask("continued", prompt=prompt, tokens=SAME)["ids"]
        if ids != expected["ids"]:
            same = next((i for i, (a, b) in enumerate(zip(ids, expected["ids"])) if a != b), len(ids))
            raise Refused(f"other tokens: the first {same} of {SAME} are equal")
        said.append(f"{SAME} tokens equal")
    try:
        error = difference(contender.ask("logits", prompt=prompt)["logits"], expected["logits"])
        if not error <= ALLOWED[dtype]:
            raise Refused(f"wrong logits: error {error:.1e}")
        said.append(f"logits {error:.0e}")
    except Refused as reason:
        if "wrong" in str(reason):
            raise
        if dtype != "fp32":
            ids = contender.ask("continued", prompt=prompt, tokens=SAME)["ids"]
            same = next((i for i, (a, b) in enumerate(zip(ids, expected["ids"])) if a != b), len(ids))
            said.append(f"no logits; first {same} tokens equal")
    return ", ".join(said)


def run_case(league, model, dtype):
    """The rows of one model and dtype. This package has no 8-bit form: bfloat16 stands beside those of others."""
    rows = []
    our_dtype = "bf16" if dtype == "int8" else dtype
    us = "attentive" if our_dtype == dtype else f"attentive, {our_dtype}"

    def row(way, **fields):
        rows.append({"part": "models", "case": NAMES[model], "dtype": dtype, "way": way, "date": datetime.date.today().isoformat(), **fields})

    try:
        folder = model_folder(league, model)
    except environments.Missing as reason:
        row(us, refused=f"transformers, which makes the model: {reason}")
        return rows
    with league.ours() as ours:
        ours.ask("load", folder=str(folder), dtype="fp32")
        prompt = prompt_of(0)
        expected = {"ids": ours.ask("continued", prompt=prompt, tokens=SAME)["ids"], "logits": ours.ask("logits", prompt=prompt)["logits"]}
    with ExitStack() as stack:
        ready, facts = {}, {}

        def enter(name, contender, **fields):
            stack.enter_context(contender)
            facts[name] = {"load_s": contender.ask("load", **fields)["seconds"]}
            facts[name]["checked"] = "the reference" if (name, dtype) == (us, "fp32") else check(contender, dtype, expected)
            ready[name] = contender

        enter(us, league.ours(), folder=str(folder), dtype=our_dtype)
        for module, peer in league.model_peers():
            try:
                if dtype not in peer.dtypes:
                    raise Refused(f"it has no {dtype} on CPUs")
                target, seconds = converted(league, module, peer, model, dtype)
                enter(peer.name, league.started(module, peer), folder=str(target), dtype=dtype)
                facts[peer.name]["convert_s"] = seconds
            except Refused as reason:
                row(peer.name, refused=str(reason))

        def turn(name, prompts):
            return ready[name].ask("continued", prompt=prompt_of(next(prompts)), tokens=NEW)

        ways = {name: functools.partial(turn, name, itertools.count(1)) for name in ready}
        answers, refused = take_turns(ways, 1 + league.rounds)  # the first round warms up
        for name, reason in refused.items():
            row(name, refused=reason)
        for name in answers if us in answers else ():
            row(name, rounds=league.rounds, peak_bytes=ready[name].peak_bytes(), **facts[name],
                **{what: compared(*([answer[what] for answer in answers[who][1:]] for who in (name, us))) for what in ("first_s", "token_s")})
    return rows


def prepare(league):
    """Installs the peers and converts the models."""
    for model in league.models:
        for module, peer in league.model_peers():
            for dtype in peer.dtypes:
                if dtype not in league.dtypes:
                    continue
                try:
                    _, seconds = converted(league, module, peer, model, dtype)
                    print(f"{NAMES[model]} {dtype}, {peer.name}: converted in {seconds or 0:.0f} s", flush=True)
                except (environments.Missing, Refused) as reason:
                    print(f"{NAMES[model]} {dtype}, {peer.name}: not converted: {reason}", flush=True)


def run(league):
    for model in league.models:
        for dtype in league.dtypes:
            league.add(run_case(league, model, dtype))


def make(model, folder):
    """Writes a model with random weights as a Hugging Face folder, inside the environment of transformers."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    spread = 0.05  # of the weights: wide enough that a token depends on the earlier ones
    torch.manual_seed(1)
    if model == "llama":
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=16, num_attention_heads=12,
            num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=False, initializer_range=spread))
    else:
        made = transformers.GPT2LMHeadModel(transformers.GPT2Config(initializer_range=spread))
    made.eval().generation_config.eos_token_id = None
    made.save_pretrained(folder)
    # Converters of some runtimes ask for a tokenizer; the bench itself passes ids.
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(made.config.vocab_size)}, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0", bos_token="t1", eos_token="t2").save_pretrained(folder)
    print(f"{sum(parameter.numel() for parameter in made.parameters()) / 1e6:.0f} M parameters")


if __name__ == "__main__":
    make(*sys.argv[1:])
