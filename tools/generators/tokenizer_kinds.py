"""Kinds of tokenizers as published families put them together, with small vocabularies that Python's `tokenizers` trains here.

`KINDS` is a dict of functions; each takes a `Trained` and returns a Tokenizer, or the document of a tokenizer.json as a dict where a
file is written as older versions wrote it. The regular expressions are public facts: those of the families' tokenizer.json.
"""

import copy
import functools
import io
import json

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_tokenizers import LLAMA3, QWEN, Words, roberta_post
from sentence_tokenizers import BEGIN, CLS_SEP, ROBERTA as ROBERTA_POST, template

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace(CONTRACTIONS, "").replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+" + CONTRACTIONS,
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
EMPTY = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
         "post_processor": None, "decoder": None}


class Trained:
    """Models that were trained once, as they stand in a tokenizer.json."""

    def __init__(self, seed, text=None, size=None):
        """Trained on words of the seed, or on a text, then with as many tokens."""
        words = Words(seed)
        self.text = text or [words.text(12) for _ in range(2000)]
        self.short = text[::10] if text else [words.text(3) for _ in range(6000)]
        self.size, self.letters = size, size and max(1000, size // 10)

    def _model(self, tokenizer, trainer, text=None):
        tokenizer.train_from_iterator(text or self.text, trainer)
        return json.loads(tokenizer.to_str())["model"]

    @functools.cached_property
    def byte_level(self):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return self._model(tokenizer, trainers.BpeTrainer(vocab_size=self.size or 900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))

    @functools.cached_property
    def byte_level_words(self):
        tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", True), pre_tokenizers.ByteLevel(False)])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        model = self._model(tokenizer, trainers.BpeTrainer(vocab_size=self.size or 900, initial_alphabet=alphabet, end_of_word_suffix="</w>",
                                                           special_tokens=["<|startoftext|>", "<|endoftext|>"], show_progress=False))
        for character in alphabet:  # a word may be any single byte
            model["vocab"].setdefault(character + "</w>", len(model["vocab"]))
        return model

    @functools.cached_property
    def words(self):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return self._model(tokenizer, trainers.BpeTrainer(vocab_size=self.size or 700, limit_alphabet=self.letters or 200, end_of_word_suffix="</w>",
                                                          special_tokens=["<unk>"], show_progress=False))

    @functools.cached_property
    def spaced(self):
        """As SentencePiece trains BPE: spaces are U+2581, bytes have tokens, merges may cross words."""
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        trainer = trainers.BpeTrainer(vocab_size=self.size or 1300, limit_alphabet=self.letters or 260, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False)
        return self._model(tokenizer, trainer, self.short)

    @functools.cached_property
    def spaced_words(self):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return self._model(tokenizer, trainers.BpeTrainer(vocab_size=self.size or 900, limit_alphabet=self.letters or 260, special_tokens=["<unk>"], show_progress=False))

    def _unigram(self, specials):
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return self._model(tokenizer, trainers.UnigramTrainer(vocab_size=self.size or 1100, special_tokens=specials, unk_token="<unk>", show_progress=False))

    @functools.cached_property
    def unigram(self):
        return self._unigram(["<pad>", "</s>", "<unk>"])

    @functools.cached_property
    def unigram_bytes(self):
        """Less than every character is known."""
        model = self._unigram(["<pad>", "</s>", "<unk>", *BYTES])
        model["vocab"] = [entry for i, entry in enumerate(model["vocab"]) if i < 260 or len(entry[0]) > 1 or entry[0] < "\u0400"]
        model["byte_fallback"] = True
        return model

    def word_piece(self, **settings):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(**settings)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        return self._model(tokenizer, trainers.WordPieceTrainer(vocab_size=self.size or 900, limit_alphabet=self.letters or 450, special_tokens=specials, show_progress=False))

    @functools.cached_property
    def uncased(self):
        return self.word_piece(lowercase=True)

    @functools.cached_property
    def cased(self):
        return self.word_piece(lowercase=False)

    @functools.cached_property
    def word_level(self):
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return self._model(tokenizer, trainers.WordLevelTrainer(vocab_size=self.size or 600, special_tokens=["<unk>"], show_progress=False))


