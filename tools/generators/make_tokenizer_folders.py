#!/usr/bin/env python3
"""Makes small folders as models are published, with and without a tokenizer.json, and records what AutoTokenizer makes of them.

    tools/generators/make_tokenizer_folders.py FOLDER                  writes the folders that tests/tokenizers/data/folders holds
    tools/generators/make_tokenizer_folders.py --classes OUT           folders whose tokenizer.json and class disagree, as changes of the former: the file
                                                                       tests/tokenizers/data/class_folders.json
    tools/generators/make_tokenizer_folders.py --reload FOLDER         compares what AutoTokenizer makes of the folders in FOLDER with their expected.json;
                                                                       prints those whose ids differ
    tools/generators/make_tokenizer_folders.py --draw N SEED OUT       N folders with drawn settings, OUT/0 and on

Each gets a file expected.json: the document of its fast tokenizer, strings and their ids; a drawn one the document alone, or the error. Needs the wheels `transformers` 5.24.0,
`tokenizers`, `sentencepiece` and `protobuf` of tools/checks/python_requirements.txt.
"""

import io
import json
import os
import random
import sys
import tempfile
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


def llama_spaces(folder):
    """A model that keeps spaces as they are, with tokens of its user's."""
    write(folder, "config.json", {"model_type": "llama"})
    write(folder, "tokenizer.model", sentence_pieces(**LLAMA, add_dummy_prefix=False, remove_extra_whitespaces=False,
                                                     user_defined_symbols=["▁▁▁", "[a.b]", "th", "<|x|>", "▁▁"]))


def llama_unigram(folder):
    write(folder, "config.json", {"model_type": "llama"})
    write(folder, "tokenizer.model", sentence_pieces(model_type="unigram", byte_fallback=True, user_defined_symbols=["<r>"],
                                                     normalization_rule_tsv=str(rules(folder))))
    write(folder, "tokenizer_config.json", {"legacy": False, "add_bos_token": True})


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


KINDS = [bert, bert_lines, bert_settings, bert_names, gpt2, gpt2_settings, roberta, roberta_prefix, qwen2, llama, llama_legacy, llama_plain, llama_spaces, llama_unigram,
         mistral, gemma, t5, t5_extra, albert, albert_cased, xlm_roberta, xlm_roberta_settings, camembert]


# Folders whose tokenizer.json and class disagree: for each class of FAMILIES, the tokenizer.json that it makes, changed in one place.

FOLDERS = Path(__file__).resolve().parents[2] / "tests/tokenizers/data/folders"
FAMILIES = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "roberta": "RobertaTokenizer", "qwen2": "Qwen2Tokenizer", "t5": "T5Tokenizer",
            "albert": "AlbertTokenizer", "llama": "LlamaTokenizer", "gemma": "GemmaTokenizer"}
TEXTS = ["Hello world 12", "  an  \u00c4PFEL na\u00efve ", "\u4e2d\u6587 it's <new> a\n", "<s>the</s> [MASK]er<mask>", "Tag tags \u00bd `` a\u2581b"]


def base_document(family):
    return json.loads((FOLDERS / family / "expected.json").read_text())["document"]


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


def byte_level(prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}


def template(name, number):
    around = {"SpecialToken": {"id": name, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {"type": "TemplateProcessing", "single": [around, first, around], "pair": [around, first, around, second],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}}}


def changes(document):
    """Members of a tokenizer.json in place of a document's; those of "model" are set one by one."""
    model, tokens = document["model"], document["added_tokens"]
    words = [entry[0] for entry in model["vocab"]] if model["type"] == "Unigram" else sorted(model["vocab"], key=model["vocab"].get)
    new = max([len(words)] + [token["id"] + 1 for token in tokens])
    lower = {"type": "Lowercase"}
    prefixed = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    plain = {"NFKC": {"type": "NFKC"}, "StripAccents": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}}
    found = {
        "normalizer null": {"normalizer": None}, "normalizer Lowercase": {"normalizer": lower}, "normalizer Prepend": {"normalizer": prefixed},
        "normalizer NFKC": {"normalizer": plain["NFKC"]}, "normalizer StripAccents": {"normalizer": plain["StripAccents"]},
        "pre_tokenizer null": {"pre_tokenizer": None}, "pre_tokenizer Whitespace": {"pre_tokenizer": {"type": "Whitespace"}},
        "pre_tokenizer Metaspace always": {"pre_tokenizer": metaspace("always")},
        "pre_tokenizer Metaspace never": {"pre_tokenizer": metaspace("never", split=False)},
        "pre_tokenizer BertPreTokenizer": {"pre_tokenizer": {"type": "BertPreTokenizer"}},
        "pre_tokenizer ByteLevel": {"pre_tokenizer": byte_level(prefix=True)},
        "pre_tokenizer Digits": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, metaspace("first")]}},
        "decoder null": {"decoder": None}, "decoder WordPiece": {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
        "decoder Fuse": {"decoder": {"type": "Fuse"}},
        "post_processor null": {"post_processor": None}, "post_processor template": {"post_processor": template(words[7], 7)},
        "post_processor RobertaProcessing": {"post_processor": {"type": "RobertaProcessing", "sep": [words[5], 5], "cls": [words[6], 6],
                                                                "trim_offsets": True, "add_prefix_space": True}},
        "added_tokens none": {"added_tokens": []},
        "added_tokens new": {"added_tokens": [*tokens, {"id": new, **token("<new>", special=False, lstrip=True)},
                                              {"id": new + 1, **token("Tag", special=False, normalized=True, single_word=True)}]},
        "added_tokens strip": {"added_tokens": [{**entry, "lstrip": True, "rstrip": True} for entry in tokens]},
        "added_tokens normalized": {"added_tokens": [{**entry, "normalized": True, "special": False} for entry in tokens]},
        "limits": {"truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
                   "padding": {"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 1, "pad_type_id": 0,
                               "pad_token": words[1]}},
        "model WordLevel": {"model": {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(words)}, "unk_token": words[3]}},
    }
    members = {"WordPiece": {"unk_token": words[3], "max_input_chars_per_word": 3, "continuing_subword_prefix": "#"},
               "Unigram": {"unk_id": 5, "byte_fallback": True},
               "BPE": {"unk_token": words[3], "byte_fallback": not model.get("byte_fallback"), "fuse_unk": not model.get("fuse_unk"),
                       "ignore_merges": True, "merges": [" ".join(merge) for merge in model.get("merges", [])]}}[model["type"]]
    return {**found, **{f"model {name}": {"model": {name: value}} for name, value in members.items()}}


