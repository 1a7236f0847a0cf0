"""The pages that the browser tests open: synthetic attention of known numbers, from one token to 4,096.

pages.py FOLDER [NAME …]     writes all of them, or those named
"""

import sys
from pathlib import Path

import numpy

from page_writer import Head, Page, base64_of, png

SENTENCE = [
    "The",
    " animal",
    " didn",
    "'t",
    " cross",
    " the",
    " street",
    ",",
    " because",
    " it",
    " was",
    " too",
    " tired",
    ".",
]
PATTERNS = ["previous", "first", "near", "same", "wide", "sharp"]


def causal(size):
    return numpy.tril(numpy.ones((size, size), dtype=bool))


def scores_of(draw, queries, keys, pattern, origin=0):
    """Scores of a head that resembles a language model's."""
    i = numpy.arange(queries)[:, None] + origin
    j = numpy.arange(keys)[None]
    noise = draw.standard_normal((queries, keys), dtype=numpy.float32)
    extra = {
        "previous": 6.0 * (j == i - 1),
        "first": 5.0 * (j == 0),
        "near": -3.0 * numpy.log1p(numpy.abs(i - j) / 16),
        "same": 4.0 * ((i * 7 + j * 5) % 11 == 0),
        "wide": 0.0 * i,
        "sharp": 7.0 * ((i - j) % 16 == 3),
    }[pattern]
    return noise + extra.astype(numpy.float32) if pattern != "wide" else noise * 0.3


def head_of(number, scores, keep, origin=0, sink=False):
    masked = numpy.where(keep, scores, -numpy.inf)
    most = numpy.where(keep.any(axis=1), masked.max(axis=1), 0)[:, None]
    exponentials = numpy.exp(masked - most)
    total = exponentials.sum(axis=1) + (numpy.exp(-most[:, 0]) if sink else 0)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        weights = numpy.where(keep, exponentials / total[:, None], 0)
        logsumexp = numpy.log(total) + most[:, 0]
    return Head(number, weights, keep, logsumexp, origin)


def model(title, layers, heads, tokens, keep, seed=1, note=None):
    draw = numpy.random.default_rng(seed)
    page = Page(title, note)
    size = len(tokens)
    index = page.add_tokens(tokens)
    for layer in range(layers):
        made = [
            head_of(n, scores_of(draw, size, size, PATTERNS[(layer * 5 + n) % len(PATTERNS)]), keep)
            for n in range(heads)
        ]
        page.add_view(f"trf_blocks.{layer}.att", made, index, index)
    return page


def words(count):
    return [SENTENCE[n % len(SENTENCE)] for n in range(count)]


def one():
    return model("One token", 1, 1, ["Hello"], causal(1))


def small():
    return model("A small language model", 4, 8, SENTENCE, causal(14), note="Synthetic attention, 4 layers of 8 heads.")


def long():
    return model("Twelve layers of 512 tokens", 12, 12, words(512), causal(512))


def deep():
    return model("Twenty-four layers", 24, 16, SENTENCE, causal(14))


def lines():
    return model("Twelve heads of 256 tokens", 1, 12, words(256), causal(256))


def named():
    draw = numpy.random.default_rng(12)
    page = Page("Long names, tokens without spaces")
    index = page.add_tokens(["[CLS]", "a", "cat", "##s", "[SEP]"])
    everything = numpy.ones((5, 5), dtype=bool)
    for layer in (9, 10):
        heads = [head_of(n, scores_of(draw, 5, 5, "wide"), everything) for n in range(12)]
        page.add_view(f"model.decoder.blocks.{layer}.cross_attention.inner", heads, index, index)
    return page


def huge():
    draw = numpy.random.default_rng(3)
    page = Page("4,096 tokens, one head")
    index = page.add_tokens(words(4096))
    page.add_view("trf_blocks.0.att", [head_of(0, scores_of(draw, 4096, 4096, "near"), causal(4096))], index, index)
    return page


def window():
    i, j = numpy.arange(96)[:, None], numpy.arange(96)[None]
    return model("A window of 12 keys", 2, 4, words(96), (j <= i) & (j > i - 12))


def holes():
    keep = numpy.random.default_rng(5).random((24, 24)) < 0.6
    keep[3] = False  # a query without any key
    return model("A mask with holes", 1, 3, words(24), keep)


def full():
    return model("An encoder", 2, 6, words(40), numpy.ones((40, 40), dtype=bool))


