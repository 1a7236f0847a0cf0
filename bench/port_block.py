"""A transformer block as notebooks write it; bench/port_peer.py takes it to C++ and compares the time of a step."""

import math

import torch
from torch import nn


class CausalHeads(nn.Module):
    def __init__(self, width, heads, dropout, block=1024):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.weights_drop = nn.Dropout(dropout)
        self.out_drop = nn.Dropout(dropout)
        self.register_buffer("seen", torch.ones(block, block).tril(), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
        scores = scores.masked_fill(self.seen[:T, :T] == 0, float("-inf"))
        weights = self.weights_drop(torch.softmax(scores, dim=-1))
        y = (weights @ v).transpose(1, 2).reshape(B, T, C)
        return self.out_drop(self.out(y))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalHeads(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
