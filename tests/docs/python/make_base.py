import tokenizers
import torch
import transformers

with open("my_text.txt", encoding="utf-8") as file:
    text = file.read()
tokenizer = tokenizers.ByteLevelBPETokenizer()
tokenizer.train_from_iterator([text], vocab_size=2000, special_tokens=["<|end|>"])
torch.manual_seed(1)
config = transformers.LlamaConfig(
    vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=0)
transformers.LlamaForCausalLM(config).save_pretrained("base")
tokenizer.save("base/tokenizer.json")
