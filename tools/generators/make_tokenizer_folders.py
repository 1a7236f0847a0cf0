#!/usr/bin/env python3
"""Makes small folders as models are published, without a tokenizer.json, and records what AutoTokenizer makes of them.

    tools/generators/make_tokenizer_folders.py FOLDER                  writes the folders that tests/tokenizers/data/folders holds
    tools/generators/make_tokenizer_folders.py --reload FOLDER         compares what AutoTokenizer makes of the folders in FOLDER with their expected.json;
                                                                       prints those whose ids differ
    tools/generators/make_tokenizer_folders.py --draw N SEED OUT       N folders with drawn settings, OUT/0 and on

Each gets a file expected.json: the document of its fast tokenizer, strings and their ids; a drawn one the document alone, or the error. Needs the wheels `transformers` 5.23.0,
`tokenizers`, `sentencepiece` and `protobuf` of tools/checks/python_requirements.txt.
"""

import io
import json
import os
import random
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import sentencepiece  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from make_tokenizers import Words, record  # noqa: E402

MARK = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}


def texts():
    maker = Words(1)
    return [" ".join(maker.text(12).split()) for _ in range(1500)]


def token(content, **members):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **members}


def typed(content, **members):
    return {"__type": "AddedToken", **token(content, **members)}


def write(folder, name, content):
    text = content if isinstance(content, (bytes, str)) else json.dumps(content, ensure_ascii=False, indent=1)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def word_pieces():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=500, limit_alphabet=220, special_tokens=special, show_progress=False))
    return [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])]


