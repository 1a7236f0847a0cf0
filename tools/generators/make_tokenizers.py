#!/usr/bin/env python3
"""Trains small tokenizers of every kind that attentive::tokenizers reads, and records what Python's `tokenizers` makes of text.

    tools/generators/make_tokenizers.py FOLDER                             writes the files that tests/tokenizers/data holds; a tokenizer that is there is kept,
                                                                           because training is not the same twice
    tools/generators/make_tokenizers.py --record N SEED TOKENIZER... OUT   N fresh strings, and what each tokenizer.json makes of them
    tools/generators/make_tokenizers.py --encodings N SEED TOKENIZER... OUT  offsets, masks, pairs, truncation, padding and batches of N fresh strings
    tools/generators/make_tokenizers.py --variants N SEED OUT              what each normalizer and pre-tokenizer, by itself, makes of N fresh strings
    tools/generators/make_tokenizers.py --own BPE CHAR OUT                 what Python makes of strings with tokenizers of attentive-train. BPE and CHAR are
                                                                           folders with own.json, as a checkpoint holds it, and tokenizer.json, as
                                                                           attentive-convert writes it

Needs the wheel `tokenizers` 0.23.3. The text is made here, from a seed: words of many scripts, most of them in the order of their
frequency, with what separates and disturbs words.
"""

import json
import random
import sys
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import sentence_tokenizers

# The regular expressions of two families, as published in their tokenizer.json.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# Ranges of letters; the third element counts as a mark after a letter.
SCRIPTS = {
    "latin": ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", ""),
    "european": ("abcdeghilmnoprstuvzßàáâäåæçèéêëìíîïñòóôöøùúûüýÿāčďęěğıłńňőřśşšťůźžƒſ", "ÀÉÖÜİŞŁŽÇØÆ", ""),
    "marks": ("aeioucnsyAEO", "IUN", "\u0301\u0300\u0308\u0327\u0323\u030a\u0302\u0328\u0316\u0345"),
    "cyrillic": ("абвгдежзийклмнопрстуфхцчшщъыьэюяёїєґ", "АБВГДЕЖЗЁЇ", "\u0306\u0308"),
    "greek": ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώΐ", "ΑΒΓΔΕΣΩΆ", "\u0301"),
    "arabic": ("ابتثجحخدذرزسشصضطظعغفقكلمنهويىةءأإآ", "", "\u064b\u064e\u064f\u0650\u0651\u0652"),
    "hebrew": ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", "", "\u05b0\u05b4\u05b7\u05bc"),
    "devanagari": ("अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसहक़", "", "\u093e\u093f\u0940\u0947\u094d\u0902\u093c"),
    "thai": ("กขคงจชซญดตถทธนบปผฝพฟภมยรลวศสหอเแโใไ", "", "\u0e34\u0e35\u0e48\u0e49\u0e31\u0e33"),
    "han": ("的一是不了在人有我他这中大来上国个到说们為漢字學㐀豈\U00020000\U0002b740", "", ""),
    "kana": ("あいうえおかがきぎくけこさしすせそたちつてとなにぬのアイウエオカガキャッンーｱｶﾞ", "", "\u3099"),
    "hangul": ("가각간갈감강거건걸검게겨고공과교구국그기나너는다도한국어말을이", "", ""),
    "jamo": ("\u1100\u1102\u1103\u1105\u1106\u1107\u1109", "", "\u1161\u1165\u1169\u11a8\u11ab"),
}
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "๐๑๒๓๔๕๖๗๘๙", "０１２３４５６７８９", "²³¹½¼ⅣⅷⅫ①⑳㊿", "𝟎𝟏𝟐"]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2003", "\u0085", "\u3000", "\u2028", "\u1680", "\v", "\f",
          " \n ", "\u200b", "\u202f", "\u180e", "\u2029"]
SIGNS = [".", ",", "!", "?", ";", ":", "...", "—", "–", "'", '"', "“", "”", "«", "»", "、", "。", "！", "؟", "।", "(", ")", "[", "]", "#", "@",
         "$", "€", "%", "&", "*", "+", "<", "=", ">", "^", "_", "`", "|", "~", "/", "\\", "¡", "¿", "§", "©", "™", "№", "…", "‰", "·", "_a_",
         "https://x.org/a?b=1&c=2", "a@b.de", "--", "''", " ' ", "״", "׳"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "☃", "✈︎", "👨🏿‍💻", "1️⃣", "Ⓐ", "🅰"]
