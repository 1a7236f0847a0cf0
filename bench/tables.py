#!/usr/bin/env python3
"""Writes the figures of attentive-bench's JSON into a Markdown page.

    python3 bench/tables.py bench/results/all.json docs/performance.md

Everything between the lines `<!-- figures: SUITE -->` and `<!-- end -->` is replaced by that suite's table, so the text
around the figures stays and the figures are never typed by hand. The tables of `breakdown` (bench/breakdown.py), `peers`
(bench/python_peers.py) and `attempts` come from the files of these names beside the measurements; `breakdown-avx2` is the
same kind of table from breakdown-avx2.json, and likewise `breakdown-avx512`. `avx2:module` is the table of the suite
`module` from avx2.json, another run beside the measurements, and `avx2:machine` its machine. `avx2+avx2-few:short` is a
short table for one processor: a few rows of several suites, chosen from these runs. `cuda-flex` compares compiled FlexAttention (bench/flex_peer.py, cuda-flex.json)
with the measurements: both programs timed PyTorch's memory-efficient kernel, and the table gives the ratio of the ratios to it.
`league-attention` and the other tables of bench/league/report.py come from league.json, `zen4:league-models` from zen4-league.json.
"""

import json
import re
import sys
from pathlib import Path

from league import report as league
from league.report import seconds


def percent(x):
    return f"{100 * x:.0f}" if x else "–"


# The rows of the short table: suite, how the case is told, case, peer.
SHORT = (
    ("forward", "forward, causal, T = 1024", "causal B1 H12 T=1k D64", "torch sdpa"),
    ("forward-backward", "forward and backward, causal, T = 1024", "causal B1 H12 T=1k D64", "torch sdpa"),
    ("dropout", "the same with dropout 0.1", "fwd+bwd p=0.1 T=1k", "torch sdpa"),
    ("window", "forward, window of 256, T = 4096", "W=256 T=4k", "torch sdpa + mask"),
    ("decode", "one query, 32,768 keys, 32/8 heads", "32/8 heads, 32k keys", "torch sdpa, stacked heads"),
    ("module", "chapter-3 module, forward", "forward", "chapter-3 code"),
    ("module", "chapter-3 module, training step, dropout 0.1", "training step, dropout 0.1", "chapter-3 code"),
    ("tiny", "chapter-3 module, one token, one thread", "d768 h12 T=1, 1 thread", "chapter-3 code"),
)


def short(runs):
    """A few rows of every suite that these runs of one processor have; of a suite in two runs, those of the first."""
    lines = ["| what | type | ours | peer | peer / ours (p10 – p90) | ours, % of limit |", "|---|---|--:|---|--:|--:|"]
    for suite, told, case, contender in SHORT:
        data = next((run for run in runs if any(row["suite"] == suite for row in run["rows"])), {"rows": []})
        for row in data["rows"]:
            attentive, *peers = row["timings"]
            peer = next((peer for peer in peers if peer["contender"] == contender), None)
            if (row["suite"], row["case"]) == (suite, case) and peer:
                ratio = peer["ratio_to_ours"]
                lines.append(f"| {told} | {row['dtype']} | {seconds(attentive['seconds']['median'])} | {contender} | "
                             f"**{ratio['median']:.2f}** ({ratio['p10']:.2f} – {ratio['p90']:.2f}) | "
                             f"{percent(attentive['fraction_of_limit'])} |")
    return lines


def rows_of(data, suite):
    lines = ["| case | type | ours | peer | peer / ours (p10 – p90) | ours, % of limit (same round) | peer, % |", "|---|---|--:|---|--:|--:|--:|"]
    for row in data["rows"]:
        if row["suite"] != suite:
            continue
        attentive, *peers = row["timings"]
        told = re.search(r" \(\w+\)$", attentive["contender"])  # the backend that Auto took, where that is told
        backend = told[0] if told else ""
        for peer in peers or [None]:
            ratio = peer and peer["ratio_to_ours"]
            lines.append(
                f"| {row['case']} | {row['dtype']} | {seconds(attentive['seconds']['median'])}{backend} | "
                + (f"{peer['contender']} | **{ratio['median']:.2f}** ({ratio['p10']:.2f} – {ratio['p90']:.2f}) | "
                   if peer else "none | – | ")
                + f"{percent(attentive['fraction_of_limit'])} ({percent(attentive['fraction_of_limit_same_round'])}) | {percent(peer['fraction_of_limit']) if peer else '–'} |")
        for refusal in row.get("refusals", []):
            lines.append(f"| {row['case']} | {row['dtype']} | | {refusal['contender']} | not run: {refusal['why']} | | |")
    return lines


def flex(measured, data):
    """FlexAttention's time over ours, each as a multiple of the efficient kernel's, causal, in its own process."""
    attentive_times = {(row["case"], row["dtype"]): {timing["contender"]: timing["seconds"]["median"] for timing in row["timings"]}
            for row in measured["rows"]}
    lines = [", ".join(f"{name} {version}" for name, version in data["versions"].items()) + ".", "",
             "| case | type | FlexAttention / ours | FlexAttention / torch efficient, causal | ours / torch efficient, causal |",
             "|---|---|--:|--:|--:|"]
    for row in data["rows"]:
        variant, direction, size = re.fullmatch(r"(.*) (fwd(?:\+bwd)?) (T=.*)", row["case"]).groups()
        times = attentive_times.get((row["case"], row["dtype"]), {})
        efficient = attentive_times.get((f"causal {direction} {size}", row["dtype"]), {}).get("torch efficient")
        if "skipped" in row:
            lines.append(f"| {row['case']} | {row['dtype']} | skipped: {row['skipped']} | | |")
        elif efficient and times:
            flex_share, attentive_share = row["flex_s"] / row["efficient_s"], next(iter(times.values())) / efficient
            lines.append(f"| {row['case']} | {row['dtype']} | **{flex_share / attentive_share:.2f}** | {flex_share:.2f} | {attentive_share:.2f} |")
    return lines


