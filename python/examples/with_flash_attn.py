import torch

import attentive.flash_attn

attentive.flash_attn.install()  # once, before the import of a program that needs flash-attn

from flash_attn import flash_attn_func, flash_attn_with_kvcache

# Eight query heads share two key heads; the layout is (batch, tokens, heads, features).
q, k, v = (torch.rand(2, 6, heads, 64, requires_grad=True) for heads in (8, 2, 2))
y = flash_attn_func(q, k, v, dropout_p=0.1, causal=True, window_size=(3, 0), softcap=30.0)
y.square().sum().backward()
print(tuple(y.shape), tuple(k.grad.shape))

# A token more for each sequence: the first has six in the cache, the second has four.
k_cache, v_cache = torch.zeros(2, 16, 2, 64), torch.zeros(2, 16, 2, 64)
lengths = torch.tensor([6, 4], dtype=torch.int32)
new = k[:, :1], v[:, :1]
token = flash_attn_with_kvcache(q[:, :1], k_cache, v_cache, *new, cache_seqlens=lengths, causal=True)
print(tuple(token.shape), "written:", k_cache.abs().sum((2, 3)).nonzero().tolist())