SETTINGS = {
    "flags": {"do_lower_case": False, "add_prefix_space": False, "keep_accents": True, "legacy": True, "tokenize_chinese_chars": False},
    "other flags": {"add_prefix_space": True, "strip_accents": True, "trim_offsets": False, "legacy": False},
    "add_bos_token": {"add_bos_token": True, "add_eos_token": True},
    "new pad_token": {"pad_token": "<new>", "image_token": "<image>"},
    "extra tokens": {"extra_special_tokens": ["<new>", typed("Tag", lstrip=True)], "model_specific_special_tokens": {"z_token": "<z>"}},
    "added_tokens_decoder": {"added_tokens_decoder": {"9": token("the"), "1000": token("<new>", rstrip=True)}},
}


def changed(document, change):
    return {**document, **change, "model": {**document["model"], **change["model"]} if "model" in change else document["model"]}


def class_folders(family, name):
    """The files of folders of one class, beside the change of the tokenizer.json."""
    document, config = base_document(family), {"model_type": family}
    stated = {"tokenizer_class": name}
    for what, change in changes(document).items():
        yield what, change, {"tokenizer_config.json": stated, "config.json": config}
    lower = {"normalizer": {"type": "Lowercase"}}
    for what, settings in SETTINGS.items():
        yield what, {}, {"tokenizer_config.json": {**stated, **settings}, "config.json": config}
    yield "class by model type", lower, {"config.json": config}
    yield "class alone, Fast", lower, {"tokenizer_config.json": {"tokenizer_class": name + "Fast"}}
    yield "class of config.json", lower, {"config.json": {**config, "tokenizer_class": name}}
    yield "PreTrainedTokenizerFast", lower, {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    yield "PreTrainedTokenizerFast, settings", lower, {"tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", **SETTINGS["new pad_token"], **SETTINGS["add_bos_token"], "additional_special_tokens": ["Tag"]}}
    yield "older files", lower, {"tokenizer_config.json": stated, "special_tokens_map.json": {"additional_special_tokens": ["Tag"], "pad_token": "<new>"},
                                 "added_tokens.json": {"<new>": 1000}}


def read_by_python(folder):
    """What AutoTokenizer makes of TEXTS, or its error; the class."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        return {"class": type(tokenizer).__name__, "ids": ids, "decoded": [tokenizer.decode(one) for one in ids]}
    except BaseException as error:  # also the panics of the Rust library
        return {"error": str(error)[:100]}


def record_classes(out):
    cases = []
    for family, name in FAMILIES.items():
        for what, change, files in class_folders(family, name):
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder), "tokenizer.json", changed(base_document(family), change))
                for file, content in files.items():
                    write(Path(folder), file, content)
                cases.append({"family": family, "name": what, "change": change, "files": files, **read_by_python(folder)})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    out.write_text(f'{{"texts": {json.dumps(TEXTS, ensure_ascii=False)},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


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
    if draw.flag():
        document = base_document(kind.__name__)
        drawn = {name: change for name, change in changes(document).items() if name != "model WordLevel"}
        for name in draw.random.sample(sorted(drawn), draw.random.randrange(4)):
            document = changed(document, drawn[name])
        write(folder, "tokenizer.json", document)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer("a")  # puts the limits of a call in place of the file's
        facts = {"document": json.loads(tokenizer.backend_tokenizer.to_str())}
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
        draw = Draw(int(arguments[2]))
        for n in range(int(arguments[1])):
            draw_folder(draw, FOLDERS, Path(arguments[3]) / str(n))
        return 0
    if len(arguments) == 2 and arguments[0] == "--classes":
        record_classes(Path(arguments[1]))
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
