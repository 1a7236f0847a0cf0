"""The kinds of tokenizers that SentencePiece's models become, and cases of their parts; for tools/generators/make_tokenizers.py."""

import json
import random
import struct
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SIGN = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]


def double_array(texts):
    """A darts-clone array of texts (bytes) and their values, in blocks of 256 units."""
    trie = {}
    for text, value in texts.items():
        node = trie
        for byte in text:
            node = node.setdefault(byte, {})
        node[0] = value
    units, used, bases, free = [0], {0}, set(), 1

    def place(position, node):
        nonlocal free
        while free in used:
            free += 1
        first = min(node)
        base = (free ^ first)
        while base in bases or any(base ^ label in used for label in node):
            free += 1
            base = free ^ first
        free = 1
        bases.add(base)
        used.update(base ^ label for label in node)
        units.extend([0] * (max(used) + 1 - len(units)))
        offset = position ^ base
        assert offset < 1 << 21
        units[position] |= offset << 10 | (256 if 0 in node else 0)
        for label, child in sorted(node.items()):
            if label == 0:
                units[base] = 1 << 31 | child
            else:
                units[base ^ label] = label
                place(base ^ label, child)

    place(0, trie)
    units.extend([0] * (-len(units) % 256))
    return units


def charsmap(rules):
    """SentencePiece's precompiled_charsmap of texts and what becomes of them."""
    replacements, places = b"", {}
    for text in sorted(set(rules.values())):
        places[text] = len(replacements)
        replacements += text.encode() + b"\0"
    units = double_array({text.encode(): places[new] for text, new in rules.items()})
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + replacements


def small_charsmap(strings):
    """As nmt_nfkc does, for the characters of some strings: compatibility forms, controls that go, spaces that become one, and letters that a mark
    follows."""
    rules = {chr(c): "" for c in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F, 0xAD]}
    rules.update({c: " " for c in "\t\n\f\r\u00a0\u1680\u2003\u200b\u200c\u200d\u200e\u2028\u2029\u3000\ufeff\ufffd\u2581"})
    for text in strings:
        for first, second in zip(text, text[1:] + " "):
            for part in (first, first + second):
                normal = unicodedata.normalize("NFKC", part)
                if normal != part and (len(part) == 1 or len(normal) == 1) and "\0" not in part + normal and part not in rules:
                    rules[part] = normal
    return charsmap(rules)


def with_bytes(document):
    """Ids 3 to 258 for the tokens of bytes."""
    model = document["model"]
    order = sorted(model["vocab"], key=model["vocab"].get)
    tokens = [*order[:3], *[f"<0x{byte:02X}>" for byte in range(256)], *order[3:]]
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    model["byte_fallback"] = True
    for token in document["added_tokens"]:
        token["id"] = model["vocab"].get(token["content"], token["id"] + 256)
    return document