CONTRACTIONS = ["I'm", "don't", "it's", "we'll", "they've", "you're", "he'd", "IT'S", "DON'T", "'S", "o'clock", "'ſ", "I'M'LL", "'tis", "n't"]
ODD = ["\u0000", "\u0001", "\u0007", "\u001b", "\u007f", "\u009f", "\ufeff", "\ufffd", "\u200d", "\u200c", "\u00ad", "\u2060", "\ue000", "ﬁ", "ﬀ", "ﬆ",
       "Å", "Å", "Ω", "ẛ̣", "ǆ", "İ", "ı", "ŉ", "ΐ", "한글", "한글", "ｶﾞ", "ff", "½", "x²", "q̣̇", "q̣̇", "\u0301", "\u0345", "कि", "กำ"]
ADDED = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<think>", "</think>", "<mask>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]", "[UNK]",
         "[PAD]", "<|im_start|>", "<|im_start|>user\n", "Tag", "tag", "TAG", "Übung", "<end", "<|", "|>", "<r>", "<l>"]


class Words:
    """Draws words and strings from a separate generator."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.known = {name: [self.fresh(name) for _ in range(60)] for name in SCRIPTS}

    def fresh(self, script):
        letters, capitals, marks = SCRIPTS[script]
        draw, word = self.random, ""
        for i in range(draw.choice([1, 2, 3, 3, 4, 5, 6, 9])):
            word += draw.choice(capitals) if capitals and (i == 0 and draw.random() < 0.2 or draw.random() < 0.02) else draw.choice(letters)
            while marks and draw.random() < 0.4:
                word += draw.choice(marks)
        return word

    def word(self, script):
        if self.random.random() < 0.2:
            return self.fresh(script)
        return self.known[script][int(60 * self.random.random() ** 3)]

    def unit(self, script):
        draw = self.random
        kind = draw.random()
        if kind < 0.62:
            return self.word(script)
        if kind < 0.70:
            return "".join(draw.choice(draw.choice(DIGITS[:1] * 3 + DIGITS)) for _ in range(draw.choice([1, 2, 3, 4, 7])))
        choices = [SIGNS, SIGNS, CONTRACTIONS, EMOJI, ODD, ADDED]
        return draw.choice(draw.choice(choices))

    def text(self, units):
        draw, text = self.random, ""
        script = draw.choice(list(SCRIPTS))
        for _ in range(units):
            if draw.random() < 0.1:
                script = draw.choice(list(SCRIPTS))
            text += self.unit(script)
            if draw.random() < 0.75:
                text += " " if draw.random() < 0.6 else draw.choice(SPACES)
        return text

    def strings(self, count):
        """Short and long strings, beginning with empty and nearly empty ones."""
        edge = ["", " ", "  ", "a", "\n", "\u0301", "<|endoftext|>", " <mask> ", "[MASK]", "a" * 120, " " * 40 + "x", "\u00e9" * 30]
        sizes = [1, 2, 3, 3, 4, 5, 6, 8, 10]
        return (edge + [self.text(self.random.choice(sizes)) for _ in range(count)])[:count]


def special(*contents):
    return [tokenizers.AddedToken(content, special=True, normalized=False) for content in contents]


MASK = [tokenizers.AddedToken("<mask>", lstrip=True, normalized=False, special=True)]


def byte_level(pre, added=(), normalizer=None, post=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    if post:
        tokenizer.post_processor = post
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=700, special_tokens=list(added), initial_alphabet=alphabet, show_progress=False)


def split_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3_after(tokenizer):
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    begin = sentence_tokenizers.template("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin(tokenizer)])


def qwen_after(tokenizer):
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", normalized=False), tokenizers.AddedToken("</think>", normalized=False),
                          tokenizers.AddedToken("U\u0308bung", normalized=True)])


def roberta_post(tokenizer):
    ends = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    return processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=True)


def word_piece(size, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=size, limit_alphabet=500, show_progress=False,
                                                special_tokens=special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))


bert_template = sentence_tokenizers.ended(sentence_tokenizers.CLS_SEP)


def bert_processing(tokenizer):
    tokenizer.post_processor = processors.BertProcessing(*[(name, tokenizer.token_to_id(name)) for name in ("[SEP]", "[CLS]")])


def bert_limited(tokenizer):
    bert_template(tokenizer)
    tokenizer.enable_truncation(15, direction="left")
    tokenizer.enable_padding(direction="left", length=20, pad_id=0, pad_type_id=3, pad_to_multiple_of=8)


def words():
    """The remaining features: words that end in </w>, unknown characters, all kinds of added tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("isolated")])
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer, trainers.BpeTrainer(vocab_size=600, limit_alphabet=160, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False)