def byte_pairs(folder, special):
    """Writes vocab.json and merges.txt; returns the vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    write(folder, "vocab.json", model["vocab"])
    write(folder, "merges.txt", "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]))
    return model["vocab"]


def sentence_pieces(**options):
    """Trained on European letters alone, so that a small vocabulary holds them."""
    out = io.BytesIO()
    european = [" ".join("".join(c if c < "\u0250" and c.isprintable() else " " for c in text).split()) for text in texts()]
    settings = {"vocab_size": 420, "character_coverage": 0.99, "num_threads": 1, "minloglevel": 2, "hard_vocab_limit": False,
                "normalization_rule_name": "identity", "input_sentence_size": 0, "shuffle_input_sentence": False, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(filter(None, european)), model_writer=out, **settings)
    return out.getvalue()


def rules(folder):
    """A few rules of normalization: a charsmap of a few KiB, where that of NFKC has 240."""
    path = folder / "rules.tsv"
    path.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in old)}\t{' '.join(f'{ord(c):X}' for c in new)}\n" for old, new in
                            [("\u00bd", "1/2"), ("\ufb01", "fi"), ("\uff21", "A"), ("A\u030a", "\u00c5"), ("\u2003", " "), ("\u200b", "")]))
    return path


LLAMA = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 500, "allow_whitespace_only_pieces": True}


def bert(folder):
    write(folder, "config.json", {"model_type": "bert"})
    write(folder, "vocab.txt", "\n".join(word_pieces()) + "\n")


def bert_settings(folder):
    """Tokens that a list adds, one of them special; one that the vocabulary has is not normalized."""
    write(folder, "vocab.txt", "\r\n".join(word_pieces()))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizerFast", "do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False,
        "additional_special_tokens": ["<r>"], "model_max_length": 512, "chat_template": "{{ x }}"})
    write(folder, "special_tokens_map.json", {"cls_token": "[CLS]", "mask_token": {**MARK, "content": "[MASK]"}, "unk_token": "[UNK]"})
    write(folder, "added_tokens.json", {"<r>": 500, "Übung": 501, "er": 77})


def bert_lines(folder):
    """A vocabulary with white space, empty lines and equal lines."""
    words = word_pieces()
    words[200] += " \u00a0"
    words[210] = words[220]
    write(folder, "config.json", {"model_type": "bert"})
    write(folder, "vocab.txt", "\n".join([*words, "", "\u3000", words[100], ""]))


def bert_names(folder):
    """Other names, stated with their ids; tokens that only this model has."""
    words = word_pieces()
    words[:5] = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    write(folder, "config.json", {"model_type": "bert"})
    write(folder, "vocab.txt", "\n".join(words) + "\n")
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
        "mask_token": "<mask>", "z_token": "<z>", "a_token": "<a>", "c_token": typed("<c>", rstrip=True),
        "extra_special_tokens": ["<r>", typed("<l>", lstrip=True)],
        "added_tokens_decoder": {"0": token("<pad>"), "4": token("<mask>", lstrip=True), "500": token("Tag", single_word=True, special=False, normalized=True),
                                 "2": token("<s>"), "1": token("<unk>"), "3": token("</s>")}})


def gpt2(folder):
    byte_pairs(folder, ["<|endoftext|>"])
    write(folder, "config.json", {"model_type": "gpt2"})


def gpt2_settings(folder):
    gpt2(folder)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "add_bos_token": True, "add_eos_token": True, "pad_token": None,
        "bos_token": typed("<|im_start|>", normalized=True), "eos_token": "<|endoftext|>",
        "additional_special_tokens": ["<think>", "<|endoftext|>"]})


def roberta(folder):
    byte_pairs(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    write(folder, "config.json", {"model_type": "roberta"})
    write(folder, "special_tokens_map.json", {"bos_token": "<s>", "mask_token": MARK})


def roberta_prefix(folder):
    roberta(folder)
    write(folder, "config.json", {"model_type": "roberta", "tokenizer_class": "RobertaTokenizer"})
    write(folder, "tokenizer_config.json", {"add_prefix_space": True, "trim_offsets": False, "cls_token": "</s>"})


def qwen2(folder):
    """The model type demands its class, whatever the file states."""
    write(folder, "config.json", {"model_type": "qwen2"})
    size = len(byte_pairs(folder, []))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "errors": "replace", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "added_tokens_decoder": {str(size): token("<|endoftext|>"), str(size + 1): token("<|im_start|>", lstrip=True),
                                 str(size + 2): token("<|im_end|>"), str(size + 3): token("<think>", special=False)}})


def llama(folder):
    write(folder, "config.json", {"model_type": "llama"})
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False, "pad_token": None,
        "bos_token": typed("<s>", normalized=True), "eos_token": typed("</s>", normalized=True), "unk_token": typed("<unk>", normalized=True)})


def llama_legacy(folder):
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA, user_defined_symbols=["<|im_start|>", "▁▁"]))
    write(folder, "config.json", {"model_type": "llama"})
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizerFast", "legacy": True, "add_bos_token": True, "add_eos_token": True, "additional_special_tokens": []})
    write(folder, "special_tokens_map.json", {"pad_token": "</s>"})
    write(folder, "added_tokens.json", {"<think>": 500})


def llama_plain(folder):
    """Without a class: the model type has none of its own."""
    write(folder, "config.json", {"model_type": "llama"})
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA, user_defined_symbols=["<r>"]))


def mistral(folder):
    """The class that it states does not count; a token of the file has another name."""
    write(folder, "config.json", {"model_type": "mistral"})
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA, control_symbols=["[control_8]"]))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True, "bos_token": "<s>", "eos_token": "</s>",
        "added_tokens_decoder": {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>"), "3": token("[INST]")}})


def gemma(folder):
    write(folder, "config.json", {"model_type": "gemma"})
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>",
                                                     bos_piece="<bos>", user_defined_symbols=["<mask>", "<start_of_turn>", "▁▁", "\t"]))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "unk_token": "<unk>", "additional_special_tokens": ["<start_of_turn>"]})


def t5(folder):
    write(folder, "config.json", {"model_type": "t5"})
    write(folder, "spiece.model", sentence_pieces(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                                  normalization_rule_tsv=str(rules(folder))))


def t5_extra(folder):
    t5(folder)
    write(folder, "tokenizer_config.json", {"extra_ids": 3, "eos_token": "</s>", "additional_special_tokens": [f"<extra_id_{n}>" for n in range(3)]})


def albert(folder):
    write(folder, "config.json", {"model_type": "albert"})
    write(folder, "spiece.model", sentence_pieces(model_type="unigram", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]"],
                                                  user_defined_symbols=["[MASK]", "(", "-"], normalization_rule_tsv=str(rules(folder))))


def albert_cased(folder):
    albert(folder)
    write(folder, "tokenizer_config.json", {"do_lower_case": False, "keep_accents": True, "mask_token": typed("[MASK]", lstrip=True, normalized=False),
                                            "add_prefix_space": False})


def xlm_roberta(folder):
    write(folder, "config.json", {"model_type": "xlm-roberta"})
    write(folder, "sentencepiece.bpe.model", sentence_pieces(model_type="unigram", normalization_rule_tsv=str(rules(folder))))


def xlm_roberta_settings(folder):
    xlm_roberta(folder)
    write(folder, "tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer", "mask_token": typed("<mask>", lstrip=True), "model_max_length": 512})
    write(folder, "special_tokens_map.json", {"additional_special_tokens": ["<r>"]})


def camembert(folder):
    write(folder, "config.json", {"model_type": "camembert"})
    write(folder, "sentencepiece.bpe.model", sentence_pieces(model_type="unigram"))


KINDS = [bert, bert_lines, bert_settings, bert_names, gpt2, gpt2_settings, roberta, roberta_prefix, qwen2, llama, llama_legacy, llama_plain, mistral,
         gemma, t5, t5_extra, albert, albert_cased, xlm_roberta, xlm_roberta_settings, camembert]


class Draw:
    """Settings by chance, of the kinds that files hold."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, choices, share=0.4):
        return {key: make() for key, make in choices.items() if self.random.random() < share}

    def content(self):
        return self.random.choice(["<s>", "</s>", "<unk>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<a>", "<b>", "<c>", "er", "a", "Tag",
                                   "<|endoftext|>", "<|im_end|>", "\u2581a", "<extra_id_1>"])

    def flag(self):
        return self.random.random() < 0.5

    def object(self, **members):
        return {"content": self.content(), **self.some({name: self.flag for name in ("lstrip", "rstrip", "single_word", "normalized")}, 0.7), **members}

    def token(self):
        return self.random.choice([self.content, self.content, lambda: {"__type": "AddedToken", **self.object(special=self.flag())}])()

    def tokens(self):
        return [self.token() for _ in range(self.random.randrange(4))]

    def names(self, make):
        return {f"{name}_token": make for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask", "image", "z")}

    def ids(self, size):
        return {self.random.choice([self.random.randrange(6), size + n, self.random.randrange(size)]): None for n in range(self.random.randrange(1, 5))}

    def config(self, size):
        flags = ("add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "keep_accents", "legacy", "strip_accents",
                 "tokenize_chinese_chars", "trim_offsets")
        config = {**self.some({name: self.flag for name in flags}), **self.some(self.names(self.token), 0.2),
                  **self.some({"additional_special_tokens": self.tokens, "extra_special_tokens": self.random.choice([self.tokens, self.tokens, lambda: {
                      "b_extra": self.token(), "a_extra": self.token()}])}, 0.3)}
        if self.random.random() < 0.4:
            tokens = {token["content"]: token for token in (self.object(special=self.flag()) for _ in range(4))}
            config["added_tokens_decoder"] = {str(n): token for n, token in zip(self.ids(size), tokens.values())}
        entries = list(config.items())
        self.random.shuffle(entries)
        return dict(entries)

    def map(self):
        return {**self.some(self.names(self.random.choice([self.content, self.object])), 0.3), **self.some({"additional_special_tokens": lambda: [
            self.content() for _ in range(2)]}, 0.3)}

    def added(self, size):
        return {f"{self.content()}{'' if self.flag() else n}": n for n in self.ids(size)}


def draw_folder(draw, sources, folder):
    kind = draw.random.choice(KINDS)
    source = sources / kind.__name__
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.name not in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "expected.json"):
            (folder / file.name).write_bytes(file.read_bytes())
    stated = json.loads((source / "tokenizer_config.json").read_text()).get("tokenizer_class") if (source / "tokenizer_config.json").exists() else None
    config = {**draw.config(500), **({"tokenizer_class": stated} if stated else {})}
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", draw.map()), ("added_tokens.json", draw.added(500))):
        if name == "tokenizer_config.json" or draw.random.random() < 0.4:
            write(folder, name, content)
    try:
        facts = {"document": json.loads(AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str())}
    except BaseException as error:  # also the panics of the Rust library
        facts = {"error": str(error)[:300]}
    write(folder, "expected.json", {"kind": kind.__name__, **facts})


