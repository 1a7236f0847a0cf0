import torch
from attentive_case import write_case  # tools/users/attentive_case.py: one file, needs only torch
from notebook_modules import MultiHeadAttention  # tools/users/notebook_modules.py, or your own class

torch.manual_seed(123)
module = MultiHeadAttention(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
write_case("mha.safetensors", module, torch.rand(2, 6, 3), init_seed=123)
