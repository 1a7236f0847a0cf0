"""Writes a page as attentive::viz does, from numpy arrays: what the browser tests open.

It shares no code with the C++ side, so that the format has two independent writers.
"""

import base64
import json
import re
import struct
import zlib
from pathlib import Path

import numpy

PAGE = Path(__file__).resolve().parents[3] / "src/viz/page"
LEVELS = 255
MOST_TOP = 8
THUMB = 32


def base64_of(array):
    return base64.b64encode(array if isinstance(array, bytes) else numpy.ascontiguousarray(array).tobytes()).decode()


def base91_of(data):
    """Encodes 13 bits in two characters, lower digit and lowest bit first; a rest of up to 6 bits is one character."""
    number, text = int.from_bytes(data, "little"), []
    alphabet = [chr(code) for code in range(33, 125) if chr(code) != "<"]
    bits = 8 * len(data)
    for start in range(0, bits, 13 * 4096):  # in slices, because shifting the whole number is slow
        part = number >> start & ((1 << 13 * 4096) - 1)
        for left in range(min(13 * 4096, bits - start), 0, -13):
            text += [alphabet[(part & 8191) % 91]] + ([alphabet[(part & 8191) // 91]] if left > 6 else [])
            part >>= 13
    return "".join(text)


def planes(numbers):
    """The highest bytes of all numbers, then the next ones, and so on."""
    return numbers.astype(">f4").view(numpy.uint8).reshape(-1, 4).T.tobytes()


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def packed(data):
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base91_of(packer.compress(bytes(data)) + packer.flush())


def deflate(data):
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base64_of(packer.compress(bytes(data)) + packer.flush())


class Head:
    """Weights (L, S) and visible keys (L, S); logsumexp (L) or None. `statistics`: the numbers that the page must show."""

    def __init__(self, number, weights, keep, logsumexp=None, origin=0):
        self.number, self.keep, self.origin = number, keep, origin
        self.weights = numpy.where(keep, weights, 0).astype(numpy.float32)
        self.logsumexp = None if logsumexp is None else logsumexp.astype(numpy.float32)
        self.row_max = self.weights.max(axis=1)
        self.spans = spans_of(keep)
        self.statistics = statistics_of(self.weights, keep, origin)

    def quantised(self, levels=LEVELS):
        """The bytes on the page, and the weights that it shows for them."""
        scale = numpy.where(self.row_max > 0, self.row_max, 1)[:, None]
        steps = numpy.rint(self.weights.astype(numpy.float64) / scale * levels).astype(numpy.uint8)
        return steps, steps * (self.row_max[:, None].astype(numpy.float64) / levels)

    def top(self):
        """(L, K) keys in descending order of weight, the lower key first among equals; -1 if a row sees fewer."""
        count = min(MOST_TOP, self.weights.shape[1])
        order = numpy.argsort(numpy.where(self.keep, -self.weights, numpy.inf), axis=1, kind="stable")[:, :count]
        return numpy.where(numpy.take_along_axis(self.keep, order, axis=1), order, -1)


def places_of(steps, keep, top):
    """For each key of `top`, its index among the row's remaining keys, ordered by descending steps, then by key."""
    out = b""
    for row, seen, named in zip(steps.astype(int), keep, top):
        left = sorted(numpy.flatnonzero(seen), key=lambda key: (-row[key], key))
        for key in named[named >= 0]:
            out += varint(left.index(key))
            left.remove(key)
    return out


def spans_of(keep):
    some = keep.any(axis=1)
    first = numpy.where(some, keep.argmax(axis=1), 0)
    end = numpy.where(some, keep.shape[1] - keep[:, ::-1].argmax(axis=1), 0)
    return numpy.stack([first, end], axis=1).astype("<i4")


def mean_or_none(values):
    return float(numpy.mean(values)) if len(values) else None


def statistics_of(weights, keep, origin):
    weights = weights.astype(numpy.float64)
    seen = keep.sum(axis=1)
    position = numpy.arange(len(weights)) + origin
    with numpy.errstate(divide="ignore", invalid="ignore"):
        entropy = -numpy.where(weights > 0, weights * numpy.log2(weights), 0).sum(axis=1)
    distance = (weights * numpy.abs(position[:, None] - numpy.arange(weights.shape[1]))).sum(axis=1)
    rows = numpy.flatnonzero((position >= 1) & (position - 1 < weights.shape[1]))
    return {
        "entropy": mean_or_none(entropy[seen > 0]),
        "entropy_share": mean_or_none(entropy[seen > 1] / numpy.log2(seen[seen > 1])),
        "distance": mean_or_none(distance[seen > 0]),
        "previous": mean_or_none(weights[rows, position[rows] - 1]),
        "first": mean_or_none(weights[:, 0]),
        "sink": mean_or_none(1 - weights[seen > 0].sum(axis=1)),
    }


def thumb_of(head):
    scale = numpy.where(head.row_max > 0, head.row_max, 1)[:, None]
    shares = head.weights / scale
    rows, columns = (min(THUMB, size) for size in shares.shape)
    starts = [numpy.arange(part) * size // part for part, size in zip((rows, columns), shares.shape)]

    def largest(values):
        return numpy.maximum.reduceat(numpy.maximum.reduceat(values, starts[0], axis=0), starts[1], axis=1)

    column = numpy.arange(shares.shape[1])
    reached = largest(((column >= head.spans[:, :1]) & (column < head.spans[:, 1:])).astype(int)) > 0
    return {
        "thumb": base64_of(numpy.rint(largest(shares)[reached] * 255).astype(numpy.uint8)),
        "thumb_size": rows,
        "thumb_columns": columns,
    }


class Page:
    def __init__(self, title, note=None, levels=LEVELS):
        self.title, self.note, self.levels = title, note, levels
        self.tokens, self.views, self.hidden, self.elements = [], [], [], []
        self.heads = []  # [view][head]: the Head objects, for the tests

    def add_tokens(self, tokens):
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def add_view(self, path, heads, query_tokens=-1, key_tokens=-1, image=None, rollout=None, neurons=None, batch=0):
        queries, keys = heads[0].weights.shape
        raw = [self._head(len(self.views), head) for head in heads]
        self.views.append(
            {
                "path": path,
                "linear": heads[0].logsumexp is None,
                "batch": batch,
                "queries": queries,
                "keys": keys,
                "query_tokens": query_tokens,
                "key_tokens": key_tokens,
                "key_origin": heads[0].origin,
                "image": image,
                "rollout": None if rollout is None else base64_of(rollout.astype("<f4")),
                "heads": raw,
                "neurons": neurons,
            }
        )
        self.heads.append(heads)

    def _hidden(self, head):
        inside = (numpy.arange(head.keep.shape[1]) >= head.spans[:, :1]) & (
            numpy.arange(head.keep.shape[1]) < head.spans[:, 1:]
        )
        bits = ~head.keep[inside]
        holes = deflate(numpy.packbits(bits, bitorder="little").tobytes()) if bits.any() else None
        entry = {"spans": base64_of(head.spans), "holes": holes}
        if entry not in self.hidden:
            self.hidden.append(entry)
        return self.hidden.index(entry), inside

    def _head(self, view, head):
        hidden, inside = self._hidden(head)
        steps, _ = head.quantised(self.levels)
        top = head.top()
        data = steps[inside].tobytes() + planes(head.row_max)
        data += b"" if head.logsumexp is None else planes(head.logsumexp)
        data += places_of(steps, head.keep, top)
        self.elements.append(f'<script type="text/plain" id="w-{view}-{head.number}">{packed(data)}</script>')
        return {
            "head": head.number,
            "hidden": hidden,
            "logsumexp": head.logsumexp is not None,
            "top_count": top.shape[1],
            **head.statistics,
            **thumb_of(head),
        }

    def data(self):
        raw = {
            "version": 2,
            "title": self.title,
            "tokens": self.tokens,
            "hidden": self.hidden,
            "levels": self.levels,
            "views": self.views,
        }
        if self.note:
            raw["note"] = self.note
        text = json.dumps(raw, ensure_ascii=False).replace("<", "\\u003c")
        return f'<script type="application/json" id="attentive-data">{text}</script>\n' + "\n".join(self.elements)

    def html(self):
        text = (PAGE / "page.html").read_text(encoding="utf-8")
        styles, scripts = (
            "".join((PAGE / name).read_text(encoding="utf-8") for name in parts(kind)) for kind in ("styles", "scripts")
        )
        for marker, content in (
            ("style", f"<style>\n{styles}</style>"),
            ("data", self.data()),
            ("script", f"<script>\n{scripts}</script>"),
        ):
            before, found, after = text.partition(f"<!-- attentive:{marker} -->")
            assert found, marker
            text = before + content + after
        return text

    def write(self, path):
        path.write_text(self.html(), encoding="utf-8")
        return path


def parts(kind):
    """The files of a kind, styles or scripts, in the order of files.cmake."""
    return re.search(rf"set\(attentive_viz_{kind}\s+([^)]*)\)", (PAGE / "files.cmake").read_text()).group(1).split()


def png(pixels):
    """A data address of an RGB picture (rows, columns, 3) of bytes."""
    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels.astype(numpy.uint8))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64_of(whole)
