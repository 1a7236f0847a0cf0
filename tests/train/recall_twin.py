"""Trains the model of recall_test.cpp with transformers' layers, from its first weights and on its batches; prints the losses.

Argument: the safetensors file that the test writes.
"""

import sys

import torch
from safetensors import safe_open
from torch import nn
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

WIDTH, HEADS, HIDDEN = 64, 2, 128


class Delta(qwen.Qwen3NextGatedDeltaNet):
    def __init__(self):
        super().__init__(qwen.Qwen3NextConfig(hidden_size=WIDTH, linear_num_key_heads=HEADS, linear_num_value_heads=HEADS,
                                              linear_key_head_dim=64, linear_value_head_dim=32, num_hidden_layers=1), 0)


class Latent(deepseek.DeepseekV3Attention):
    def __init__(self):
        config = deepseek.DeepseekV3Config(hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=HEADS,
                                           q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=32,
                                           v_head_dim=32, attn_implementation="eager")
        config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
        super().__init__(config, 0)
        self.positions = deepseek.DeepseekV3RotaryEmbedding(config)

    def forward(self, x):
        later = torch.full((x.shape[1], x.shape[1]), torch.finfo(x.dtype).min).triu(1)
        return super().forward(x, self.positions(x, torch.arange(x.shape[1])[None]), later[None, None])[0]


class Block(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.norm1, self.mixer, self.norm2 = nn.RMSNorm(WIDTH, 1e-6), mixer(), nn.RMSNorm(WIDTH, 1e-6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Recall(nn.Module):
    def __init__(self, mixer, words, values):
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH)
        self.first, self.second = Block(mixer), Block(mixer)
        self.norm, self.head = nn.RMSNorm(WIDTH, 1e-6), nn.Linear(WIDTH, values)

    def forward(self, tokens, answers):
        x = self.second(self.first(self.embedding(tokens)))[:, -answers.shape[1]:]
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), answers.flatten())


def main():
    with safe_open(sys.argv[1], "pt") as file:
        settings = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    weights = {name.removeprefix("model."): x for name, x in tensors.items() if name.startswith("model.")}
    model = Recall({"delta": Delta, "latent": Latent}[settings["kind"]], len(weights["embedding.weight"]), len(weights["head.bias"]))
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(settings["learning_rate"]), betas=(0.9, 0.99), weight_decay=0)
    for step in range(sum(name.startswith("tokens.") for name in tensors)):
        loss = model(tensors[f"tokens.{step}"], tensors[f"answers.{step}"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{loss.item():.6f}")


main()