def words_after(tokenizer):
    tokenizer.add_tokens([tokenizers.AddedToken("Tag", normalized=True, single_word=True), tokenizers.AddedToken("<r>", rstrip=True, normalized=False),
                          tokenizers.AddedToken("<l>", lstrip=True, normalized=False), tokenizers.AddedToken("\u00dcbung", normalized=True),
                          tokenizers.AddedToken("<end", normalized=False)])
    tokenizer.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True, rstrip=True, single_word=True, normalized=False, special=True),
                                  tokenizers.AddedToken("</S>", normalized=True, special=True)])


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer, trainers.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)


KINDS = {
    "gpt2": (lambda: byte_level(pre_tokenizers.ByteLevel(False), special("<|endoftext|>"), None, processors.ByteLevel(trim_offsets=False)),
             None),
    "llama3": (lambda: byte_level(split_bytes(LLAMA3), ignore_merges=True), llama3_after),
    "qwen": (lambda: byte_level(split_bytes(QWEN), (), normalizers.NFC(), processors.ByteLevel(trim_offsets=False)), qwen_after),
    "roberta": (lambda: byte_level(pre_tokenizers.ByteLevel(True), ["<s>", "<pad>", "</s>", "<unk>", *MASK]), sentence_tokenizers.ended(roberta_post)),
    "bert_uncased": (lambda: word_piece(900, True), bert_template), "bert_cased": (lambda: word_piece(900, False), bert_processing),
    "bert_limited": (lambda: word_piece(600, True), bert_limited), "words": (words, words_after),
    "word_level": (word_level, None), **sentence_tokenizers.kinds(Words(1).strings(400)),
}


def train(kind):
    make, after = KINDS[kind]
    tokenizer, trainer = make()
    maker = Words(1)
    tokenizer.train_from_iterator([maker.text(12) for _ in range(3000)], trainer)
    if after:
        after(tokenizer)
    document = json.loads(tokenizer.to_str())
    if kind == "gpt2":  # as its file was written before it had types and pairs
        del document["model"]["type"]
        document["model"].update(continuing_subword_prefix="", end_of_word_suffix="", merges=[" ".join(pair) for pair in document["model"]["merges"]])
    if kind in sentence_tokenizers.WITH_BYTES:
        sentence_tokenizers.with_bytes(document)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def record(tokenizer, strings):
    """Python's results for strings: ids without and with special tokens, a pair with the previous string, decoded text."""
    results, before = [], "b [SEP] c"
    for text in strings:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        pair = tokenizer.encode(before, text)
        results.append({"text": text, "ids": ids, "special": tokenizer.encode(text).ids, "pair": pair.ids, "types": pair.type_ids,
                        "decoded": tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False),
                        "skipped": tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True)})
        before = text[:20]
    return results


def encoded(encoding):
    """All of an Encoding that attentive has; masks as digits, and what is the same for all tokens is left out."""
    whole = {"ids": encoding.ids, "offsets": [place for span in encoding.offsets for place in span]}
    if any(encoding.type_ids):
        whole["types"] = encoding.type_ids
    if not all(encoding.attention_mask):
        whole["attention"] = "".join(map(str, encoding.attention_mask))
    if any(encoding.special_tokens_mask):
        whole["special"] = "".join(map(str, encoding.special_tokens_mask))
    return whole


def limited(tokenizer, draw):
    """Sets truncation and padding by chance, and says which."""
    truncation = padding = None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if draw.random() < 0.7:
        least = tokenizer.num_special_tokens_to_add(True)
        truncation = {"max_length": least + draw.choice([0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 40]),
                      "strategy": draw.choice(["longest_first", "longest_first", "only_first", "only_second"]), "direction": draw.choice(["left", "right"])}
        tokenizer.enable_truncation(**truncation)
    if draw.random() < 0.7:
        padding = {"direction": draw.choice(["left", "right"]), "pad_id": draw.randrange(5), "pad_type_id": draw.randrange(3), "pad_token": "<pad>",
                   "length": draw.choice([None, None, 0, 1, 10, 20]), "pad_to_multiple_of": draw.choice([None, None, 4, 8])}
        tokenizer.enable_padding(**padding)
    return {"truncation": truncation, "padding": padding}


