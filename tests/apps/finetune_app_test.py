"""Tests attentive-train with an existing model, and texts that it samples during training.

    python3 finetune_app_test.py <source folder> <attentive-train> <attentive-generate>
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, TRAIN, GENERATE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
MODELS = ROOT / "tests/models/data"
LETTERS = "\n .acdeghlmnost"  # a vocabulary for the committed models, which have 17 tokens
TEXT = "the cat sat on the mat.\nthe dog sat on the log.\n" * 12
QUICK = {"steps": 6, "batch": 2, "block": 8, "warmup": 1, "device": "cpu", "threads": 1, "evaluate-every": 3, "save-every": 3}


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class FineTuning(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = self.folder / "text"
        self.text.write_text(TEXT)

    def model(self, name, to=None):
        """A committed model with a tokenizer that every build reads."""
        folder = pathlib.Path(shutil.copytree(MODELS / name, self.folder / (to or name)))
        (folder / "tokenizer.json").write_text(json.dumps({"type": "char", "characters": [f"{ord(letter):02x}" for letter in LETTERS]}))
        return folder

    def train(self, *flags, out="run", **settings):
        settings = {**QUICK, **{name.replace("_", "-"): value for name, value in settings.items()}}
        return run(TRAIN, "--text", self.text, "--out", self.folder / out, *(f"--{name}={value}" for name, value in settings.items()), *flags)

    def trained(self, *flags, **settings):
        done = self.train(*flags, **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def greedy(self, model, ids="1,2,3", tokens=8):
        done = run(GENERATE, "--device", "cpu", "--model", model, "--ids", ids, "--tokens", tokens, "--temperature", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, words, *flags, status=1, **settings):
        done = self.train(*flags, **settings)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)

    # --init-from

    def test_a_model_learns_and_is_written_for_python(self):
        for name in ("gpt2", "llama"):
            with self.subTest(model=name):
                folder = self.model(name)
                said = self.trained("--init-from", folder, out=f"run_{name}", lr=0.01)
                made = self.folder / f"run_{name}"
                self.assertIn(f"saved {made}/model: Python's AutoModelForCausalLM.from_pretrained loads it\n", said)
                command = re.search(rf"^try: (\S+/{GENERATE.name}) --model {re.escape(str(made))} --prompt the$", said, re.M)
                self.assertTrue(command and os.access(command[1], os.X_OK), said)
                config, before = (json.loads((path / "config.json").read_text()) for path in (made / "model", folder))
                self.assertEqual(config["model_type"], name)
                self.assertEqual(config["eos_token_id"], before["eos_token_id"])
                self.assertEqual(json.loads((made / "model/tokenizer.json").read_text())["model"]["type"], "WordLevel")
                self.assertEqual((made / "model/generation_config.json").read_bytes(), (folder / "generation_config.json").read_bytes())
                self.assertEqual(self.greedy(made), self.greedy(made / "model"))
                self.assertNotEqual(self.greedy(made), self.greedy(folder))  # the model has learned something
                done = run(GENERATE, "--model", made, "--prompt", "the", "--tokens", "3")
                self.assertEqual((done.returncode, done.stdout[:3]), (0, "the"), done.stderr)

    def test_vocabulary_files_become_a_tokenizer_json(self):
        folder = pathlib.Path(shutil.copytree(MODELS / "gpt2", self.folder / "files"))
        spelled = {"\n": "\u010a", " ": "\u0120"}  # bytes that are no letters, as byte-level BPE spells them
        tokens = ["<|endoftext|>", *(spelled.get(letter, letter) for letter in LETTERS), "th"]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        (folder / "merges.txt").write_text("#version: 0.2\nt h\n")
        done = self.train("--init-from", folder, lr=0.01)
        if "has no tokenizer.json" in done.stderr:
            self.skipTest("built without the component tokenizers")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = self.folder / "run"
        for document in ("model/tokenizer.json", "step-00000006/tokenizer.json"):
            model = json.loads((made / document).read_text())["model"]
            self.assertEqual((model["vocab"], model["merges"]), (vocabulary, [["t", "h"]]))
        self.assertEqual((made / "model/vocab.json").read_bytes(), (folder / "vocab.json").read_bytes())
        texts = [run(GENERATE, "--device", "cpu", "--model", model, "--prompt", "the", "--tokens", 9, "--temperature", 0)
                 for model in (made, made / "model")]
        self.assertEqual((texts[0].returncode, texts[0].stdout[:3]), (0, "the"), texts[0].stderr)
        self.assertEqual(texts[0].stdout, texts[1].stdout)
        try:
            import transformers
        except ImportError:
            return
        before, after = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, made / "model"))
        self.assertEqual(after.encode(TEXT), before.encode(TEXT))

    def test_it_resumes_without_the_folder_bit_for_bit(self):
        for name in ("gpt2", "llama"):
            with self.subTest(model=name):
                folder = self.model(name)
                self.trained("--init-from", folder, out=f"whole_{name}", dropout=0.2, decay_steps=6)
                self.trained("--init-from", folder, out=f"parts_{name}", dropout=0.2, decay_steps=6, steps=3)
                shutil.rmtree(folder)
                said = self.trained("--resume", out=f"parts_{name}")
                self.assertIn("going on after step 3", said)
                whole, parts = (files_of(self.folder / f"{kind}_{name}") for kind in ("whole", "parts"))
                compared = [path for path in whole if path.startswith(("step-00000006/", "model/"))]
                self.assertGreater(len(compared), 10)
                for path in compared:
                    self.assertEqual(whole[path], parts[path], path)

    def test_a_run_can_be_the_beginning_of_another(self):
        self.trained(out="first", layers=1, heads=1, width=8)
        said = self.trained("--init-from", self.folder / "first", out="second", steps=1)
        self.assertFalse((self.folder / "second/model").exists())  # a run without a Python folder writes none
        self.assertIn("done: validation loss", said)
        self.refused("expected --dropout 0 as in " + str(self.folder / "first"), "--init-from", self.folder / "first", out="third", dropout=0.1)

    def test_settings_that_contradict_the_model_are_refused_by_name(self):
        folder = self.model("gpt2")
        for flag, words in (
            ("--layers=3", f"expected --layers 2 as in {folder}, got 3"),
            ("--heads=2", "expected --heads 4"),
            ("--kv-heads=1", "expected --kv-heads 4"),
            ("--width=8", "expected --width 16"),
            ("--window=3", "expected --window 0"),
            ("--positions=rotary", "expected --positions learned"),
            ("--tied=false", "expected --tied true"),
            ("--bias=false", "expected --bias true"),
            ("--block=17", f"expected --block of at most 16, the context of {folder}, got 17"),
            ("--tokenizer=char", f"expected no --tokenizer or --vocab: {folder} has its tokenizer"),
            ("--preset=shakespeare-small", "expected --preset finetune with --init-from, got shakespeare-small"),
        ):
            with self.subTest(flag=flag):
                name, value = flag[2:].split("=")
                self.refused(words, "--init-from", folder, **{name: value})
        same = ["--layers=2", "--heads=4", "--kv-heads=0", "--width=16", "--window=0", "--positions=learned", "--tied=true", "--bias=true"]
        self.trained("--init-from", folder, *same, steps=1)
        self.refused("expected no --init-from with --resume", "--init-from", folder, "--resume")
        self.refused("expected --layers 2 as in the checkpoint, got 3", "--resume", "--layers=3")
        self.refused("expected --init-from FOLDER with --preset finetune", "--preset=finetune", out="other")

    def test_folders_that_cannot_be_used_are_named(self):
        without = self.model("gpt2", "without")
        (without / "tokenizer.json").unlink()
        encoder = self.model("gpt2", "bert")
        config = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
        mixed = self.model("gpt2", "mixed")
        shutil.copy(MODELS / "llama/config.json", mixed)
        large = self.model("gpt2", "large")
        (large / "tokenizer.json").write_text(json.dumps({"type": "bpe", "merges": []}))
        for folder, words in (
            (without, f"no tokenizer for --text: {without} has no tokenizer.json"),
            (encoder, "expected a model that continues texts, got a bert"),
            (mixed, "the weights do not fit the llama of config.json, but have the names of gpt2:"),
            (large, "expected a tokenizer of at most 17 tokens, got 256"),
            (self.folder / "none", str(self.folder / "none")),
        ):
            with self.subTest(words=words):
                self.refused(words, "--init-from", folder)
        same = self.model("llama")
        before = files_of(same)
        self.refused(f"expected a new folder for --out, got {same}, and {same} holds a model", "--init-from", same, out="llama")
        outer = self.folder / "outer"
        shutil.copytree(same, outer / "model")
        self.refused(f"and {outer}/model holds a model", "--init-from", same, out="outer")
        for folder in (same, outer / "model"):
            kept = files_of(folder)
            self.assertEqual({name: kept[name] for name in before}, before)

    # --sample-every

    def test_texts_while_training_change_nothing(self):
        settings = {"layers": 1, "heads": 1, "width": 8, "dropout": 0.2, "block": 16}
        self.trained(out="plain", **settings)
        said = self.trained("--sample-prompt", "the d", out="watched", sample_every=2, sample_tokens=10, **settings)
        plain, watched = (files_of(self.folder / name) for name in ("plain", "watched"))
        for path in plain:
            if path.startswith("step-"):
                self.assertEqual(plain[path], watched[path], path)
        text = watched["samples.txt"].decode()
        self.assertEqual([line for line in text.split("\n") if line.startswith("step")], ["step 2", "step 4", "step 6"])
        self.assertEqual(text.count("    the d"), 3)
        self.assertEqual(said.count("after step "), 3)
        self.assertIn("after step 2: the d", said)

    def test_a_resumed_run_repeats_its_texts(self):
        settings = {"layers": 1, "heads": 1, "width": 8, "sample_every": 2, "decay_steps": 6}
        self.trained(out="whole", **settings)
        self.trained(out="parts", steps=3, **settings)
        with open(self.folder / "parts/samples.txt", "a", encoding="utf-8") as samples:
            samples.write("step 4\n    of a killed run\n")
        self.trained("--resume", out="parts", sample_every=2)
        self.assertEqual((self.folder / "whole/samples.txt").read_bytes(), (self.folder / "parts/samples.txt").read_bytes())

    def test_prompts_that_cannot_be_used_are_refused_before_the_first_step(self):
        self.refused('got "Z"', "--sample-prompt=Z", sample_every=2, layers=1, heads=1, width=8)
        self.assertFalse((self.folder / "run/latest").exists())
        self.refused("--sample-every", "--sample-prompt=x", status=2)

    # Python's side

    def test_python_loads_what_was_fine_tuned(self):
        try:
            import tokenizers
            import torch
            import transformers
        except ImportError as error:
            self.skipTest(f"this Python has no {error.name}")
        trained = tokenizers.ByteLevelBPETokenizer()
        trained.train_from_iterator([TEXT], vocab_size=280, special_tokens=["<|end|>"])
        common = {"vocab_size": trained.get_vocab_size() + 3, "bos_token_id": 0, "eos_token_id": 0}
        torch.manual_seed(1)
        models = {
            "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=32, n_embd=32, n_layer=2, n_head=4, **common)),
            "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(
                hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=32, **common)),
        }
        for name, model in models.items():
            with self.subTest(model=name):
                folder = self.folder / f"{name}_python"
                model.save_pretrained(folder)
                trained.save(str(folder / "tokenizer.json"))
                done = self.train("--init-from", folder, out=f"{name}_run", steps=50, block=16, lr=0.003, evaluate_every=0, save_every=0)
                if "component" in done.stderr:
                    self.skipTest("built without the component tokenizers")
                self.assertEqual(done.returncode, 0, done.stderr)
                tuned = transformers.AutoModelForCausalLM.from_pretrained(self.folder / f"{name}_run/model").eval()
                ids = torch.tensor(transformers.AutoTokenizer.from_pretrained(self.folder / f"{name}_run/model").encode(TEXT))
                self.assertEqual(ids.tolist(), trained.encode(TEXT).ids)
                held = ids[int(0.9 * len(ids)):]
                with torch.no_grad():
                    losses = [torch.nn.functional.cross_entropy(tuned(held[at:at + 16][None]).logits[0][:len(held) - 1 - at],
                                                                held[at + 1:at + 17], reduction="sum") for at in range(0, len(held) - 1, 16)]
                    made = tuned.generate(ids[None, :5], max_new_tokens=20, do_sample=False, pad_token_id=0)[0, 5:].tolist()
                told = float(done.stderr.split("done: validation loss ")[1].split()[0])
                self.assertAlmostEqual(sum(losses).item() / (len(held) - 1), told, delta=1e-4)
                generated = self.greedy(self.folder / f"{name}_run", ",".join(map(str, ids[:5].tolist())), 20)
                self.assertEqual(made, list(map(int, generated.strip().split(","))))

    def test_the_guide_can_be_followed(self):
        try:
            import tokenizers  # noqa: F401
            import transformers  # noqa: F401
        except ImportError as error:
            self.skipTest(f"this Python has no {error.name}")

        def step(*command):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", cwd=self.folder, stdin=subprocess.DEVNULL)
            if "component" in done.stderr:
                self.skipTest("built without the component tokenizers")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        (self.folder / "my_text.txt").write_text("Once upon a time there was a cat, and the cat sat on a mat.\n" * 60)
        step(sys.executable, ROOT / "tests/docs/python/make_base.py")
        step(TRAIN, "--init-from", "base", "--text", "my_text.txt", "--out", "tuned", "--steps", "50", "--lr", "3e-3", "--sample-every", "25",
             "--sample-prompt", "Once", "--sample-tokens", "30", "--device", "cpu", "--threads", "1", "--evaluate-every", "0", "--block", "32")
        there = step(sys.executable, ROOT / "tests/docs/python/load_tuned.py")
        here = step(GENERATE, "--model", "tuned", "--prompt", "Once", "--tokens", "20", "--temperature", "0", "--device", "cpu")
        self.assertTrue(there.startswith("Once"), there)
        self.assertEqual(here, there)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
