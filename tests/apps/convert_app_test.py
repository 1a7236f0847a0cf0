"""attentive-convert converts runs and folders to folders that Python loads.

    python3 convert_app_test.py <source folder> <attentive-train> <attentive-generate> <attentive-convert>
"""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT, TRAIN, GENERATE, CONVERT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
MODELS = ROOT / "tests/models/data"
TEXT = "The cat sat on 12 mats.\n\tAnd  the dog -- don't ask! -- sat on the log.\n" * 20
TINY = ["--layers=1", "--heads=1", "--width=8", "--block=16", "--batch=1", "--steps=2", "--device=cpu", "--threads=1", "--evaluate-every=0"]


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)


def header_of(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])


class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"

    def run_of(self, *flags, text=TEXT, name="run"):
        (self.folder / "text").write_bytes(text.encode() if isinstance(text, str) else text)
        done = run(TRAIN, "--text", self.folder / "text", "--out", self.folder / name, *TINY, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def convert(self, *arguments):
        done = run(CONVERT, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def refused(self, words, *arguments):
        done = run(CONVERT, *arguments)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("attentive-convert: "), done.stderr)
        self.assertIn(words, done.stderr)

    def text_from(self, model, prompt="The"):
        done = run(GENERATE, "--device", "cpu", "--model", model, "--prompt", prompt, "--tokens", 10, "--temperature", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_run_becomes_a_folder(self):
        for kind in ("char", "bpe"):
            with self.subTest(tokenizer=kind):
                made, out = self.run_of(f"--tokenizer={kind}", "--vocab=300", name=kind), self.folder / f"{kind}_out"
                self.assertEqual(self.convert(made, out), f"{out}: gpt2, 16 tensors, tokenizer.json\n")
                names = sorted(path.name for path in out.iterdir())
                self.assertEqual(names, ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
                done = run(GENERATE, "--model", out, "--prompt", "The", "--tokens", 1)
                if "component" in done.stderr:
                    continue  # built without the component that reads Python's tokenizers
                self.assertEqual(self.text_from(out), self.text_from(made))

    def test_a_folder_of_python_is_written_anew(self):
        for name in ("gpt2", "llama"):
            with self.subTest(model=name):
                out = self.folder / name
                self.assertRegex(self.convert(MODELS / name, out, "--dtype", "bfloat16"), rf"^{out}: {name}, \d+ tensors, no tokenizer.json\n$")
                header = header_of(out / "model.safetensors")
                self.assertEqual({entry["dtype"] for key, entry in header.items() if key != "__metadata__"}, {"BF16"})
                self.assertEqual(json.loads((out / "config.json").read_text())["dtype"], "bfloat16")
                self.assertEqual((out / "generation_config.json").read_bytes(), (MODELS / name / "generation_config.json").read_bytes())

    def test_a_vocabulary_becomes_a_tokenizer_json(self):
        published = ROOT / "tests/tokenizers/data/folders/gpt2"
        source = self.folder / "published"
        shutil.copytree(MODELS / "gpt2", source)
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(published / name, source)
        done = run(CONVERT, source, self.out)
        if "component" in done.stderr or "has no tokenizer.json" in done.stderr:
            self.skipTest("built without the component that reads Python's tokenizers")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.endswith(" tensors, tokenizer.json\n"), done.stdout)
        document = json.loads((published / "expected.json").read_text())["document"]
        self.assertEqual(json.loads((self.out / "tokenizer.json").read_text()), document)
        self.assertEqual((self.out / "merges.txt").read_bytes(), (published / "merges.txt").read_bytes())

        (source / "merges.txt").unlink()
        done = run(CONVERT, source, self.folder / "without")
        self.assertIn("attentive-convert: no tokenizer.json: load_any_tokenizer: ", done.stderr)
        self.assertIn("expected merges.txt beside vocab.json, got no such file", done.stderr)
        self.assertTrue(done.stdout.endswith(" tensors, no tokenizer.json\n"), done.stdout)

    def test_another_family_is_written_where_it_describes_the_model(self):
        self.refused("expected one of the families gpt2 for this model, got \"llama\"", MODELS / "gpt2", self.out, "--family", "llama")
        self.refused("expected one of the families gpt2 for this model, got \"llama\"", self.run_of(), self.out, "--family", "llama")
        rotary = self.run_of("--positions=rotary", name="rotary")
        self.refused("a gpt2 cannot have positions=rotary", rotary, self.out)
        self.assertFalse(self.out.exists())

    def test_what_is_there_is_kept_without_force(self):
        self.convert(MODELS / "gpt2", self.out)
        (self.out / "README.md").write_text("mine")
        before = (self.out / "model.safetensors").read_bytes()
        self.refused("which is there already; --force replaces the model in it", MODELS / "llama", self.out)
        self.assertEqual((self.out / "model.safetensors").read_bytes(), before)
        self.convert(MODELS / "llama", self.out, "--force")
        self.assertEqual(json.loads((self.out / "config.json").read_text())["model_type"], "llama")
        self.assertEqual((self.out / "README.md").read_text(), "mine")
        self.convert(self.out, self.out, "--force", "--dtype", "float64")
        self.assertEqual(json.loads((self.out / "config.json").read_text())["dtype"], "float64")
        made = self.run_of()
        self.refused("which holds a run of attentive-train", MODELS / "gpt2", made, "--force")

    def test_what_cannot_be_read_or_written_is_named(self):
        self.refused("expected a folder, got nothing, which is not there", "nothing", self.out)
        self.refused("a file: weights alone do not say what model they are of", MODELS / "gpt2/model.safetensors", self.out)
        (self.folder / "empty").mkdir()
        self.refused("neither a checkpoint (manifest.json) nor a folder of checkpoints (latest)", self.folder / "empty", self.out)
        stray = self.run_of(text=b"to be \xff or not " * 40)
        self.refused("the byte 0xff, belongs to no character", stray, self.out)
        self.assertFalse(self.out.exists())
        self.assertIn("no tokenizer.json", self.convert(stray, self.out, "--no-tokenizer"))
        self.assertEqual(run(CONVERT, "one").returncode, 2)
        self.assertEqual(run(CONVERT, MODELS / "gpt2", self.folder / "x", "--dtype", "int8").returncode, 2)

    def test_python_reads_the_model_and_the_tokenizer(self):
        try:
            import torch
            import transformers
        except ImportError as error:
            self.skipTest(f"this Python has no {error.name}")
        draw = random.Random(3)
        parts = ["a", "The", "cat", " ", "  ", "\n", "\t", "12", "7", "--", "!", "don't", "é", "你好", "🎭", "\u00ad", "x" * 1030, " " * 1026, "\x00"]
        texts = ["".join(draw.choice(parts) for _ in range(draw.randrange(1, 30))) for _ in range(300)]
        made = self.run_of("--tokenizer=bpe", "--vocab=400", text="".join(texts))
        self.convert(made, self.out)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.out).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.out)
        self.assertEqual(tokenizer.model_max_length, 16)
        merges = json.loads(next(made.glob("step-*/tokenizer.json")).read_text())["merges"]
        pieces = [bytes([byte]) for byte in range(256)]
        for left, right in merges:
            pieces.append(pieces[left] + pieces[right])
        for text in texts:
            ids = tokenizer.encode(text)
            self.assertEqual(b"".join(pieces[token] for token in ids), text.encode())
            self.assertEqual(tokenizer.decode(ids), text)
        ids = tokenizer.encode("The cat")
        with torch.no_grad():
            made_there = model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False, pad_token_id=0)[0, len(ids):].tolist()
        done = run(GENERATE, "--device", "cpu", "--model", made, "--ids", ",".join(map(str, ids)), "--tokens", 8, "--temperature", 0)
        self.assertEqual(list(map(int, done.stdout.strip().split(","))), made_there)

        letters = self.run_of(name="letters")
        self.convert(letters, self.folder / "letters_out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / "letters_out")
        order = sorted(set(TEXT))
        self.assertEqual(tokenizer.encode(TEXT), [order.index(letter) for letter in TEXT])
        self.assertEqual(tokenizer.decode(tokenizer.encode(TEXT)), TEXT)
        with self.assertRaisesRegex(Exception, "WordLevel"):
            tokenizer.encode("Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
