"""Adapters in attentive-train, attentive-generate and attentive-convert.

    python3 lora_app_test.py <source folder> <attentive-train> <attentive-generate> <attentive-convert> <ON if there is the component distributed>
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, TRAIN, GENERATE, CONVERT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
DISTRIBUTED = sys.argv[5] in ("ON", "1")
sys.path.insert(0, str(ROOT / "tools/checks"))
from launch_group import ALONE, environments  # noqa: E402

MODELS = ROOT / "tests/models/data"
LETTERS = "\n .acdeghlmnost"  # a vocabulary for the committed models, which have 17 tokens
TEXT = "the cat sat on the mat.\nthe dog sat on the log.\n" * 12
QUICK = {"steps": 6, "batch": 2, "block": 8, "warmup": 1, "device": "cpu", "threads": 1, "evaluate-every": 3, "save-every": 3, "lr": 0.02,
         "lora-rank": 4, "lora-alpha": 16}


def run(*command, environment=ALONE):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class LoraPrograms(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = self.folder / "text"
        self.text.write_text(TEXT)

    def model(self, name):
        """A committed model with a tokenizer that every build reads."""
        folder = self.folder / name
        if not folder.exists():
            shutil.copytree(MODELS / name, folder)
            (folder / "tokenizer.json").write_text(json.dumps({"type": "char", "characters": [f"{ord(letter):02x}" for letter in LETTERS]}))
        return folder

    def command(self, *flags, out="run", **settings):
        settings = {**QUICK, **{name.replace("_", "-"): value for name, value in settings.items()}}
        given = (f"--{name}={value}" for name, value in settings.items() if value is not None)
        return [TRAIN, "--text", self.text, "--out", self.folder / out, *given, *flags]

    def succeed(self, command):
        done = run(*command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def train(self, *flags, **settings):
        return self.succeed(self.command(*flags, **settings)).stderr

    def greedy(self, model, *flags):
        return self.succeed([GENERATE, "--device", "cpu", "--model", model, "--ids", "1,2,3", "--tokens", 8, "--temperature", 0, *flags]).stdout

    def refused(self, words, command, status=1):
        done = run(*command)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)

    def same_step(self, one, other, folders):
        first, second = files_of(self.folder / one), files_of(self.folder / other)
        compared = [path for path in first if path.startswith(folders)]
        self.assertGreater(len(compared), 5)
        for path in compared:
            self.assertEqual(first[path], second[path], path)

    def test_adapters_are_trained_written_used_and_merged(self):
        for name in ("gpt2", "llama"):
            with self.subTest(model=name):
                base, out = self.model(name), self.folder / f"run_{name}"
                said = self.train("--init-from", base, out=out.name)
                self.assertIn("in adapters of rank 4, which alone are trained\n", said)
                self.assertIn(f"saved {out}/adapter: Python's PeftModel.from_pretrained loads it\n", said)
                self.assertFalse((out / "model").exists())
                config = json.loads((out / "adapter/adapter_config.json").read_text())
                self.assertEqual((config["r"], config["lora_alpha"], config["base_model_name_or_path"]), (4, 16, str(base)))
                self.assertEqual(config["target_modules"], {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]}[name])
                tuned = self.greedy(base, "--adapter", out / "adapter")
                self.assertNotEqual(tuned, self.greedy(base))
                self.assertEqual(tuned, self.greedy(out))
                for number, (source, flags) in enumerate(((base, ["--merge-adapter", out / "adapter"]), (out, []))):
                    merged = self.folder / f"merged_{name}_{number}"
                    self.succeed([CONVERT, source, merged, *flags])
                    self.assertEqual(self.greedy(merged), tuned)
                    self.assertEqual(json.loads((merged / "config.json").read_text())["model_type"], name)

    def test_it_resumes_bit_for_bit(self):
        base = self.model("gpt2")
        settings = {"lora_dropout": 0.2, "lora_targets": "all-linear", "decay_steps": 6}
        self.train("--init-from", base, out="whole", **settings)
        self.train("--init-from", base, out="parts", steps=3, **settings)
        again = {name: None for name in ("lora_rank", "lora_alpha")}
        self.assertIn("going on after step 3", self.train("--resume", out="parts", **again))
        self.same_step("whole", "parts", ("step-00000006/", "adapter/"))
        self.train("--init-from", base, "--checkpoint-blocks", out="blocks", **settings)
        weights = "step-00000006/model.safetensors"
        self.assertEqual((self.folder / "blocks" / weights).read_bytes(), (self.folder / "whole" / weights).read_bytes())

    @unittest.skipUnless(DISTRIBUTED, "this attentive-train was built without the component distributed")
    def test_two_processes_equal_one(self):
        base = self.model("llama")
        settings = {"accumulate": 2, "lora_targets": "all-linear", "timeout": 24 * 3600}
        self.train("--init-from", base, out="one", **settings)
        for out, flags in (("two", []), ("sharded", ["--shard-optimizer"])):
            command = list(map(str, self.command("--init-from", base, *flags, out=out, **settings)))
            processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                         for environment in environments(2)]
            outputs = [process.communicate() for process in processes]
            self.assertEqual([process.returncode for process in processes], [0, 0], outputs)
            for path in ("step-00000006/model.safetensors", "step-00000006/optimizer.safetensors", "adapter/adapter_model.safetensors"):
                self.assertEqual((self.folder / "one" / path).read_bytes(), (self.folder / out / path).read_bytes(), path)

    def test_settings_that_cannot_be_used_are_refused(self):
        base = self.model("gpt2")
        self.refused("expected --init-from FOLDER with --lora-rank", self.command())
        self.refused('or names that end in them, got "q_proj"', self.command("--init-from", base, lora_targets="q_proj"))
        self.refused("--lora-rank", self.command("--init-from", base, lora_rank=None), status=2)
        self.train("--init-from", base, steps=1)
        self.refused("expected no --lora-rank with --resume", self.command("--resume"))
        adapter = self.folder / "run/adapter"
        other = ["--model", self.model("llama"), "--device", "cpu", "--ids", "1", "--adapter", adapter]
        self.refused("expected adapters of the model's linear layers, got", [GENERATE, *other])
        self.refused("/adapter_config.json", [GENERATE, "--model", base, "--device", "cpu", "--ids", "1", "--adapter", base])
        self.refused("expected adapters of the model's linear layers, got",
                     [CONVERT, self.model("llama"), self.folder / "new", "--merge-adapter", adapter])
        self.assertFalse((self.folder / "new").exists())
        kept = shutil.copytree(adapter, self.folder / "other/adapter").parent
        self.refused(f"and {kept}/adapter holds adapters", self.command("--init-from", base, out="other"))

    def test_peft_computes_what_was_trained_here(self):
        try:
            import peft
            import torch
            import transformers
        except ImportError as error:
            self.skipTest(f"this Python has no {error.name}")
        for name in ("gpt2", "llama"):
            with self.subTest(model=name):
                base, out = self.model(name), self.folder / f"peft_{name}"
                said = self.train("--init-from", base, out=out.name, lora_targets="all-linear")
                model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
                model = peft.PeftModel.from_pretrained(model, out / "adapter", is_trainable=True).eval()
                text = torch.tensor([LETTERS.index(letter) for letter in TEXT])
                held = text[int(0.9 * len(text)):]
                with torch.no_grad():
                    losses = [torch.nn.functional.cross_entropy(model(held[at:at + 8][None]).logits[0][:len(held) - 1 - at],
                                                                held[at + 1:at + 9], reduction="sum") for at in range(0, len(held) - 1, 8)]
                told = float(said.split("done: validation loss ")[1].split()[0])
                self.assertAlmostEqual(sum(losses).item() / (len(held) - 1), told, delta=1e-4)
                # peft continues the work, and this package continues that.
                optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
                ids = text[:16].view(2, 8)
                for _ in range(3):
                    loss = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), ids.roll(-1, 1).flatten())
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                model.save_pretrained(out / "again", save_embedding_layers=False)
                made = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False, pad_token_id=0)[0, 3:].tolist()
                here = self.greedy(base, "--adapter", out / "again")
                self.assertEqual(list(map(int, here.strip().split(","))), made[:len(here.strip().split(","))])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
