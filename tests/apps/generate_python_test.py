"""attentive-generate continues texts as Python does, with folders that Python writes in the test.

    python3 generate_python_test.py <source folder> <attentive-generate>

Needs PyTorch, transformers and tokenizers.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

ROOT, GENERATE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
MARGIN = 1e-4  # two logits this close may come out in either order


def generate(*arguments):
    command = [GENERATE, "--device", "cpu", "--temperature", "0", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout


def greedy(model, prompt, tokens):
    """Python's tokens, up to the first whose lead over the next one is too small."""
    with torch.no_grad():
        made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                              max_new_tokens=tokens, pad_token_id=0, return_dict_in_generate=True, output_scores=True)
    ids = made.sequences[0, len(prompt):].tolist()
    for place, scores in enumerate(made.scores):
        first, second = scores[0].topk(2).values
        if first - second < MARGIN:
            return ids[:place]
    return ids


class GenerateTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_every_family_gives_pythons_ids(self):
        subprocess.run([sys.executable, ROOT / "tools/generators/make_model_folders.py", "--seed", "2", self.folder], check=True)
        compared = 0
        for path in sorted(self.folder.iterdir()):
            family = path.name
            kind, = json.loads((path / "config.json").read_text())["architectures"]
            if not kind.endswith(("ForCausalLM", "LMHeadModel")):
                continue
            model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / family).eval()
            for prompt in ([1, 5, 7], [9, 3, 4, 8, 11]):
                expected = greedy(model, prompt, 10)
                with self.subTest(family=family, prompt=prompt):
                    made = generate("--model", self.folder / family, "--ids", ",".join(map(str, prompt)), "--tokens", 10)
                    ids = [int(number) for number in made.decode().strip().split(",")]
                    self.assertEqual(ids[: len(expected)], expected)
                    self.assertLessEqual(len(ids), 10)
                    compared += len(expected)
        self.assertGreater(compared, 100)

    def test_a_folder_with_a_tokenizer_takes_and_gives_text(self):
        text = "the cat sat on the mat and the dog sat on the log " * 20
        trained = tokenizers.ByteLevelBPETokenizer()
        trained.train_from_iterator([text], vocab_size=300, special_tokens=["<|end|>"])
        torch.manual_seed(1)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=trained.get_vocab_size(), n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0))
        model.eval().save_pretrained(self.folder)
        trained.save(str(self.folder / "tokenizer.json"))
        prompt = "the cat sat"
        ids = trained.encode(prompt).ids
        with torch.no_grad():
            made = model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False, pad_token_id=0)[0, len(ids):].tolist()
        expected = trained.decode([token for token in made if token != 0], skip_special_tokens=True)
        text = generate("--model", self.folder, "--prompt", prompt, "--tokens", "20")
        self.assertEqual(text.decode(errors="replace"), prompt + expected + "\n")

    def test_folders_without_a_tokenizer_json_take_and_give_text(self):
        published = ROOT / "tests/tokenizers/data/folders"
        small = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
                 "initializer_range": 0.2}
        configs = {"gpt2": transformers.GPT2Config, "qwen2": transformers.Qwen2Config, "llama": transformers.LlamaConfig,
                   "llama_legacy": transformers.LlamaConfig, "mistral": transformers.MistralConfig}
        for name, config in configs.items():
            with self.subTest(folder=name):
                folder = self.folder / name
                shutil.copytree(published / name, folder, ignore=shutil.ignore_patterns("expected.json"))
                tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
                torch.manual_seed(1)
                sizes = {} if name == "gpt2" else {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
                model = transformers.AutoModelForCausalLM.from_config(config(vocab_size=len(tokenizer), **small, **sizes))
                model.eval().save_pretrained(folder)
                self.assertFalse((folder / "tokenizer.json").exists())
                prompt = "the cat sat"
                ids = tokenizer(prompt)["input_ids"]
                made = generate("--model", folder, "--ids", ",".join(map(str, ids)), "--tokens", "20").decode()
                whole = tokenizer.decode([*ids, *map(int, made.split(","))], skip_special_tokens=True)
                self.assertEqual(generate("--model", folder, "--prompt", prompt, "--tokens", "20").decode(), whole + "\n")

    def test_a_tokenizer_without_bytes_gives_pythons_text(self):
        text = "the cat sat on the mat and the dog sat on the log while birds sang in the tall trees " * 20
        word_piece = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        word_piece.normalizer, word_piece.pre_tokenizer, word_piece.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        word_piece.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[PAD]", "[UNK]"], show_progress=False))
        words = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.train_from_iterator([text], trainers.WordLevelTrainer(vocab_size=40, special_tokens=["[UNK]"], show_progress=False))
        suffixed = tokenizers.Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
        suffixed.pre_tokenizer, suffixed.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder(suffix="</w>")
        suffixed.train_from_iterator([text], trainers.BpeTrainer(vocab_size=60, special_tokens=["[UNK]"], end_of_word_suffix="</w>", show_progress=False))
        for name, trained in (("word_piece", word_piece), ("words", words), ("suffixed", suffixed)):
            for seed in range(4):
                with self.subTest(tokenizer=name, seed=seed):
                    folder = self.folder / f"{name}{seed}"
                    torch.manual_seed(seed)
                    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                        vocab_size=trained.get_vocab_size(), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=64, eos_token_id=None, bos_token_id=None, pad_token_id=None, initializer_range=0.2)).eval()
                    model.save_pretrained(folder)
                    trained.save(str(folder / "tokenizer.json"))
                    prompt = "the cat sat"
                    ids = trained.encode(prompt).ids
                    made = generate("--model", folder, "--ids", ",".join(map(str, ids)), "--tokens", "20").decode()
                    whole = trained.decode([*ids, *map(int, made.split(","))], skip_special_tokens=True)
                    self.assertEqual(generate("--model", folder, "--prompt", prompt, "--tokens", "20").decode(), whole + "\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
