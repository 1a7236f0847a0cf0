#!/usr/bin/env python3
"""Draws score and mask functions and writes them as C++ sources, for tests that compare the kernel with the reference.

    draw_scores.py FOLDER [--seed N] [--count N] [--per-source N]    prints the seed; 30 functions, 10 to a source

The folder gets drawn_scores_0.cpp, drawn_scores_1.cpp, … and drawn_scores.cpp, which lists all functions
(tests/score/drawn_scores.h). Numbers stay small, every function is used inside its domain but in branches that `where` does not take,
where values and derivatives are NaN and Inf on purpose, and whatever decides between two results (conditions, min and max, floor,
abs) reads numbers that float and double hold alike, so that both decide alike.
"""

import argparse
import random
import re
from pathlib import Path

HEAD = """// Written by tools/generators/draw_scores.py, seed {seed}.

#include <attentive/score/score_mod.h>

#include "score/drawn_scores.h"

namespace attentive::test {{
"""
# The captured tensors (drawn_scores.h) as lookups. Their numbers are in [-1, 1].
LOOKUPS = ["c.number(pair)", "c.heads(pair.head)", "c.tokens(pair.key)", "c.tokens(pair.query)", "c.tokens(pair.keys - 1 - pair.key)",
           "c.pairs(pair.query, pair.key)", "c.pairs(pair.key, pair.query)", "c.distances(pair.query - pair.key + pair.keys)",
           "c.distances(pair.key - pair.query + pair.keys)", "c.by_head(pair.head, pair.key)", "c.by_head(pair.head, pair.query)",
           "c.all(pair.batch, pair.head, pair.query, pair.key)", "c.kinds(c.documents(pair.key))", "c.kinds(c.documents(pair.query) % 2)",
           "c.by_head(pair.head, 3)", "c.by_head(pair.head, pair.key / 4)", "c.tokens(min(abs(pair.query - pair.key), 9))",
           "c.kinds(pair, 1)", "c.tokens(c.documents(pair.key) + pair.key / 2)"]
INDICES = [("(pair.query - pair.key)", 150), ("(pair.key - pair.query)", 150), ("pair.head", 4), ("pair.batch", 2), ("pair.key % 7", 6),
           ("(pair.query / 16)", 10), ("min(abs(pair.query - pair.key), 9)", 9), ("max(pair.query - 3, pair.key)", 150), ("pair.keys", 150),
           ("(pair.query % 5 - pair.key % 3)", 6), ("c.documents(pair.key)", 3), ("where(pair.query < pair.key, pair.head, pair.key % 4)", 4),
           ("((pair.query - pair.key) / 8)", 19), ("((pair.key - pair.query) % 11)", 10), ("pair.queries", 150)]