def expected(folder, strings):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    fast = tokenizer.backend_tokenizer
    results = record(fast, strings)
    for text, result in zip(strings, results):
        if tokenizer(text)["input_ids"] != result["special"]:
            raise ValueError(f"{folder}: AutoTokenizer and its fast tokenizer differ for {text!r}")
    return {"class": type(tokenizer).__name__, "document": json.loads(fast.to_str()), "strings": results}


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--reload":
        for folder in sorted(Path(arguments[1]).iterdir()):
            before = json.loads((folder / "expected.json").read_text())["strings"]
            if expected(folder, [entry["text"] for entry in before])["strings"] != before:
                print(f"{folder.name} differs")
        print("compared")
        return 0
    if len(arguments) == 4 and arguments[0] == "--draw":
        draw, sources = Draw(int(arguments[2])), Path(__file__).resolve().parents[2] / "tests/tokenizers/data/folders"
        for n in range(int(arguments[1])):
            draw_folder(draw, sources, Path(arguments[3]) / str(n))
        return 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for kind in KINDS:
        folder = Path(arguments[0]) / kind.__name__
        folder.mkdir(parents=True, exist_ok=True)
        kind(folder)
        (folder / "rules.tsv").unlink(missing_ok=True)
        facts = expected(folder, Words(3).strings(40))
        (folder / "expected.json").write_text(json.dumps(facts, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"{kind.__name__}: {facts['class']}, {len(facts['document']['model']['vocab'])} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