def assemble(model, normalizer=None, pre=None, post=None, decoder=None, special=(), added=(), **changes):
    """A tokenizer of these parts; post is a function of the tokenizer, which knows the ids."""
    tokenizer = Tokenizer.from_str(json.dumps({**EMPTY, "model": {**model, **changes}}))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    if special:
        tokenizer.add_special_tokens([one if isinstance(one, AddedToken) else AddedToken(one, special=True, normalized=False) for one in special])
    if added:
        tokenizer.add_tokens([one if isinstance(one, AddedToken) else AddedToken(one, normalized=False) for one in added])
    if decoder:
        tokenizer.decoder = decoder
    if post:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


T5_POST = template("$A </s>", "$A </s> $B:0 </s>:0")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
LLAMA_SPACES = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
WHOLE_TEXT = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
LLAMA_TEXT = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def splits(*patterns, after=BYTE_LEVEL):
    return pre_tokenizers.Sequence([*[one if not isinstance(one, str) else pre_tokenizers.Split(Regex(one), "isolated") for one in patterns], after])


def post_byte_level(trim):
    return lambda _: processors.ByteLevel(trim_offsets=trim)


@functools.cache
def precompiled():
    """The map of SentencePiece's usual rule, nmt_nfkc, out of a model that is trained for it."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b"]), model_writer=out, vocab_size=8, hard_vocab_limit=False,
                                             minloglevel=2, normalization_rule_name="nmt_nfkc")
    return normalizers.Precompiled(ModelProto.FromString(out.getvalue()).normalizer_spec.precompiled_charsmap)


def old_form(tokenizer):
    """As files were written before types, pairs of merges and later options."""
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    for key in ("type", "ignore_merges", "byte_fallback"):
        model.pop(key, None)
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    return document


def edited(tokenizer, edit):
    document = json.loads(tokenizer.to_str())
    edit(document)
    return document


def byte_kind(pre, normalizer=None, post=post_byte_level(False), special=("<|endoftext|>",), added=(), **changes):
    return lambda t: assemble(t.byte_level, normalizer, pre, post, decoders.ByteLevel(), special, added, **changes)


def llama(normalizer=LLAMA_SPACES, pre=None, decoder=LLAMA_TEXT, post=BEGIN, special=("<unk>", "<s>", "</s>"), added=(), **changes):
    return lambda t: assemble(t.spaced, normalizer, pre, post, decoder, special, added, **changes)


def metaspace(scheme, split):
    pre = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
    return lambda t: assemble(t.spaced_words, None, pre, None, decoder, ["<unk>", "<s>", "<mask>"],
                              [AddedToken("<r>", rstrip=True, normalized=False), AddedToken("Tag", normalized=True)])


def unigram(normalizer, pre=pre_tokenizers.Metaspace(), post=T5_POST, decoder=decoders.Metaspace(), special=("<pad>", "</s>", "<unk>"), added=(),
            trained="unigram", **changes):
    return lambda t: assemble(getattr(t, trained), normalizer, pre, post, decoder, special, added, **changes)


def bert(trained, normalizer, post=CLS_SEP, decoder=decoders.WordPiece(), **changes):
    return lambda t: assemble(getattr(t, trained), normalizer, pre_tokenizers.BertPreTokenizer(), post, decoder, SPECIALS, **changes)


def few_bytes(trained):
    """Some bytes have no token: their characters are unknown."""
    model = copy.deepcopy(trained.spaced)
    for byte in (0x09, 0xE2, 0xF0, 0x80):
        model["vocab"][f"<0x{byte:02X}>x"] = model["vocab"].pop(f"<0x{byte:02X}>")
    return assemble(model, LLAMA_SPACES, None, BEGIN, LLAMA_TEXT, ["<unk>", "<s>", "</s>"])


def characters(trained):
    """Letters of a protein: a vocabulary of single characters and added tokens."""
    vocab = {token: i for i, token in enumerate(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"])}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
    return assemble(model, None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("", "isolated")]),
                    template("<cls> $A <eos>", "<cls> $A <eos> $B <eos>"), None, ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"])


def speech(trained):
    vocab = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZetaonihsrd"])}
    return assemble({"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}, normalizers.Replace(" ", "|"), pre_tokenizers.Split("", "isolated"),
                    None, decoders.CTC(), ["<pad>", "<s>", "</s>", "<unk>"])


STRIPS = [AddedToken("<r>", rstrip=True, normalized=False), AddedToken("<l>", lstrip=True, normalized=False),
          AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("Tag", normalized=True, single_word=True),
          AddedToken("Übung", normalized=True), AddedToken("<end", normalized=False), AddedToken("tag", single_word=True, normalized=False),
          AddedToken("a b", normalized=True), AddedToken("।", normalized=False)]
GEMMA_PRE = pre_tokenizers.Split(" ", "merged_with_previous")
FULL_WIDTH = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True, normalized=False)]
WORDS_AND_SPACES = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
ALBERT = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                               normalizers.Lowercase(), precompiled()])
NEW_T5 = normalizers.Sequence([precompiled(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
ONE_SPACE = normalizers.Sequence([precompiled(), normalizers.Replace(Regex(" {2,}"), " ")])
MANY_SPACES = [AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)]

KINDS = {
    # Byte-level BPE.
    "gpt2": byte_kind(pre_tokenizers.ByteLevel(False)),
    "gpt2_old_form": lambda t: old_form(byte_kind(pre_tokenizers.ByteLevel(False))(t)),
    "gpt2_prefix": byte_kind(pre_tokenizers.ByteLevel(True), post=post_byte_level(True), added=STRIPS),
    "roberta": lambda t: assemble(t.byte_level, None, pre_tokenizers.ByteLevel(True), roberta_post, decoders.ByteLevel(), ROBERTA),
    "llama3": byte_kind(splits(LLAMA3), special=["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True, post=lambda t: processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), template("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1")(t)])),
    "qwen": byte_kind(splits(QWEN), normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>"], added=["<think>", AddedToken("U\u0308bung", normalized=True)]),
    "qwen3_5": byte_kind(splits(QWEN35), normalizers.NFC()),
    "o200k": byte_kind(splits(O200K)),
    "tekken": byte_kind(splits(TEKKEN), ignore_merges=True),
    "kimi": byte_kind(splits(KIMI)),
    "deepseek_v3": byte_kind(splits(r"\p{N}{1,3}", r"[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3), normalizers.Sequence([]), special=FULL_WIDTH),
    "deepseek_coder": byte_kind(splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", pre_tokenizers.Digits(True)), special=FULL_WIDTH),
    "starcoder": byte_kind(splits(pre_tokenizers.Digits(True), after=pre_tokenizers.ByteLevel(False))),
    "falcon": byte_kind(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False), pre_tokenizers.Digits(False),
                                                 pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
    "bloom": byte_kind(splits(BLOOM)),
    "neox": byte_kind(pre_tokenizers.ByteLevel(False), normalizers.NFC(), post=post_byte_level(True), added=MANY_SPACES),
    "whisper": byte_kind(pre_tokenizers.ByteLevel(False), special=["<|endoftext|>", "<|sot|>"], post=template("<|sot|> $A <|endoftext|>", "<|sot|> $A $B <|endoftext|>")),
    "command_r": byte_kind(splits(pre_tokenizers.Digits(True), after=pre_tokenizers.ByteLevel(False)), normalizers.NFC(),
                           special=["<BOS_TOKEN>"], post=template("<BOS_TOKEN> $A", "<BOS_TOKEN> $A $B")),
    "claude": byte_kind(pre_tokenizers.ByteLevel(False), normalizers.NFKC(), post=None),
    "clip": lambda t: assemble(t.byte_level_words, normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                               pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", True), pre_tokenizers.ByteLevel(False)]),
                               lambda k: processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), False, False),
                               decoders.ByteLevel(), ["<|startoftext|>", "<|endoftext|>"]),
    "byte_level_normalizer": lambda t: assemble(t.byte_level, normalizers.ByteLevel(), None, None, decoders.ByteLevel(), ["<|endoftext|>"]),
    # BPE as SentencePiece has it.
    "llama2_legacy": llama(),
    "llama2_old_form": lambda t: edited(llama()(t), lambda d: d["model"].update(merges=[" ".join(pair) for pair in d["model"]["merges"]])),
    "llama2_new": llama(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "llama2_added": llama(added=STRIPS),
    "llama2_new_added": llama(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), added=STRIPS),
    "phi3": llama(special=["<unk>", "<s>", AddedToken("</s>", rstrip=True, normalized=False, special=True)],
                  added=[AddedToken(name, rstrip=True, normalized=False) for name in ("<|eot_id|>", "<|im_start|>")]),
    "mistral": llama(special=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], post=lambda k: processors.Sequence([processors.ByteLevel(trim_offsets=True), BEGIN(k)])),
    "gemma": llama(normalizers.Replace(" ", "▁"), GEMMA_PRE, WHOLE_TEXT, template("<s>:0 $A:0", "<s>:0 $A:0 <s>:1 $B:1"), added=["\n\n", "▁▁▁", "<mask>"]),
    "gemma_merged": llama(normalizers.Replace(" ", "▁"), pre_tokenizers.Split("▁", "merged_with_next"), WHOLE_TEXT, added=MANY_SPACES),
    "yi": llama(normalizers.Replace(" ", "▁"), None, WHOLE_TEXT, None),
    # What transformers 5.24 makes of a tokenizer.model alone.
    "model_alone": llama(normalizers.Sequence([normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " "),
                                               normalizers.Replace(" ", "▁"), normalizers.Replace(Regex("\\A▁"), "▁▁")]),
                         pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
                                                  pre_tokenizers.Split(Regex(r"<\|im_start\|>|▁▁|a\.b"), "isolated")]), post=None, ignore_merges=True),
    "no_bytes": llama(byte_fallback=False),
    "no_bytes_unfused": llama(byte_fallback=False, fuse_unk=False),
    "bytes_unfused": llama(fuse_unk=False),
    "few_bytes": few_bytes,
    "bytes_ignore_merges": llama(None, pre_tokenizers.Metaspace(prepend_scheme="always"), ignore_merges=True),
    "bytes_no_unknown": llama(unk_token=None, post=None),
    "nfkc_strip_spaces": llama(normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Prepend("▁"), normalizers.Replace(Regex(r"\s+"), "▁")]), added=STRIPS),
    "strip_both_decoder": llama(decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Replace("▁", " "), decoders.Strip(" ", 2, 1)])),
    "bytes_then_byte_level": llama(decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()])),
    "regex_replace_decoder": llama(decoder=decoders.Sequence([decoders.Replace(Regex("▁+"), " "), decoders.ByteFallback(), decoders.Fuse()])),
    **{f"metaspace_{scheme}_{'split' if split else 'whole'}": metaspace(scheme, split) for scheme in ("always", "first", "never") for split in (True, False)},
    "metaspace_old_form": lambda t: edited(metaspace("always", True)(t), lambda d: [
        (part.pop("prepend_scheme"), part.pop("split"), part.update(add_prefix_space=True, str_rep="▁")) for part in (d["pre_tokenizer"], d["decoder"])]),
    "metaspace_digits": lambda t: assemble(t.spaced_words, None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace(
        prepend_scheme="first")]), None, decoders.Metaspace(prepend_scheme="first"), ["<unk>"], STRIPS),
    # Unigram.
    "t5": unigram(precompiled(), WORDS_AND_SPACES, added=["<extra_id_0>"]),
    "t5_new": unigram(NEW_T5, pre_tokenizers.Metaspace(), special=["<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True, normalized=False)]),
    "albert": unigram(ALBERT, WORDS_AND_SPACES, CLS_SEP, special=[
        "<pad>", "<unk>", "[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True, special=True, normalized=False)]),
    "xlm_roberta": unigram(precompiled(), WORDS_AND_SPACES, ROBERTA_POST, special=ROBERTA),
    "camembert": unigram(ONE_SPACE, pre_tokenizers.Metaspace(), ROBERTA_POST, special=[*ROBERTA, AddedToken("<s>NOTUSED", normalized=True, special=True)], added=STRIPS),
    "xlnet": unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
                     post=template("$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"), special=["<unk>", "<sep>", "<cls>", "<pad>"]),
    "deberta": unigram(normalizers.Sequence([normalizers.Strip(), precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
                       pre_tokenizers.Sequence([pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Metaspace()]), CLS_SEP, special=SPECIALS),
    "unigram_nfkc": unigram(normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None),
    "unigram_bytes": unigram(precompiled(), trained="unigram_bytes", decoder=decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace()])),
    "unigram_bytes_whole": unigram(normalizers.Sequence([normalizers.Replace(" ", "▁")]), None, trained="unigram_bytes", decoder=WHOLE_TEXT, added=STRIPS),
    "unigram_no_pre": unigram(precompiled(), None, None, None),
    "unigram_no_unknown": lambda t: edited(unigram(None, post=None, special=["<pad>", "</s>"])(t), lambda d: d["model"].update(unk_id=None)),
    "unigram_old_form": lambda t: edited(unigram(precompiled())(t), lambda d: (d["model"].pop("type"), d["model"].pop("byte_fallback"))),
    # WordPiece, WordLevel and words.
    "bert_uncased": bert("uncased", normalizers.BertNormalizer(lowercase=True)),
    "bert_cased": bert("cased", normalizers.BertNormalizer(lowercase=False), lambda k: processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
    "bert_accents": bert("cased", normalizers.BertNormalizer(lowercase=True, strip_accents=False)),
    "bert_chinese": bert("uncased", normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False), decoder=decoders.WordPiece(cleanup=False)),
    "bert_short_words": bert("uncased", normalizers.BertNormalizer(), max_input_chars_per_word=5),
    "mpnet": bert("uncased", normalizers.BertNormalizer(), lambda k: processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2), True, False)),
    "word_level": lambda t: assemble(t.word_level, None, pre_tokenizers.Whitespace(), None, None, ["<unk>"], STRIPS),
    "word_level_lower": lambda t: assemble(t.word_level, normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
                                           pre_tokenizers.Whitespace(), None, decoders.Fuse(), ["<unk>", AddedToken("[MASK]", normalized=True, special=True)], STRIPS),
    "protein": characters,
    "openai_gpt": lambda t: assemble(t.words, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), None, decoders.BPEDecoder(), ["<unk>"]),
    "words_fused": lambda t: assemble(t.words, normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]), pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]), None, decoders.BPEDecoder(), ["<unk>"], STRIPS, fuse_unk=True),
    # Patterns that match nothing, between the characters.
    "split_everywhere": byte_kind(splits(pre_tokenizers.Split("", "merged_with_previous"))),
    "split_at_nothing": byte_kind(splits(pre_tokenizers.Split(Regex(r"x*"), "merged_with_next"), pre_tokenizers.Split(Regex(r"\s*"), "contiguous"))),
    "replace_nothing": llama(normalizers.Sequence([normalizers.Replace("", "▁"), normalizers.Replace(Regex("a*"), "é")]), added=STRIPS),
    "replace_nothing_decoder": llama(decoder=decoders.Sequence([decoders.Replace("", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("", "-")])),
    # Parts that few published files name.
    "speech": speech,
    "nmt": unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]), pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace()])),
    "delimiter": lambda t: assemble(t.word_level, None, pre_tokenizers.CharDelimiterSplit(" "), None, None, ["<unk>"]),
    "fixed_length": byte_kind(splits(pre_tokenizers.FixedLength(3))),
}


def document_of(kind, trained):
    """The text of the kind's tokenizer.json."""
    made = KINDS[kind](trained)
    return json.dumps(made, ensure_ascii=False) if isinstance(made, dict) else made.to_str()