class Draw:
    def __init__(self, rng):
        self.rng = rng
        self.lines = []  # of the body of the score that is being drawn
        self.with_score = True

    def named(self, text):
        """A variable of the score with this value."""
        self.lines.append(f"const auto x{len(self.lines)} = {text};")
        return f"x{len(self.lines) - 1}"

    def constant(self, low, high):
        return f"{self.rng.uniform(low, high):.3f}f"

    def exact(self):
        """A number that float and double hold alike, and its largest size."""
        if not self.with_score or self.rng.randrange(4) == 0:
            return self.rng.choice(LOOKUPS), 1.0
        return "s", 2.0

    def condition(self, depth):
        kind = self.rng.randrange(8 if depth > 0 else 5)
        if kind < 2:
            text, size = self.exact()
            return f"({text} {self.rng.choice(['<', '<=', '>', '>='])} {self.constant(-0.7 * size, 0.7 * size)})"
        if kind == 2:
            index, size = self.rng.choice(INDICES)
            return f"({index} {self.rng.choice(['<', '<=', '>', '>=', '==', '!='])} {self.rng.randint(0, size)})"
        if kind == 3:
            return self.rng.choice(["(pair.query >= pair.key)", "(c.documents(pair.query) == c.documents(pair.key))",
                                    "(pair.key % 3 == pair.head % 3)", "(pair.query - pair.key < 20)", "(pair.key < pair.keys / 2)"])
        if kind == 4:
            return f"(abs(pair.query - pair.key) {self.rng.choice(['<', '>'])} {self.rng.randint(1, 40)})"
        if kind == 5:
            return f"!{self.condition(depth - 1)}"
        return f"({self.condition(depth - 1)} {self.rng.choice('&|^')} {self.condition(depth - 1)})"

    def leaf(self):
        kind = self.rng.randrange(8)
        if kind < 3:
            return "s", 2.0
        if kind < 6:
            return self.rng.choice(LOOKUPS), 1.0
        if kind == 6:
            index, size = self.rng.choice(INDICES)
            factor = self.rng.uniform(0.3, 2.0) / size
            return f"{index} * {factor:.4f}f", factor * size + 0.01
        return self.constant(-1.5, 1.5), 1.5

    def number(self, depth):
        """An expression of a name or a constant, and the largest size of its value."""
        text, size = self.leaf() if depth == 0 else self.composed(depth)
        if size > 4.0:
            text, size = f"({text}) * {3.0 / size:.3f}f", 3.0
        return self.named(text) if not is_constant(text) else text, size

    def composed(self, depth):
        a, size = self.number(depth - 1)
        b, other = self.number(depth - 1)
        if is_constant(a):
            a, size = "s", 2.0
        kind = self.rng.randrange(23)
        if kind >= 20:
            return self.branch(a, size, b, other)
        c = self.constant(0.4, 1.2)
        simple = [("tanh", 1.0), ("sin", 1.0), ("cos", 1.0), ("sigmoid", 1.0), ("softplus", size + 0.7)]
        if kind < len(simple):
            return f"{simple[kind][0]}({a})", simple[kind][1]
        if kind == 5:
            return f"exp(tanh({a}))", 2.8
        square, most = f"({a} * {a} + {c})", size * size + 1.2
        text, least = self.exact()
        return [
            (f"log{square}", 3.0),
            (f"sqrt{square}", most ** 0.5),
            (f"rsqrt{square}", 1.6),
            (f"pow({square}, {self.constant(-1.5, 1.2)})", max(most ** 1.2, 4.0)),
            (f"pow({square}, {self.rng.choice(LOOKUPS)})", max(most, 2.5)),
            (f"{self.rng.choice(['min', 'max'])}({text}, {self.constant(-least / 2, least / 2)})", least),
            (f"floor(s * 1.5f + {self.rng.choice(['0.37f', '-0.29f'])}) * 0.5f + {a} * 0.5f", 2.0 + size / 2),
            (f"abs(s + {self.rng.choice(['0.3f', '0.7f', '0.1f'])}) - {a}", 2.7 + size),
            (f"{a} / ({b} * {b} + {c})", size * 2.6),
            (f"where({self.condition(2)}, {a}, {b})", max(size, other)),
            (f"{a} - {b}", size + other),
            (f"{a} * {b}", size * other),
            (f"-{a} + {self.rng.randint(1, 2)}", size + 2.0),
            (f"{a} + {b}", size + other),
        ][kind - 6]

    def branch(self, a, size, b, other):
        """A branch that only some pairs take, where its functions have derivatives; for other pairs they have none that is finite."""
        text, _ = self.exact()
        least = self.rng.uniform(0.15, 0.5)
        sign = self.rng.choice(["", "-"])
        taken = f"({text} > {least:.3f}f)" if not sign else f"({text} < -{least:.3f}f)"
        x = self.named(f"{sign}{text}")
        inner, most = self.rng.choice([
            (f"sqrt({x})", 1.5), (f"log({x})", 2.0), (f"rsqrt({x})", 2.6), (f"1 / {x}", 6.7), (f"pow({x}, -0.9f)", 5.6),
            (f"pow({x}, {self.rng.choice(LOOKUPS)})", 6.7), (f"pow({x}, {x})", 4.0), (f"{a} / {x}", 6.7 * size), (f"sqrt(log({x}) + 2)", 1.7),
            (f"log({x}) * sqrt({x})", 1.0), (f"exp(2 - 400 * {x})", 1.0), (f"{b} * rsqrt({x} * abs({x}))", 6.7 * other)])
        inner, most = self.named(inner), max(most, 0.1)
        inner, most = self.rng.choice([(inner, most), (f"tanh({inner})", 1.0), (f"cos({inner}) * {a}", size), (f"{inner} - {b}", most + other),
                                       (f"where({self.condition(1)}, {inner}, {a})", max(most, size))])
        inner = self.named(inner)
        return self.rng.choice([f"where({taken}, {inner}, {b})", f"where(!{taken}, {b}, {inner})"]), max(most, other)

    def score(self):
        """The body of a score function; every second one ends with a branch."""
        self.lines = []
        name, size = self.number(self.rng.randint(2, 4))
        if self.rng.randrange(2):
            text, size = self.branch(name, size, "s", 2.0)
            name = self.named(text)
        factor = self.rng.uniform(1.0, 3.0) / max(size, 1.0)
        result = f"s + {name} * {factor:.4f}f" if self.rng.randrange(4) else f"{name} * {factor:.4f}f + 0 * s"
        used = f"return {result};"
        for line in reversed(self.lines):  # what no later line uses is left out
            if line.split()[2] in re.findall(r"\bx\d+\b", used):
                used = f"{line} {used}"
        return used

    def mask(self):
        self.with_score = False
        text = f"return {self.condition(2)} | (pair.key == 0);"
        self.with_score = True
        return text


def is_constant(text):
    return text.strip("()-").replace(".", "").rstrip("f").isdigit()


def function_source(draw, number, masked):
    score = draw.score()
    mask = draw.mask() if masked else ""
    made = f"mask_mod([=](auto pair) {{ {mask} }})" if masked else "MaskMod()"
    unused = "" if "c." in score + mask else "  (void)c;\n"
    return (f"\nDrawnFunctions drawn_{number}(const DrawnTensors& tensors) {{\n"
            f"  const DrawnCaptures c(tensors);\n{unused}"
            f"  return {{score_mod([=](auto s, auto pair) {{ (void)pair; {score} }}),\n"
            f"          {made}, R\"({score} {mask})\"}};\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--per-source", type=int, default=10)
    arguments = parser.parse_args()
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"draw_scores.py: seed {seed}, {arguments.count} functions")
    draw = Draw(random.Random(seed))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    head = HEAD.format(seed=seed)
    for part, first in enumerate(range(0, arguments.count, arguments.per_source)):
        numbers = range(first, min(first + arguments.per_source, arguments.count))
        text = head + "".join(function_source(draw, n, draw.rng.randrange(3) == 0) for n in numbers)
        Path(arguments.folder, f"drawn_scores_{part}.cpp").write_text(text + "\n}  // namespace attentive::test\n", encoding="utf-8")
    every = range(arguments.count)
    text = head + "\n" + "".join(f"DrawnFunctions drawn_{n}(const DrawnTensors& tensors);\n" for n in every)
    text += f"\nconst int64_t kDrawnSeed = {seed};\n"
    text += "const std::vector<DrawnFunctions (*)(const DrawnTensors&)> kDrawn = {\n"
    text += "".join(f"    drawn_{n},\n" for n in every) + "};\n\n}  // namespace attentive::test\n"
    Path(arguments.folder, "drawn_scores.cpp").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
