#!/usr/bin/env python3
"""Checks that every public header has a source and a test of its name, or that docs/architecture.md says why not.

    tools/checks/check_pairs.py [ROOT]        prints a line per file that is missing, and per row of the page that is not true; exit
                                              status 1 if there is any
    tools/checks/check_pairs.py --self-test   breaks each rule in a made-up tree and wants it reported
"""

import re
from pathlib import Path

import tree_check

PAGE = "docs/architecture.md"
HEADERS = Path("include/attentive")
# | `core/result.h` | source, test | three members |
ROW = re.compile(r"^\| `(\w+/\w+)\.h` \| ([\w, ]+) \| (.+) \|$", re.M)
KINDS = {"source": "src/{}.cpp", "test": "tests/{}_test.cpp"}


def missing(root, concept):
    """The files that a concept such as core/mask lacks: source, test."""
    return {kind for kind, path in KINDS.items() if not (root / path.format(concept)).is_file()}


def faults_in(root):
    """All missing files and all false exceptions, as text, and the number of headers."""
    concepts = [str(path.relative_to(root / HEADERS).with_suffix("")) for path in sorted((root / HEADERS).glob("*/*.h"))]
    rows = {concept: set(lacks.split(", ")) for concept, lacks, _ in ROW.findall((root / PAGE).read_text(encoding="utf-8"))}
    faults = [f"{PAGE}: {concept}.h is not there" for concept in sorted(rows.keys() - set(concepts))]
    for concept in concepts:
        lacks, stated = missing(root, concept), rows.get(concept, set())
        faults += [f"{concept}.h has no {kind}: add {KINDS[kind].format(concept)}, or say in {PAGE} why not"
                   for kind in sorted(lacks - stated)]
        faults += [f"{PAGE}: {concept}.h has no {kind}, it says; it has" for kind in sorted(stated - lacks)]
    return faults, len(concepts)


def self_test():
    """Tests a correct tree, then one fault at a time."""
    right = {
        "include/attentive/attentive.h": "",  # not in a folder
        "include/attentive/core/mask.h": "",
        "include/attentive/core/result.h": "",
        "src/core/mask.cpp": "",
        "tests/core/mask_test.cpp": "",
        PAGE: "| header | lacks | why |\n|---|---|---|\n| `core/result.h` | source, test | three members |\n",
    }
    wrong = {
        "no source": ("src/core/mask.cpp", None),
        "no test": ("tests/core/mask_test.cpp", None),
        "a new header": ("include/attentive/core/new.h", ""),
        "an exception that has a test": ("tests/core/result_test.cpp", ""),
        "an exception without a header": ("include/attentive/core/result.h", None),
        "an exception without a reason": (PAGE, "| `core/result.h` | source, test |  |\n"),
    }
    return tree_check.report_self_test(f"{len(wrong)} broken rules", tree_check.missed_of(faults_in, right, wrong))


if __name__ == "__main__":
    tree_check.main("pairs", "headers", faults_in, self_test)
