import torch
from transformers import AutoModelForCausalLM, GptOssConfig

import attentive.transformers

attentive.transformers.register()

# Random weights; from_pretrained takes attn_implementation="attentive" as well.
config = GptOssConfig(vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=128)
model = AutoModelForCausalLM.from_config(config, attn_implementation="attentive")
ids = torch.randint(3, 99, (1, 200))
print(tuple(model.generate(ids, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0).shape))
