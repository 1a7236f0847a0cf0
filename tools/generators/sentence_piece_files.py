"""Reads SentencePiece's models and writes the maps of characters that they hold ("precompiled_charsmap"), for the comparison of
tokenizers, without SentencePiece's package.

A map is the size of a trie in bytes, the trie, and the texts that its keys become, each with a NUL behind it. The trie is a double
array as Darts-clone writes it: a unit is a label (8 bits), whether a value stands below it (1 bit), and where its children lie: at
the place of the unit XOR this offset XOR their label.
"""

import struct
import unicodedata


def charsmap(texts):
    """The map of characters as bytes, from a dict of the text that becomes another one to that other one."""
    values, blob = {}, bytearray()
    for target in sorted(set(texts.values())):
        values[target] = len(blob)
        blob += target.encode() + b"\0"
    keys = sorted((source.encode(), values[target]) for source, target in texts.items())
    units = trie(keys)
    array = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(array)) + array + bytes(blob)


def children(keys, begin, end, depth):
    """The labels below a node, with the keys [first, last) of each; label 0 is the end of a key."""
    found = []
    for i in range(begin, end):
        label = keys[i][0][depth] if depth < len(keys[i][0]) else 0
        if found and found[-1][0] == label:
            found[-1][2] = i + 1
        else:
            found.append([label, i, i + 1])
    return found


def trie(keys):
    """The units for sorted keys with values; no key may be empty or hold a NUL."""
    units, taken, lowest = [0] * 256, {0}, 1
    todo = [(0, 0, len(keys), 0)]
    while todo:
        place, begin, end, depth = todo.pop()
        below = children(keys, begin, end, depth)
        # A base is below[i] XOR its label for all labels: the blocks of 256 that it may name grow as they fill.
        while lowest in taken:
            lowest += 1
        free = lowest
        while True:
            base = free ^ below[0][0]
            slots = [base ^ label for label, _, _ in below]
            if free not in taken and offset_fits(place ^ base) and not any(slot in taken for slot in slots) and base != place:
                break
            free += 1
        taken.update(slots)
        units.extend([0] * (((max(slots) | 255) + 1) - len(units)))
        offset = place ^ base
        units[place] |= offset << 10 if offset < 1 << 21 else offset >> 8 << 10 | 1 << 9
        for label, first, last in below:
            if label == 0:
                units[place] |= 1 << 8
                units[base] = keys[first][1] | 1 << 31
            else:
                units[base ^ label] |= label
                todo.append((base ^ label, first, last, depth + 1))
    return units


def offset_fits(offset):
    return offset < 1 << 21 or (offset & 255 == 0 and offset < 1 << 29)


def like_nmt_nfkc():
    """Texts as SentencePiece's rule nmt_nfkc has them: forms NFKC of the characters up to U+33FF and of width, of letters with marks,
    signs without a form, white space, controls that go."""
    known = {}
    for code in [*range(0xA0, 0x3400), *range(0xF900, 0xFB00), *range(0xFB00, 0xFB50), *range(0xFF01, 0xFFEF), *range(0x1D400, 0x1D440)]:
        character = chr(code)
        form = unicodedata.normalize("NFKC", character)
        if form != character and unicodedata.category(character) != "Cn":
            known[character] = form
        whole = unicodedata.normalize("NFD", character)
        if len(whole) > 1 and whole != character and unicodedata.normalize("NFC", whole) == character:
            known[whole] = character
    known |= {chr(code): "" for code in [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F, 0xAD]}
    known |= {character: " " for character in "\t\n\f\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"}
    known |= {"\uff5e": "~", "\u2160": "I", "ffi!": "\ufb03", "\u0301": "", "a\u0301b": "<a\u0301b>", "👍": "up"}
    return known


# --- Models --------------------------------------------------------------------------------------------------------


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    """Number and value of the fields of a message: an integer, a float or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        else:
            size, at = varint(data, at)
            value, at = bytes(data[at : at + size]), at + size
        yield key >> 3, value


def read_model(data):
    """Pieces as (text, score, type), and the fields of the trainer and the normalizer by number."""
    pieces, trainer, normalizer = [], {}, {}
    for number, value in fields(data):
        if number == 1:
            piece = dict(fields(value))
            pieces.append((piece.get(1, b"").decode(), piece.get(2, 0.0), piece.get(3, 1)))
        elif number == 2:
            trainer.update(fields(value))
        elif number == 3:
            normalizer.update(fields(value))
    return pieces, trainer, normalizer
