"""attentive-generate with a folder that Python wrote.

    python3 generate_app_test.py <source folder> <attentive-generate>
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT, GENERATE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
MODELS = ROOT / "tests/models/data"


def generate(*arguments):
    return subprocess.run([GENERATE, "--device", "cpu", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def tensor(path, name):
    """A tensor of a safetensors file: its shape and its numbers."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])[name]
    begin, end = entry["data_offsets"]
    kind = {"F32": "f", "I64": "q"}[entry["dtype"]]
    count = (end - begin) // struct.calcsize(kind)
    return entry["shape"], struct.unpack(f"<{count}{kind}", data[8 + size + begin : 8 + size + end])


class GenerateTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, name):
        return pathlib.Path(shutil.copytree(MODELS / name, self.folder / name))

    def without_end(self, folder):
        for config in ("config.json", "generation_config.json"):
            settings = json.loads((folder / config).read_text())
            settings["eos_token_id"] = None
            (folder / config).write_text(json.dumps(settings))

    def ids(self, *arguments):
        done = generate(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [int(number) for number in done.stdout.strip().split(",")]

    def test_the_next_token_is_the_one_with_pythons_largest_logit(self):
        for name in ("gpt2", "llama"):
            (_, tokens), ids = tensor(MODELS / name / "expected.safetensors", "input.ids")
            (_, _, vocabulary), logits = tensor(MODELS / name / "expected.safetensors", "output.logits")
            for length in (1, 6, tokens):
                row = logits[(length - 1) * vocabulary : length * vocabulary]
                prompt = ",".join(map(str, ids[:length]))
                with self.subTest(model=name, length=length):
                    made = self.ids("--model", MODELS / name, "--ids", prompt, "--tokens", 1, "--temperature", 0)
                    self.assertEqual(made, [row.index(max(row))])

    def test_a_token_that_ends_a_text_ends_the_generation(self):
        # The committed texts end with token 2, which an untrained model draws within a few hundred.
        folder = self.copy("llama")
        arguments = ["--model", folder, "--ids", "1,5", "--tokens", 300, "--temperature", 5, "--slide"]
        ended = self.ids(*arguments)
        self.assertEqual(ended.index(2), len(ended) - 1)
        self.without_end(folder)
        more = self.ids(*arguments)
        self.assertEqual(len(more), 300)
        self.assertEqual(more[: len(ended)], ended)

    def test_the_end_of_the_context_is_told(self):
        folder = self.copy("gpt2")
        self.without_end(folder)
        done = generate("--model", folder, "--ids", "1,5,7", "--tokens", 40, "--temperature", 9)
        self.assertEqual(len(done.stdout.split(",")), 14)  # the last one is drawn from 16
        self.assertEqual(done.stderr, "attentive-generate: stopped after 14 of 40 tokens: the model's context of 16 is full; --slide goes on\n")

    def tokenizer(self, folder, model, decoder, pre_tokenizer={"type": "WhitespaceSplit"}):
        (folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}))

    def texts(self, folder, prompt, ids):
        """Numbers and texts of the same tokens, of several seeds."""
        for seed in range(6):
            same = ["--model", folder, "--tokens", 14, "--temperature", 6, "--slide", "--seed", seed]
            made = self.ids(*same, "--ids", ",".join(map(str, ids)))
            done = generate(*same, "--prompt", prompt)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            yield made, done.stdout

    def test_pieces_of_words_are_joined_and_words_are_spaced(self):
        folder = self.copy("llama")
        self.without_end(folder)
        words = ["[UNK]", "the", "cat", "##s", "##ing", "sat", ".", "##ed", "log", "a", "on", "##er", "dog", "mat", "##ly", "x", "##y"]
        vocabulary = {word: number for number, word in enumerate(words)}
        self.tokenizer(folder, {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                                "max_input_chars_per_word": 100}, {"type": "WordPiece", "prefix": "##", "cleanup": True})
        joined = 0
        for made, text in self.texts(folder, "the  cats", [1, 2, 3]):  # the prompt is unchanged
            rest = "".join(words[number].removeprefix("##") if words[number].startswith("##") else " " + words[number] for number in made)
            self.assertEqual(text, "the  cats" + rest.replace(" .", ".") + "\n")
            joined += rest.count(" ") < len(made)
        self.assertGreater(joined, 3)

        self.tokenizer(folder, {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}, None)
        for made, text in self.texts(folder, "the cat", [1, 2]):
            self.assertEqual(text, "the cat" + "".join(" " + words[number] for number in made) + "\n")

        ends = {word.replace("##", "") + ("</w>" if number % 3 else ""): number for number, word in enumerate(words)}
        spelled = {number: word for word, number in ends.items()}
        self.tokenizer(folder, {"type": "BPE", "dropout": None, "vocab": ends, "merges": [], "unk_token": "[UNK]", "end_of_word_suffix": "</w>",
                                "continuing_subword_prefix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False},
                       {"type": "BPEDecoder", "suffix": "</w>"})
        for made, text in self.texts(folder, "y", [16]):
            whole = "".join(spelled[number] for number in [16, *made]).removesuffix("</w>").replace("</w>", " ")
            self.assertEqual(text, whole + "\n")

    def test_characters_of_several_tokens_are_written_whole(self):
        folder = self.copy("llama")
        self.without_end(folder)
        # C3, A9, F0, 9F, 98, 80, E6, BC and A2 as tokens among letters
        visible = ["Ã", "©", "ð", "Ł", "ĺ", "Ģ", "æ", "¼", "¢", "a", "b", "Ġ", "c", "Ã©", "ðŁĺĢ", "æ¼", "Ċ"]
        data = [b"\xc3", b"\xa9", b"\xf0", b"\x9f", b"\x98", b"\x80", b"\xe6", b"\xbc", b"\xa2", b"a", b"b", b" ", b"c",
                b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xe6\xbc", b"\n"]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        self.tokenizer(folder, {"type": "BPE", "dropout": None, "vocab": {token: number for number, token in enumerate(visible)}, "merges": [],
                                "unk_token": None, "end_of_word_suffix": None, "continuing_subword_prefix": None, "fuse_unk": False,
                                "byte_fallback": False, "ignore_merges": False}, byte_level, byte_level)
        halves = 0
        for made, text in self.texts(folder, "a", [9]):
            self.assertEqual(text, "a" + b"".join(data[number] for number in made).decode(errors="replace") + "\n")
            halves += "\ufffd" in text
        self.assertGreater(halves, 0)

    def test_what_cannot_be_used_is_named(self):
        missing = self.copy("gpt2")
        (missing / "model.safetensors").unlink()
        encoder = self.folder / "bert"
        shutil.copytree(MODELS / "gpt2", encoder)
        settings = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps({**settings, "model_type": "bert"}))
        mixed = self.folder / "mixed"
        shutil.copytree(MODELS / "gpt2", mixed)
        (mixed / "config.json").write_text((MODELS / "llama/config.json").read_text())
        for arguments, words in (
            (["--model", MODELS / "gpt2", "--prompt", "hello"], "has no tokenizer.json; --ids takes the prompt as ids"),
            (["--model", MODELS / "gpt2", "--ids", "1,17"], "expected ids in [0, 17), got 17"),
            (["--model", missing, "--ids", "1"], "model.safetensors"),
            (["--model", encoder, "--ids", "1"], "expected a model that continues texts, got a bert"),
            (["--model", mixed, "--ids", "1"], "the weights do not fit the llama of config.json, but have the names of gpt2:"),
        ):
            with self.subTest(words=words):
                done = generate(*arguments)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr.startswith("attentive-generate: "), done.stderr)
                self.assertIn(words, done.stderr)
        self.assertEqual(generate("--model", MODELS / "gpt2", "--ids", "1", "--prompt", "x").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
