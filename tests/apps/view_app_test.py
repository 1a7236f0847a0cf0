"""Tests attentive-view: pages and pictures of folders, runs, images and parity cases, and clear errors.

    python3 view_app_test.py <source folder> <attentive-view> <attentive-train>
"""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT, VIEW, TRAIN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
MODELS = ROOT / "tests/models/data"
CASES = ROOT / "tests/parity"


def view(*arguments):
    return subprocess.run([VIEW, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def data_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="attentive-data">(.*?)</script>', text, re.S)[1])


class ViewTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.page = self.folder / "page.html"

    def shown(self, *arguments):
        done = view("--out", self.page, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout, data_of(self.page)

    def test_a_folder_of_python_is_shown_with_every_layer_and_head(self):
        for name, first in (("gpt2", "trf_blocks.0.att"), ("llama", "blocks.0.att")):
            with self.subTest(name):
                said, data = self.shown("--model", MODELS / name, "--ids", "1,5,7,2")
                self.assertEqual(data["tokens"], [["1", "5", "7", "2"]])
                self.assertEqual(data["title"], name)  # ids contain no words
                self.assertEqual(data["views"][0]["path"], first)
                heads = sum(len(each["heads"]) for each in data["views"])
                self.assertRegex(said, rf"page\.html: {len(data['views'])} layers, {heads} heads, 4 x 4 tokens, 0\.\d MB, in steps of 1/255\n$")

    def test_layers_heads_tokens_and_neurons_are_chosen(self):
        _, data = self.shown("--model", MODELS / "gpt2", "--ids", "1,5,7,2", "--layers", "trf_blocks.1", "--heads", "1,0", "--tokens", 3,
                             "--neurons", "trf_blocks.1.att.1", "--title", "</script>")
        (layer,) = data["views"]
        self.assertEqual((layer["path"], layer["queries"], layer["keys"]), ("trf_blocks.1.att", 3, 3))
        self.assertEqual([head["head"] for head in layer["heads"]], [1, 0])
        self.assertEqual([one["head"] for one in layer["neurons"]], [1])
        self.assertEqual(data["title"], "</script>")

    def test_a_picture_is_well_formed(self):
        picture = self.folder / "head.svg"
        done = view("--model", MODELS / "gpt2", "--ids", "1,5,7", "--layers", "trf_blocks.1", "--heads", 1, "--svg", picture)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{picture}: trf_blocks.1.att, head 1\n")
        texts = [text.text for text in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(texts[:7], ["trf_blocks.1.att, head 1", "1", "5", "7", "1", "5", "7"])

    def test_a_run_is_shown_with_the_texts_of_its_tokens(self):
        text = self.folder / "text.txt"
        text.write_text("the cat sat on the mat. " * 60)
        done = subprocess.run([TRAIN, "--text", text, "--out", self.folder / "run", "--steps", "2", "--block", "16", "--width", "16",
                               "--heads", "2", "--layers", "2", "--batch", "2", "--device", "cpu"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        _, data = self.shown("--model", self.folder / "run", "--text", "the cat")
        self.assertEqual("".join(data["tokens"][0]), "the cat")
        self.assertEqual(data["title"], "run: the cat")
        _, data = self.shown("--model", f"{self.folder}/run/", "--text", "the cat", "--title", "Own")
        self.assertEqual(data["title"], "Own")
        self.assertEqual(len(data["views"]), 2)
        done = view("--out", self.page, "--model", self.folder / "run", "--text", "the cat sat on the mat. " * 5)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^attentive-view: the text has \d+ tokens, but the model's context is 16; --tokens 16 takes the first of them\n$")

    def test_a_parity_case_is_shown(self):
        _, data = self.shown("--case", CASES / "notebooks.safetensors#MultiHeadAttention-notebook", "--batch", 1)
        (layer,) = data["views"]
        self.assertEqual((layer["path"], layer["batch"], layer["queries"], len(layer["heads"])), ("MultiHeadAttention", 1, 6, 2))
        self.assertEqual(data["title"], "notebooks.safetensors#MultiHeadAttention-notebook")
        _, data = self.shown("--case", CASES / "encoders.safetensors#bert-hidden", "--layers", "blocks.1")
        self.assertEqual([layer["path"] for layer in data["views"]], ["blocks.1.att"])
        _, data = self.shown("--case", CASES / "encoders.safetensors#albert-hidden")  # one block, run several times
        paths = [layer["path"] for layer in data["views"]]
        self.assertEqual(paths[:2], ["blocks.0.att, call 0", "blocks.0.att, call 1"])

    def test_python_models_of_texts_and_images_are_shown(self):
        try:
            import tokenizers
            import torch
            import transformers
        except ImportError as error:
            self.skipTest(f"this Python has no {error.name}")
        torch.manual_seed(1)
        bert = self.folder / "bert"
        transformers.BertModel(transformers.BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                       intermediate_size=32, max_position_embeddings=16)).save_pretrained(bert)
        words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "##s"])}
        words_only = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
        words_only.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        words_only.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        words_only.save(str(bert / "tokenizer.json"))
        _, data = self.shown("--model", bert, "--text", "a cats")
        self.assertEqual(data["tokens"], [["[CLS]", "a", "cat", "##s", "[SEP]"]])

        vit = self.folder / "vit"
        config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=8,
                                        patch_size=4, num_channels=1, num_labels=3)
        model = transformers.ViTForImageClassification(config).eval()
        model.save_pretrained(vit)
        image = torch.rand(1, 1, 8, 8)
        torch.save(image, self.folder / "image.pt")
        _, data = self.shown("--model", vit, "--image", self.folder / "image.pt", "--layers", "blocks.[12]")
        self.assertEqual([layer["path"] for layer in data["views"]], ["blocks.1.attn", "blocks.2.attn"])
        shown = data["views"][0]["image"]
        self.assertEqual((shown["rows"], shown["columns"], shown["first"]), (2, 2, 1))
        self.assertTrue(base64.b64decode(shown["pixels"].removeprefix("data:image/bmp;base64,")).startswith(b"BM"))
        # The rollout includes all layers, also those that are not shown.
        model.set_attn_implementation("eager")
        with torch.no_grad():
            layers = model.vit(image, output_attentions=True).attentions
        product = torch.eye(5)
        for weights, known in zip(layers, (None, *data["views"])):
            mixed = weights[0].mean(0) + torch.eye(5)
            product = mixed / mixed.sum(1, keepdim=True) @ product
            if known:
                got = torch.frombuffer(bytearray(base64.b64decode(known["rollout"])), dtype=torch.float32)
                torch.testing.assert_close(got, product[0], rtol=1e-4, atol=1e-5)
        done = view("--model", vit, "--ids", "1", "--out", self.page)
        self.assertIn("expected a model of texts for --text or --ids, got one of images", done.stderr)

    def test_what_cannot_be_shown_is_named(self):
        gpt2 = ["--model", MODELS / "gpt2", "--ids", "1,5,7"]
        case = CASES / "notebooks.safetensors#MultiHeadAttention-notebook"
        out = ["--out", self.page]
        for arguments, words in (
            ([*gpt2], "expected --out page.html or --svg head.svg"),
            (out, "expected --model or --case"),
            ([*out, "--model", MODELS / "gpt2"], "expected --text, --ids or --image beside --model"),
            ([*out, "--model", MODELS / "gpt2", "--text", "hello"], "has no tokenizer.json; --ids takes the text as ids"),
            ([*out, *gpt2, "--heads", "0,9"], "expected a head in [0, "),
            ([*out, *gpt2, "--heads", "3-1"], '--heads: expected numbers and ranges such as 0,3-5, got "3-1"'),
            ([*out, *gpt2, "--layers", "nothing*"], "nothing*"),
            ([*out, *gpt2, "--neurons", "att"], '--neurons: expected a layer and a head such as blocks.0.attn.3, got "att"'),
            ([*out, *gpt2, "--neurons", "att.0"], "--neurons: expected one of the layers trf_blocks.0.att, trf_blocks.1.att"),
            ([*out, *gpt2, "--megabytes", "0.0001"], "expected max_bytes above"),
            ([*out, "--model", MODELS / "gpt2", "--image", "cat.png"], "expected a model of images for --image, got one of texts"),
            ([*out, "--case", case, "--batch", 9], "expected a batch item in [0, 2), got 9"),
            (["--out", self.folder / "none/page.html", *gpt2], "none/page.html: cannot create a temporary file"),
        ):
            with self.subTest(words=words):
                done = view(*arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertTrue(done.stderr.startswith("attentive-view: ") and done.stderr.count("\n") == 1, done.stderr)
                self.assertIn(words, done.stderr)
        self.assertFalse(self.page.exists())
        self.assertEqual(view(*gpt2, "--text", "x").returncode, 2)
        self.assertEqual(view(*gpt2, "--case", case).returncode, 2)

    def test_a_page_that_is_too_large_names_what_fits(self):
        empty = self.page_size_without_data()
        done = view("--out", self.page, "--model", MODELS / "gpt2", "--ids", "1,5,7", "--megabytes", (empty + 300) / 1e6)
        self.assertEqual(done.returncode, 1)
        self.assertIn("of these heads fit, or all of them with", done.stderr)
        self.assertIn("; choose by --layers, --heads and --tokens, or allow more --megabytes\n", done.stderr)

    def page_size_without_data(self):
        done = view("--out", self.page, "--model", MODELS / "gpt2", "--ids", "1", "--megabytes", "0.0001")
        return int(re.search(r"expected max_bytes above (\d+)", done.stderr)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