def growth(data):
    series = list(dict.fromkeys(point["series"] for point in data["growth"]))
    lines = ["| T | " + " | ".join(f"{name}: time, MiB" for name in series) + " |", "|--:|" + "--:|" * len(series)]
    for tokens in sorted({point["tokens"] for point in data["growth"]}):
        cells = []
        for name in series:
            found = [p for p in data["growth"] if p["series"] == name and p["tokens"] == tokens]
            cells.append(f"{seconds(found[0]['seconds'])}, {found[0]['bytes'] / 2**20:.1f}" if found else "–")
        lines.append(f"| {tokens} | " + " | ".join(cells) + " |")
    return lines


def breakdown(data):
    parts = list(dict.fromkeys(part for row in data["rows"] for part in row["shares"]))
    parts = [part for part in parts if any(row["shares"].get(part, 0) >= 0.02 for row in data["rows"])]
    lines = ["| case, % of the samples | " + " | ".join(parts) + " | named |", "|---|" + "--:|" * (len(parts) + 1)]
    for row in data["rows"]:
        cells = [percent(row["shares"].get(part, 0)) for part in parts]
        lines.append(f"| {row['case']} | " + " | ".join(cells) + f" | {percent(row['named'])} |")
    return lines


def peers(data):
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items() if name != "threads")
    lines = [f"{versions}; {data['threads']} threads.", "", "| case | type | way | time | time / baseline | baseline |",
             "|---|---|---|--:|--:|---|"]
    for row in data["rows"]:
        if "skipped" not in row:
            lines.append(f"| {row['case']} | {row['dtype']} | {row['way']} | {seconds(row['median_s'])} | "
                         f"{row['ratio_to_baseline']:.2f} | {row['baseline']} |")
        elif row["skipped"] != "RuntimeError: --without":
            lines.append(f"| {row['case']} | {row['dtype']} | {row['way']} | skipped: {row['skipped']} | | |")
    return lines


def attempts(data):
    lines = [f"Machine, unless another is named: {data['machine']}.", "", "| rows | tried | measured | kept | what it taught |", "|---|---|---|---|---|"]
    for attempt in data["attempts"]:
        measured = "; ".join(
            f"{name}: " + (" / ".join(f"{x:g}" for x in value) if isinstance(value, list) else f"{value:g}")
            for name, value in attempt["measured"].items())
        where = f" ({attempt['machine']})" if "machine" in attempt else ""
        lines.append(f"| {', '.join(attempt['rows'])} | {attempt['tried']}{where} | {measured} ({attempt['unit']}) | "
                     f"{'yes' if attempt['kept'] else 'no'} | {attempt['taught']} |")
    return lines


BESIDE = {"breakdown": breakdown, "peers": peers, "attempts": attempts}


def machine(data):
    m, p = data["machine"], data["peaks"]
    device = f"{m['device']}, beside " if m.get("device") else ""
    return [f"{device}{m['cpu']} ({m['isa']}), {m['cores']} cores; LibTorch {m['libtorch']}, {m['compiler']}, attentive {m['attentive']}.",
            f"Limits with {p['threads']} threads, measured by the same run: fp32 {p['fp32_flops'] / 1e9:.0f} GF/s ({p['fp32_method']}), "
            f"bf16 {p['bf16_flops'] / 1e9:.0f} GF/s ({p['bf16_method']}), read {p['read_bytes_per_second'] / 1e9:.1f} GB/s "
            f"({p['read_method']})."]


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tables.py MEASUREMENTS.json PAGE.md")
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        page = file.read()

    def beside(name):
        return json.loads(Path(sys.argv[1]).with_name(f"{name}.json").read_text(encoding="utf-8"))

    def table(match):
        marker = match.group(1)
        file, _, suite = marker.rpartition(":")
        kind = suite.split("-")[0]
        if suite.endswith("-flex"):
            lines = flex(data, beside(suite))
        elif kind == "league":
            lines = league.TABLES[suite.removeprefix("league-")](beside(f"{file}-league" if file else "league"))
        elif kind in BESIDE:
            lines = BESIDE[kind](beside(suite))
        elif suite == "short":
            lines = short([beside(name) for name in file.split("+")])
        else:
            run = beside(file) if file else data
            lines = machine(run) if suite == "machine" else growth(run) if suite == "growth" else rows_of(run, suite)
        if len(lines) == 2 and suite not in ("machine", "league-machine", "league-absent"):
            sys.exit(f"tables: {sys.argv[1]} has no figures of {suite}")
        return f"<!-- figures: {marker} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"

    page, count = re.subn(r"<!-- figures: (\S+) -->.*?<!-- end -->", table, page, flags=re.S)
    if not count:
        sys.exit(f"tables: {sys.argv[2]} has no place for figures")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
