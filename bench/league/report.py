"""The league's tables and its figures, one a line, from the rows of its JSON file."""

import csv
import io


def seconds(x):
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if x * factor >= 1:
            return f"{x * factor:.3g} {unit}"
    return f"{x * 1e6:.3g} µs"


def ratio(spread):
    return f"**{spread['median']:.2f}** ({spread['p10']:.2f} – {spread['p90']:.2f})"


def rows_of(data, part):
    """The rows of one part; those of one case stand together, however often it was measured."""
    rows = [row for row in data["rows"] if row["part"] == part]
    places = {}
    for row in rows:
        places.setdefault((row["dtype"], row["case"]), len(places))
    return sorted(rows, key=lambda row: places[row["dtype"], row["case"]])


def machine(data):
    """The processor, versions and dates in one paragraph."""
    about = data["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(data["versions"].items()))
    dates = sorted({row["date"] for row in data["rows"]}) or ["nothing measured"]
    return [f"{about['cpu']} ({about['isa']}), {about['threads']} threads, {' and '.join(dict.fromkeys((dates[0], dates[-1])))}; attentive "
            f"{about['attentive']}, LibTorch {about['libtorch']}, {about['compiler']}; {versions}."]


def attention(data):
    lines = ["| case | type | ours | peer | peer's time | peer / ours (p10 – p90) |", "|---|---|--:|---|--:|--:|"]
    for row in rows_of(data, "attention"):
        start = f"| {row['case']} | {row['dtype']} "
        if "refused" in row:
            lines.append(f"{start}| | {row['way']} | not run: {row['refused']} | |")
        else:
            lines.append(f"{start}| {seconds(row['ours']['median'])} | {row['way']} | {seconds(row['peer']['median'])} | {ratio(row['ratio'])} |")
    return lines


def models(data):
    lines = ["| model | type | runtime | result | prompt of 512 | / ours (p10 – p90) | a token | / ours (p10 – p90) | load | peak memory |",
             "|---|---|---|---|--:|--:|--:|--:|--:|--:|"]
    for row in rows_of(data, "models"):
        start = f"| {row['case']} | {row['dtype']} | {row['way']} "
        if "refused" in row:
            lines.append(f"{start}| not run: {row['refused']} | | | | | | |")
            continue
        times = "".join(f"| {seconds(row[key]['peer']['median'])} | {ratio(row[key]['ratio'])} " for key in ("first_s", "token_s"))
        lines.append(f"{start}| {row['checked']} {times}| {seconds(row['load_s'])} | {row['peak_bytes'] / 2**20:.0f} MiB |")
    return lines


def absent(data):
    return ["| peer | why it is absent |", "|---|---|", *(f"| {name} | {why} |" for name, why in sorted(data["absent"].items()))]


def minutes(about, key):
    return f"{about[key] / 60:.1f}" if key in about else "–"


def environments(data):
    return ["| environment | minutes to install | minutes of processors | GB |", "|---|--:|--:|--:|",
            *(f"| {name} | {minutes(about, 'seconds')} | {minutes(about, 'cpu_seconds')} | {about['bytes'] / 1e9:.1f} |"
              for name, about in sorted(data["environments"].items()))]


TABLES = {"machine": machine, "attention": attention, "models": models, "absent": absent, "environments": environments}


def page(data):
    """All tables as one Markdown text."""
    return "\n\n".join("\n".join(table(data)) for table in TABLES.values()) + "\n"


def lines(data):
    """The figures in the form of attentive-bench's CSV files, which bench/tables.py takes into bench/results."""
    text = io.StringIO()
    text.write("# league: " + machine(data)[0] + "\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["suite", "case", "dtype", "way", "seconds", "ratio", "p10", "p90", "limit", "mib", "note"])
    ours = set()
    for part in ("attention", "models"):
        for row in rows_of(data, part):
            # This package has no 8-bit form: those of others stand beside its bfloat16.
            dtype, way = ("bf16", f"{row['way']}, 8 bits") if row["dtype"] == "int8" else (row["dtype"], row["way"])
            if "refused" in row:
                writer.writerow(["league", row["case"], dtype, way, *[""] * 6, f"not run: {row['refused']}"])
                continue
            timings = [(row["case"], row)] if part == "attention" else [
                (f"{row['case']}, {what}", row[key]) for what, key in (("prompt of 512", "first_s"), ("a token", "token_s"))]
            for case, timing in timings:
                if (case, dtype) not in ours:
                    ours.add((case, dtype))
                    writer.writerow(["league", case, dtype, "attentive", f"{timing['ours']['median']:.6g}", *[""] * 6])
                if not row["way"].startswith("attentive") or "built-in" in row["way"]:
                    spread = [f"{timing['ratio'][key]:.6g}" for key in ("median", "p10", "p90")]
                    writer.writerow(["league", case, dtype, way, f"{timing['peer']['median']:.6g}", *spread, "", "", ""])
    return text.getvalue()
