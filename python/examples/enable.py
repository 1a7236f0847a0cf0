import torch

import attentive

attentive.enable()  # once, at the start of the program

layer = torch.nn.TransformerEncoderLayer(256, 8, dropout=0.1, batch_first=True)
layer(torch.rand(4, 128, 256)).sum().backward()
print(attentive.report())