def encodings(tokenizer, strings, seed):
    """Whole encodings: of single texts and pairs, as the file has it and with other limits, and of batches. Null where Python has an error."""
    draw, results = random.Random(seed), []
    file = tokenizer.to_str()

    def result(encode):
        try:
            return encode()
        except Exception as error:  # noqa: BLE001 the wheel has no class of its own
            if "Truncation error" not in str(error):
                raise
            return None

    for place, text in enumerate(strings):
        case = {"text": text, "special": draw.random() < 0.8}
        if draw.random() < 0.5:
            case["pair"] = draw.choice(strings)[:30]
        if place % 3:
            case["limits"] = limited(tokenizer, draw)
        case["encoding"] = result(lambda: encoded(tokenizer.encode(case["text"], case.get("pair"), add_special_tokens=case["special"])))
        results.append(case)
        tokenizer = Tokenizer.from_str(file)
    for place in range(0, min(len(strings), 40), 8):
        texts = strings[place:place + 6]
        case = {"texts": texts, "special": draw.random() < 0.8}
        if draw.random() < 0.4:
            case["pairs"] = [draw.choice(strings)[:20] for _ in texts]
        if place:
            case["limits"] = limited(tokenizer, draw)
        inputs = list(zip(texts, case["pairs"])) if "pairs" in case else texts
        case["encodings"] = result(lambda: [encoded(one) for one in tokenizer.encode_batch(inputs, add_special_tokens=case["special"])])
        results.append(case)
        tokenizer = Tokenizer.from_str(file)
    return results


def trimmed(tokenizer):
    """Post-processors that take white space out of offsets, alone and in a row, of whole texts and of their ends."""
    cls, sep = ("<|endoftext|>", 0), ("a", tokenizer.token_to_id("a"))
    tokens = [cls, sep]
    steps = {"level": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
             "no_prefix": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
             "roberta": {"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": True, "add_prefix_space": True},
             "whole": {"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": False, "add_prefix_space": True},
             "bert": {"type": "BertProcessing", "sep": sep, "cls": cls},
             "template": json.loads(processors.TemplateProcessing(single="<|endoftext|> $A a", pair="$B:1 a $A $A:2", special_tokens=tokens).__getstate__())}
    rows = [["level"], ["no_prefix"], ["roberta"], ["level", "level"], ["roberta", "level"], ["whole", "level"], ["bert", "level"], ["bert", "no_prefix"],
            ["level", "bert"], ["template", "level"], ["level", "template"]]
    strings = ["a b", " a  b ", "  a", "\u3000a\u00a0 b  ", " ", "  ", "a\n\n b", "a \u00e9 \U0001f600", "  don't  go "]
    results = []
    for row in rows:
        for prefix in (False, True):
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
            document = json.loads(tokenizer.to_str())
            document["post_processor"] = {"type": "Sequence", "processors": [steps[name] for name in row]}
            one = Tokenizer.from_str(json.dumps(document))
            texts = []
            for place, text in enumerate(strings):
                special, pair = bool(place % 3), strings[place - 1] if place % 2 else None
                case = {"text": text, "special": special, **({"pair": pair} if pair else {})}
                if place % 4 == 3:
                    one.enable_truncation(one.num_special_tokens_to_add(True) + 2, direction="left")
                    case["limits"] = {"truncation": {"max_length": one.num_special_tokens_to_add(True) + 2, "strategy": "longest_first",
                                                     "direction": "left"}, "padding": None}
                case["encoding"] = encoded(one.encode(text, pair, add_special_tokens=special))
                one.no_truncation()
                texts.append(case)
            results.append({"pre_tokenizer": document["pre_tokenizer"], "post_processor": document["post_processor"], "texts": texts})
    return results


def variants(strings, kept):
    """Normalizers and pre-tokenizers, each by itself: a model of single characters, which differ where a piece ends, shows all. Offsets of
    the first `kept` strings."""
    plain = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
             normalizers.Strip(), normalizers.Strip(left=False), normalizers.Strip(right=False), normalizers.BertNormalizer(),
             normalizers.BertNormalizer(lowercase=False), normalizers.BertNormalizer(clean_text=False, strip_accents=False),
             normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=True, lowercase=False)]
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    cuts = [pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits(False),
            pre_tokenizers.Digits(True), *[pre_tokenizers.Punctuation(behavior) for behavior in behaviors],
            *[pre_tokenizers.Split(pattern, behavior, invert) for pattern in (" ", Regex(r"\p{L}+|\s")) for behavior in behaviors
              for invert in (False, True)],
            *[pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in
              (r"\w+", r"\W+", r"\d{2,}", r"\D", r"[\s\d]+", r"\S+", r"(?<=a)b?", r"\p{Han}+", r"[^\p{Lu}\p{M}]+", r"(?i:a|s|k)+", r"(?>a+)\p{Ll}?",
               r"[\x{61}-\u0065]++", r"\.|\x41", r"a*", r".\v?")]]
    return spelled_variants(strings, kept, [(n, None) for n in plain] + [(None, c) for c in cuts])


