import torch
from gpt_peer import GPT  # bench/gpt_peer.py: the book's GPTModel in plain PyTorch

torch.manual_seed(123)
model = GPT(vocab=27, block=16, width=32, heads=4, layers=2)
logits = model(torch.tensor([[1, 2, 3, 4]]))[0, -1]
for n in range(3):
    print(f"logit {logits[n]:.4f}")
torch.save(model.state_dict(), "gpt.pt")