def pairs(size):
    """Byte-pair models over characters: few of them, so that bytes are needed often. They are trained on words with their sign."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.BpeTrainer(vocab_size=size, limit_alphabet=110, special_tokens=SPECIAL, show_progress=False)


BACK = [decoders.Replace(SIGN, " "), decoders.ByteFallback(), decoders.Fuse()]


def template(single, pair):
    """A function of a tokenizer, which knows the ids, to a post-processor."""
    def make(tokenizer):
        names = {part.split(":")[0] for part in f"{single} {pair}".split() if not part.startswith("$")}
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(name, tokenizer.token_to_id(name)) for name in sorted(names)])

    return make


BEGIN, END = template("<s> $A", "<s> $A <s>:1 $B:1"), template("$A </s>", "$A </s> $B </s>")
CLS_SEP = template("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
ROBERTA = template("<s> $A </s>", "<s> $A </s> </s> $B </s>")


def ended(post, *special):
    """What follows training: special tokens, and a post-processor."""
    def after(tokenizer):
        tokenizer.add_special_tokens([AddedToken(token, lstrip=True, normalized=False, special=True) for token in special])
        tokenizer.post_processor = post(tokenizer)

    return after


def llama_after(tokenizer):
    """Llama 2, as older versions convert it: no pre-tokenizer, a sign before every part between added tokens."""
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SIGN), normalizers.Replace(" ", SIGN)])
    tokenizer.decoder = decoders.Sequence([*BACK, decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = BEGIN(tokenizer)


def mistral_after(tokenizer):
    """Llama and Mistral, as newer versions convert them: a sign before the text only."""
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([*BACK, decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = BEGIN(tokenizer)


def gemma_after(tokenizer):
    tokenizer.normalizer = normalizers.Replace(" ", SIGN)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(BACK)
    tokenizer.add_tokens([AddedToken("<start_of_turn>", normalized=False, special=True), AddedToken("\n\n", normalized=False)])
    tokenizer.post_processor = BEGIN(tokenizer)


def unigram(size, normalizer, pre_tokenizer, special):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", max_piece_length=8, show_progress=False)


def kinds(strings):
    """strings: what the charsmap knows the characters of."""
    compiled = small_charsmap(strings)

    def t5():
        return unigram(700, normalizers.Precompiled(compiled), pre_tokenizers.Metaspace(), ["<pad>", "</s>", "<unk>"])

    def albert():
        parts = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                 normalizers.Lowercase(), normalizers.Precompiled(compiled), normalizers.Replace(Regex(" {2,}"), " ")]
        return unigram(600, normalizers.Sequence(parts), pre_tokenizers.Metaspace(), ["<pad>", "<unk>", "[CLS]", "[SEP]"])

    def xlm_roberta():
        parts = [normalizers.Precompiled(compiled), normalizers.Replace(Regex(" {2,}"), " ")]
        cuts = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        return unigram(700, normalizers.Sequence(parts), cuts, ["<s>", "<pad>", "</s>", "<unk>"])

    return {"llama2": (lambda: pairs(500), llama_after), "mistral": (lambda: pairs(500), mistral_after),
            "gemma": (lambda: pairs(500), gemma_after), "t5": (t5, ended(END)), "albert": (albert, ended(CLS_SEP, "[MASK]")),
            "xlm_roberta": (xlm_roberta, ended(ROBERTA, "<mask>"))}


WITH_BYTES = {"llama2", "mistral", "gemma"}


def variant_parts(strings):
    """Each normalizer and pre-tokenizer by itself."""
    compiled = small_charsmap(strings)
    odd = charsmap({"a": "", "b": "xyz", "e\u0301": "\u00e9", "e": "E", "\u00e9": "", "ab": "never", "\u0301": "\u0300\u0301", "\r": "R", "\U0001f600": ":)",
                    "\u0915": "k", "\n": "\n\n"})
    plain = [normalizers.Precompiled(compiled), normalizers.Precompiled(odd), normalizers.Prepend(SIGN), normalizers.Prepend("ab"), normalizers.Nmt(),
             normalizers.ByteLevel(), normalizers.Replace(" ", SIGN), normalizers.Replace("a", ""), normalizers.Replace("e", "\u00e9\u00e8"),
             normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex(" {2,}"), SIGN), normalizers.Replace(Regex(r"a*"), "-"),
             normalizers.Sequence([normalizers.Precompiled(odd), normalizers.Prepend(SIGN), normalizers.Replace("E", "")])]
    cuts = [*[pre_tokenizers.Metaspace(SIGN, scheme, split) for scheme in ("always", "first", "never") for split in (True, False)],
            pre_tokenizers.Metaspace("_", "always", True),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SIGN, "first")]),
            pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.CharDelimiterSplit("\u00e9"), pre_tokenizers.FixedLength(3), pre_tokenizers.FixedLength(1)]
    return [(n, None) for n in plain] + [(None, c) for c in cuts]


CHARACTERS = ["a", "b", "c", SIGN, "\u00e9", "\u6f22", "\U0001f600", "<unk>", "x", "<0x61>"]
BYTES = sorted(set("".join([*CHARACTERS, "##", "</w>"]).encode()))


def spelled(model, text):
    try:
        return [[token.id, *token.offsets] for token in model.tokenize(text)]
    except Exception as error:  # noqa: BLE001 the wheel has no class of its own
        return str(error)


def pair_models(draw):
    """Random byte-pair models of few characters, with every option; half of them lack some bytes."""
    for number in range(24):
        alphabet = draw.sample(["a", "b", "c", SIGN, "\u00e9", "\u6f22"], draw.randrange(2, 6))
        prefix, suffix = draw.choice([("", ""), ("", ""), ("##", ""), ("", "</w>")])
        tokens = [p + c + s for c in alphabet for p in {"", prefix} for s in {"", suffix}]
        merges = []
        for _ in range(draw.randrange(0, 9)):
            left, right = draw.choice([t for t in tokens if not suffix or not t.endswith(suffix)]), draw.choice([t for t in tokens if t.startswith(prefix)])
            merges.append((left, right))
            tokens.append(left + right[len(prefix):])
        tokens += [f"<0x{byte:02X}>" for byte in BYTES if number % 2 == 0 or draw.random() < 0.9]
        tokens = ["<unk>"] + list(dict.fromkeys(tokens))
        options = {"unk_token": draw.choice(["<unk>", "<unk>", None, "missing"]), "fuse_unk": draw.random() < 0.5, "byte_fallback": draw.random() < 0.7,
                   "ignore_merges": draw.random() < 0.3}
        if prefix:
            options["continuing_subword_prefix"] = prefix
        if suffix:
            options["end_of_word_suffix"] = suffix
        yield models.BPE({token: i for i, token in enumerate(tokens)}, merges, **options)


def scored_models(draw):
    """Random Unigram models: scores that tie, some above zero; pieces that are there twice; no unknown token."""
    for number in range(24):
        alphabet = draw.sample(["a", "b", "c", SIGN, "\u00e9", "\u6f22", "\U0001f600"], draw.randrange(2, 7))
        pieces = ["<unk>", "", *alphabet]
        pieces += ["".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 5))) for _ in range(draw.randrange(0, 14))]
        if draw.random() < 0.5:
            pieces += [f"<0x{byte:02X}>" for byte in BYTES if number % 2 == 0 or draw.random() < 0.9]
        pieces = [piece for piece in pieces if draw.random() < 0.9]
        scores = draw.choice([lambda: -draw.randrange(0, 4), lambda: draw.uniform(-9, 0), lambda: draw.choice([-30.5, 2, 25.0])])
        unknown = draw.choice([None, 0, 0, draw.randrange(len(pieces))])
        yield models.Unigram([(piece, float(scores())) for piece in pieces], unknown, draw.random() < 0.6)


def model_cases():
    """The tokens (ids and bytes) that models split pieces into, or an error."""
    draw, cases = random.Random(5), []
    for model in [*pair_models(draw), *scored_models(draw)]:
        texts = ["".join(draw.choice(CHARACTERS) for _ in range(draw.choice([1, 2, 3, 5, 9, 14]))) for _ in range(14)]
        document = json.loads(Tokenizer(model).to_str())["model"]
        cases.append({"model": document, "texts": [{"text": text, "tokens": spelled(model, text)} for text in texts]})
    return cases


def decoder_cases():
    """The texts that decoders return for tokens; the decoders are tried alone and in sequences of two and three."""
    draw, cases = random.Random(6), []
    tokens = [SIGN + "a", SIGN, SIGN + SIGN, "a", "b" + SIGN + "c", "", " ", "  ", " a ", "<0xE2>", "<0x96>", "<0x81>", "<0x41>", "<0xe2>", "<0x+A>", "<0xFF>",
              "<0x4>", "<0xGG>", "<0x\u00e9>", "\u00e9", "aab", "aaa", "HHH", "H", "yH", "</w>", "x</w>", "##c", ".", " n't", "\u0120a", "\u00e2"]
    alone = [decoders.Metaspace(), decoders.Metaspace(prepend_scheme="never"), decoders.Metaspace("a", "first"), decoders.Replace(SIGN, " "),
             decoders.Replace("aa", "b"), decoders.Replace("aab", ""), decoders.Replace(Regex("a+"), "<"), decoders.Replace(Regex("b*"), "-"),
             decoders.ByteFallback(), decoders.Strip(" ", 1, 0), decoders.Strip("H", 2, 0), decoders.Strip("a", 1, 0), decoders.Fuse(),
             decoders.ByteLevel(), decoders.WordPiece(), decoders.BPEDecoder()]
    # Strip from the end stops with an error where a token is too short, so its tokens are long.
    rows = [[one] for one in alone] + [[draw.choice(alone) for _ in range(draw.choice([2, 3, 4]))] for _ in range(110)]
    rows += [[*BACK, decoders.Strip(" ", 1, 0)], [*BACK, decoders.Strip("a", 0, 1)], [decoders.Fuse(), decoders.Strip("H", 1, 2)], BACK]
    for row in rows:
        decoder = row[0] if len(row) == 1 else decoders.Sequence(row)
        base = Tokenizer(models.BPE())
        base.decoder = decoder
        texts = []
        for _ in range(8):
            given = [draw.choice(tokens) for _ in range(draw.choice([1, 2, 4, 8, 12]))] + ["end."]
            texts.append({"tokens": given, "text": decoder.decode(given)})
        cases.append({"decoder": json.loads(base.to_str())["decoder"], "texts": texts})
    return cases