def spelled_variants(strings, kept, parts, more=""):
    alphabet = sorted({c for n, _ in parts if n for text in strings for c in n.normalize_str(text) + text + more})
    tokens = ["<unk>"] + [c + end for c in alphabet for end in ("", "|")]
    base = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>", end_of_word_suffix="|"))
    results = []
    for normalizer, pre_tokenizer in parts:
        tokenizer = Tokenizer.from_str(base.to_str())
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        document = json.loads(tokenizer.to_str())
        encodings = [tokenizer.encode(text) for text in strings]
        few = kept if normalizer else kept // 3
        results.append({"normalizer": document["normalizer"], "pre_tokenizer": document["pre_tokenizer"],
                        "ids": [encoding.ids for encoding in encodings],
                        "offsets": [[place for span in encoding.offsets for place in span] for encoding in encodings[:few]]})
    return {"base": json.loads(base.to_str()), "strings": strings, "variants": results}


def attentive_train_tokenizers(bpe, char):
    """Half of the strings are of few characters, so that the tokenizer of characters knows them all."""
    folders = {"bpe": Path(bpe), "char": Path(char)}
    python = {kind: Tokenizer.from_file(str(folder / "tokenizer.json")) for kind, folder in folders.items()}
    draw = random.Random(7)
    known = "".join(sorted(python["char"].get_vocab()))
    strings = Words(8).strings(30) + ["".join(draw.choice(known) * draw.choice([1, 1, 1, 2, 5]) for _ in range(draw.randrange(1, 40))) for _ in range(30)]

    def ids(kind, text):
        try:
            return python[kind].encode(text).ids
        except Exception as error:  # noqa: BLE001 the wheel has no exception class of its own
            if "WordLevel" not in str(error):
                raise
            return None  # a character that is not in the vocabulary

    return {**{kind: json.loads((folder / "own.json").read_text()) for kind, folder in folders.items()},
            "texts": [{"text": text, **{kind: ids(kind, text) for kind in folders}} for text in strings]}


def write(path, value):
    Path(path).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main(arguments):
    if arguments[:1] == ["--record"] and len(arguments) >= 5:
        strings = Words(int(arguments[2])).strings(int(arguments[1]))
        write(arguments[-1], [record(Tokenizer.from_file(path), strings) for path in arguments[3:-1]])
    elif arguments[:1] == ["--encodings"] and len(arguments) >= 5:
        count, seed = int(arguments[1]), int(arguments[2])
        write(arguments[-1], [encodings(Tokenizer.from_file(path), Words(seed).strings(count), seed) for path in arguments[3:-1]])
    elif arguments[:1] == ["--variants"] and len(arguments) == 4:
        write(arguments[3], variants(Words(int(arguments[2])).strings(int(arguments[1])), int(arguments[1])))
    elif arguments[:1] == ["--own"] and len(arguments) == 4:
        write(arguments[3], attentive_train_tokenizers(*arguments[1:3]))
    elif len(arguments) == 1 and not arguments[0].startswith("-"):
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            if not (folder / f"{kind}.json").exists():
                (folder / f"{kind}.json").write_text(train(kind) + "\n", encoding="utf-8")
            write(folder / f"{kind}.expected.json", record(Tokenizer.from_file(str(folder / f"{kind}.json")), Words(3).strings(90)))
            write(folder / f"{kind}.encodings.json", encodings(Tokenizer.from_file(str(folder / f"{kind}.json")), Words(5).strings(45), 5))
        write(folder / "trimmed.json", trimmed(Tokenizer.from_file(str(folder / "gpt2.json"))))
        write(folder / "variants.json", variants(Words(2).strings(45), 18))
        strings = Words(5).strings(40)
        write(folder / "sentence_variants.json", spelled_variants(strings, 18, sentence_tokenizers.variant_parts(strings), "_" + sentence_tokenizers.SIGN))
        write(folder / "models.json", sentence_tokenizers.model_cases())
        write(folder / "decoders.json", sentence_tokenizers.decoder_cases())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
