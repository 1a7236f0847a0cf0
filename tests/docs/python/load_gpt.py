import torch
from gpt_peer import GPT

model = GPT(vocab=27, block=16, width=32, heads=4, layers=2)
model.load_state_dict(torch.load("trained.pt"))  # weights_only=True is the default
loss = model.loss(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]]))
print(f"loss {loss.item():.4f}")