def cross():
    draw = numpy.random.default_rng(7)
    page = Page("Cross-attention, a cache, a sink and linear attention")
    source = page.add_tokens(["Das", " Tier", " ging", " nicht", " über", " die", " Straße", "."])
    target = page.add_tokens(SENTENCE[:5])
    everything = numpy.ones((5, 8), dtype=bool)
    page.add_view(
        "decoder.0.cross", [head_of(n, scores_of(draw, 5, 8, "wide"), everything) for n in range(2)], target, source
    )
    cached = numpy.tril(numpy.ones((3, 8), dtype=bool), 5)
    page.add_view("decoder.0.self", [head_of(2, scores_of(draw, 3, 8, "near", 5), cached, origin=5, sink=True)])
    positive = numpy.abs(draw.standard_normal((6, 6))) * causal(6)
    linear = Head(0, positive / positive.sum(axis=1, keepdims=True), causal(6))
    page.add_view("linear.0", [linear], batch=2)
    return page


def decode():
    """One query on a long cache: a map of a single row."""
    draw = numpy.random.default_rng(8)
    page = Page("One query, 4,096 keys")
    page.add_view(
        "trf_blocks.0.att",
        [head_of(0, scores_of(draw, 1, 4096, "near", 4095), numpy.ones((1, 4096), dtype=bool), 4095)],
    )
    return page


def vit():
    draw = numpy.random.default_rng(9)
    page = Page("A vision transformer", "8 × 8 patches and a class token.")
    rows = columns = 8
    y, x = numpy.mgrid[0:128, 0:128] / 127
    disc = ((x - 0.45) ** 2 + (y - 0.5) ** 2 < 0.09)[..., None]
    sky = numpy.stack([90 + 90 * y, 140 + 60 * y, 200 - 40 * y], axis=-1)
    pixels = png(numpy.where(disc, numpy.array([232, 178, 74]), sky))
    rollout = numpy.eye(65)
    py, px = numpy.mgrid[0:rows, 0:columns]
    for layer in range(3):
        made = []
        for n in range(4):
            centre = draw.random(2) * 7
            scores = scores_of(draw, 65, 65, "wide")
            scores[:, 0] += 2
            scores[:, 1:] += 3 * numpy.exp(-((px - centre[0]) ** 2 + (py - centre[1]) ** 2) / 6).ravel()
            made.append(head_of(n, scores, numpy.ones((65, 65), dtype=bool)))
        mean = numpy.mean([head.weights for head in made], axis=0) + numpy.eye(65)
        rollout = (mean / mean.sum(axis=1, keepdims=True)) @ rollout
        image = {"rows": rows, "columns": columns, "first": 1, "pixels": 0 if layer else pixels}
        page.rollout = rollout[0].astype(numpy.float32)
        page.add_view(f"blocks.{layer}.att", made, image=image, rollout=rollout[0])
    return page


def neurons():
    draw = numpy.random.default_rng(10)
    page = Page("Queries and keys")
    index = page.add_tokens(SENTENCE)
    made, embedded = [], []
    for n in range(3):
        q, k = (draw.standard_normal((14, 32)).astype(numpy.float32) for _ in range(2))
        made.append(head_of(n, q @ k.T * 32**-0.5, causal(14)))
        embedded.append({"head": n, "q": base64_of(q), "k": base64_of(k), "scale": 32**-0.5})
    page.q_and_k = (q, k)
    page.add_view("trf_blocks.0.att", made, index, index, neurons=embedded[1:])
    return page


RIGHT_TO_LEFT = ["שלום", " עולם", ",", " مرحبا", " بالعالم", " und", " 42", "."]
ODD = [
    "</script>",
    "<!--",
    "&amp;",
    "\n",
    "\t",
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\u202e",
    "\u200b",
    "",
    " ",
    "👩‍👩‍👧",
    "🇩🇪",
    "👍🏽",
    "e\u0301",
    "\ufeff",
    "]]>",
    '"',
    "a" * 80,
    "漢字",
    "\ud7ff",
    "\U0001f600",
    "\u200d",
    "\ufffe",
]


def rtl():
    return model("Right to left", 2, 4, RIGHT_TO_LEFT, numpy.ones((8, 8), dtype=bool))


def odd():
    size = len(ODD)
    return model("Odd tokens </script> & <b>\x07", 1, 2, ODD, numpy.ones((size, size), dtype=bool))


def coarse():
    """A page that had to reduce its size: 15 levels."""
    draw = numpy.random.default_rng(11)
    page = Page("Fifteen levels", levels=15)
    index = page.add_tokens(SENTENCE)
    page.add_view("a", [head_of(0, scores_of(draw, 14, 14, "near"), causal(14))], index, index)
    return page


PAGES = {
    make.__name__: make
    for make in (one, small, long, lines, named, deep, huge, window, holes, full, cross, decode, vit, neurons, rtl, odd, coarse)
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PAGES:
        path = PAGES[name]().write(folder / f"{name}.html")
        print(f"{path} {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
