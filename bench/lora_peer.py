#!/usr/bin/env python3
"""A training step of LoRA in Python's transformers and peft: the peer of this package's figures.

    $(tools/checks/python_env) bench/lora_peer.py --against build/release/bench/lora_step_bench

Makes a model of the shape of Qwen3-0.6B with random weights in bfloat16, adapters in float32 on q_proj and v_proj, and
token ids; both sides then train the adapters by AdamW with checkpointed blocks, one step each in turn. First the losses of
both must agree. Peak memory is the largest resident memory of the whole process, files that it mapped and the
interpreter included.
"""

import argparse
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from machine import describe


def make_model(folder, layers):
    """Writes the model's folder."""
    config = Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, rope_theta=1000000.0,
        max_position_embeddings=40960)
    torch.manual_seed(1)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


class Peer:
    def __init__(self, folder, adapters, ids, learning_rate):
        torch.manual_seed(2)
        base = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa")
        base.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        base.config.use_cache = False
        self.model = get_peft_model(base, LoraConfig(
            r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
        # B begins as zero; with a B, the first loss shows that both sides read the same adapters.
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.02)
        self.model.save_pretrained(adapters)
        self.model.train()
        self.inputs, self.targets = ids[:, :-1], ids[:, 1:]
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        logits = self.model(input_ids=self.inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), self.targets.flatten())
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, help="lora_step_bench")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    print(", ".join(f"{name} {value}" for name, value in describe(torch, args.threads).items()), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder, adapters, ids_file = (pathlib.Path(temporary) / name for name in ("model", "adapters", "ids.txt"))
        make_model(folder, args.layers)
        ids = torch.randint(151936, (1, args.tokens + 1), generator=torch.Generator().manual_seed(3))
        ids_file.write_text(" ".join(map(str, ids[0].tolist())))
        peer = Peer(folder, adapters, ids, args.learning_rate)
        with subprocess.Popen(
                [args.against, str(folder), str(adapters), str(ids_file), str(args.threads), "--learning-rate",
                 str(args.learning_rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:

            def ours():
                program.stdin.write("\n")
                program.stdin.flush()
                seconds, loss, peak = map(float, program.stdout.readline().split())
                return seconds, loss, peak

            pairs = []
            for turn in range(args.turns + 1):
                (a, our_loss, our_peak), (b, loss) = ours(), peer.step()
                if abs(our_loss - loss) > 5e-2:  # ours has the model's dtype: 12 or so, rounded to 1/16
                    raise SystemExit(f"step {turn}: the losses differ: ours {our_loss}, the peer's {loss}")
                print(f"step {turn}: ours {a:.2f} s, peer {b:.2f} s; loss {our_loss:.4f}, {loss:.4f}", flush=True)
                if turn > 0:  # the first step of each makes what later ones keep
                    pairs.append((a, b))
            program.stdin.close()
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"LoRA step, {args.layers} layers, {args.tokens} tokens, {args.threads} threads, medians of {args.turns} turns: "
          f"ours {statistics.median(a for a, _ in pairs):.2f} s, peer {statistics.median(b for _, b in pairs):.2f} s, "
          f"peer / ours {ratio:.2f}; peak memory ours {our_peak / 2**30:.2f} GiB, peer {peak / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
