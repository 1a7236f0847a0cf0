import torch
from torch import nn


class WindowedGQA(nn.Module):
    def __init__(self, dim, heads, kv_heads, window, dropout):
        super().__init__()
        self.heads, self.kv_heads, self.window, self.dropout = heads, kv_heads, window, dropout
        self.head_dim = dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def rotate(self, x):  # the features i and i + head_dim / 2 are a pair
        half = self.head_dim // 2
        angle = torch.arange(x.size(2)).outer(10000.0 ** (-torch.arange(half) / half))
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)

    def forward(self, x):
        q, k, v = (project(x).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        token = torch.arange(x.size(1))
        distance = token[:, None] - token
        scores = (q @ k.transpose(2, 3) / self.head_dim**0.5).masked_fill((distance < 0) | (distance >= self.window), -torch.inf)
        weights = nn.functional.dropout(scores.softmax(-1), self.dropout, self.training)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


torch.manual_seed(123)
module = WindowedGQA(64, heads=8, kv_heads=2, window=5, dropout=0.1).eval()
y = module(torch.rand(1, 12, 64))
for n in range(3):
    print(f"{y[0, -1, n]:.4f}")
torch.save(module.state_dict(), "windowed_gqa.pt")
