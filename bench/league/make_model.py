"""Writes a language model with random weights as a Hugging Face folder: make_model.py MODEL FOLDER"""

import sys

import torch
import transformers
from tokenizers import Tokenizer, models

SPREAD = 0.05  # of the weights: wide enough that a token depends on the earlier ones

MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=16, num_attention_heads=12, num_key_value_heads=4,
        max_position_embeddings=2048, tie_word_embeddings=False, initializer_range=SPREAD)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(initializer_range=SPREAD)),
}


def main():
    torch.manual_seed(1)
    model = MODELS[sys.argv[1]]().eval()
    model.generation_config.eos_token_id = None
    model.save_pretrained(sys.argv[2])
    # Converters of some runtimes ask for a tokenizer; the bench itself passes ids.
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(model.config.vocab_size)}, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0", bos_token="t1", eos_token="t2").save_pretrained(sys.argv[2])
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.0f} M parameters")


if __name__ == "__main__":
    main()
