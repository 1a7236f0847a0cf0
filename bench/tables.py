#!/usr/bin/env python3
"""Writes the figures of bench/results into the pages that show them.

    bench/tables.py                                 writes the tables of all pages
    bench/tables.py --check                         fails if a table differs from its figures
    bench/tables.py --take OUT.csv bench/results/zen5.csv
                                                    takes the figures that the pages show from a new run

The lines between `<!-- figures: FILE SUITE... -->` and `<!-- end -->` are a table of the named suites of
bench/results/FILE.csv. A file holds one figure a line, as `attentive-bench --csv` and bench/league/run.py write them: the
first line of a case is this package's, those after it are the peers'. Comments say where and how it was measured.
"""

import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/performance.md", "docs/guide/own_scores.md")
COLUMNS = ("suite", "case", "dtype", "way", "seconds", "ratio", "p10", "p90", "limit", "mib")
TYPES = ("fp32", "bf16")


def read(path):
    """The comments and the rows of a file of figures."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    return comments, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def seconds(x):
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if x * factor >= 1:
            return f"{x * factor:.3g} {unit}"
    return f"{x * 1e6:.3g} µs"


def cells(ours, theirs):
    """Our time, the ratio of a peer's time to it, and the share of the limit."""
    ratio = f"**{float(theirs['ratio']):.2f}** ({float(theirs['p10']):.2f}–{float(theirs['p90']):.2f})" if theirs else ""
    return [seconds(float(ours["seconds"])) if ours else "", ratio,
            f"{100 * float(ours['limit']):.0f}" if ours and ours["limit"] else ""]


def table(name, suites):
    rows = [row for row in read(ROOT / f"bench/results/{name}.csv")[1] if row["suite"] in suites]
    if missing := set(suites) - {row["suite"] for row in rows}:
        sys.exit(f"tables: bench/results/{name}.csv has no figures of {', '.join(sorted(missing))}")
    ours, theirs, order = {}, {}, {}
    for row in rows:
        case = row["suite"], row["case"]
        if (*case, row["dtype"]) not in ours:
            ours[*case, row["dtype"]] = row
            order.setdefault(case, {})
        else:
            theirs[*case, row["way"], row["dtype"]] = row
            order[case][row["way"]] = None
    lines = [["call", "peer", *(text for dtype in TYPES for text in (f"ours, {dtype}", "peer / ours", "% of limit"))]]
    for case, ways in order.items():
        for way in ways or [""]:
            begins = way == next(iter(ways), "")  # what stands for the whole case is written once
            shown = [cells(begins and ours.get((*case, dtype)), theirs.get((*case, way, dtype))) for dtype in TYPES]
            lines.append([f"{case[0]}: {case[1]}" if begins else "", way, *shown[0], *shown[1]])
    used = [place for place in range(8) if any(line[place] for line in lines[1:])]
    text = ["| " + " | ".join(line[place] for place in used) + " |" for line in lines]
    return [text[0], "|" + "|".join("---" if place < 2 else "--:" for place in used) + "|", *text[1:]]


def filled(page):
    def replaced(match):
        name, *suites = match[1].split()
        return f"<!-- figures: {match[1]} -->\n" + "\n".join(table(name, suites)) + "\n<!-- end -->"

    return re.sub(r"<!-- figures: ([^>]*?) -->.*?<!-- end -->", replaced, page, flags=re.S)


def take(source, target):
    """Puts the figures of a new run in the place of old ones; those that no page shows are left out."""
    about, new = read(source)
    comments, rows = read(target)
    found = {tuple(row[key] for key in COLUMNS[:4]): row for row in new}
    taken = 0
    for row in rows:
        if fresh := found.get(tuple(row[key] for key in COLUMNS[:4])):
            row.update({key: fresh[key] for key in COLUMNS})
            taken += 1
    if not taken:
        sys.exit(f"tables: {source} has no figure of {target}")
    with open(target, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in dict.fromkeys(comments + about))
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{taken} of {len(rows)} figures taken; remove the comments of runs that no figure is of any more")


def main():
    if sys.argv[1:2] == ["--take"] and len(sys.argv) == 4:
        return take(*sys.argv[2:])
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    for page in PAGES:
        old = (ROOT / page).read_text(encoding="utf-8")
        new = filled(old)
        if old != new and sys.argv[1:]:
            sys.exit(f"{page} differs from bench/results: run bench/tables.py")
        (ROOT / page).write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
