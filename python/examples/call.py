import torch

import attentive
from attentive import Mask

# Eight query heads share two key heads. The second sequence has three keys, then padding.
q, k, v = (torch.rand(2, heads, 6, 64, requires_grad=True) for heads in (8, 2, 2))
mask = Mask.key_lengths(torch.tensor([6, 3]))
y = attentive.attention(q, k, v, mask=mask, causal="bottom_right", window=(3, 0), softcap=30.0)
y.square().sum().backward()
print(tuple(y.shape), tuple(k.grad.shape))
print(attentive.explain(q, k, v, mask=mask, causal="bottom_right", dropout_p=0.1))
