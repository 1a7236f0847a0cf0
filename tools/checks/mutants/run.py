#!/usr/bin/env python3
"""Changes one line of the sources at a time and demands that the named test fails.

    python3 tools/checks/mutants/run.py              all mutants; prints the survivors; exit 1 if there is one
    python3 tools/checks/mutants/run.py scale causal only those whose name contains a word
    python3 tools/checks/mutants/run.py --since main  only those whose file or entry differs from a commit's
    python3 tools/checks/mutants/run.py --list
    python3 tools/checks/mutants/run.py --check      builds nothing; exit 1 if an entry fits the sources no more
    python3 tools/checks/mutants/run.py --stale      lists the entries that fit no more; exit 1 if there is one
    python3 tools/checks/mutants/run.py --self-test  reformats, moves and spoils a made-up source, and wants each told

The list is tools/checks/mutants/*.json: objects with `name`, `file`, `find` (must occur exactly once), `replace`, `target` (a test
executable of the build), `filter` (the name of a Catch2 test, or tags) and, for one that makes the test hang, `timeout` in
seconds. In C++, `find` may be laid out differently: spaces and line breaks between tokens do not count, those in string
literals do. If `file` does not hold it, it may stand in another C++ file, exactly once in the tree: the tool says where. The sources are copied to a folder of their own and built there, so the working tree is never touched. Shared
libraries: a mutant costs one compilation and one link.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent


def load():
    mutants = []
    for path in sorted(HERE.glob("*.json")):
        mutants += json.loads(path.read_text())
    names = [m["name"] for m in mutants]
    doubled = {n for n in names if names.count(n) > 1}
    if doubled:
        sys.exit(f"mutants: names given twice: {sorted(doubled)}")
    return sorted(mutants, key=lambda m: (m["target"], m["file"]))  # adjacent mutants then rebuild little


CPP = (".h", ".cpp", ".cu", ".cuh")
TOKEN = re.compile(r'''"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z0-9_]+|<<=|>>=|<=>|\.\.\.|->|::|\+\+|--|&&|\|\||<<
                       |[-+*/%&|^=!<>]=|\S''', re.X)


def tracked(root):
    """The names of the tracked and the new files."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True,
                            capture_output=True).stdout.decode().split("\0")
    return [name for name in listed if name and (root / name).is_file()]


def pattern_of(find):
    """A pattern of C++ text that matches it however it is laid out."""
    # Quotes without a partner and comments are not tokens: there, only the white space that is written may differ.
    tokens = None if "//" in find or "/*" in find else TOKEN.findall(find)
    if tokens is None or any(token in ("'", '"') for token in tokens):
        return r"\s+".join(map(re.escape, re.split(r"\s+", find)))
    pattern, last = "", ""
    for token in tokens:
        apart = last and (last[-1].isalnum() or last[-1] == "_") and (token[0].isalnum() or token[0] == "_")
        pattern += (r"\s+" if apart else r"\s*" if last else "") + re.escape(token)
        last = token
    # White space at the ends is part of what is replaced.
    return (r"\s+" if find[0].isspace() else "") + pattern + (r"\s+" if find[-1].isspace() else "")


def places_in(name, text, find):
    """(begin, end) of every occurrence: as it is written, else (in C++) laid out differently."""
    exact = [match.span() for match in re.finditer(re.escape(find), text)]
    if exact or not name.endswith(CPP) or not find.strip():
        return exact
    return [match.span() for match in re.finditer(pattern_of(find), text)]


def locate(mutant, tree, names):
    """(file, begin, end, reason) of a mutant's text in these sources; the reason is empty if it can be applied."""
    def places(name):
        return [(name, *span) for span in places_in(name, (tree / name).read_text(), mutant["find"])]
    here = mutant["file"]
    found = places(here) if here in names else []
    where = here
    if not found:  # moved, or the file was renamed
        others = [name for name in names if name.endswith(CPP) and name != here]
        found = [place for name in others for place in places(name)]
        where = "the tree"
    if len(found) == 1:
        return *found[0], ""
    missing = "" if here in names else f"there is no {here}, and "
    count = f"occurs {len(found)} times in {where}"
    if not found and not missing:
        count = f"occurs 0 times in {here}, and nowhere else"
    return here, 0, 0, f"{mutant['name']}: {missing}{mutant['find']!r} {count}"


def mutated(text, begin, end, replacement):
    return text[:begin] + replacement + text[end:]


def moved(mutant, name):
    """A line that says where a mutant's text stands now; empty if it stands where the entry says."""
    return "" if name == mutant["file"] else f"{mutant['name']}: stands in {name} now, not in {mutant['file']}"


def changed_since(commit, mutants):
    """The mutants whose file or entry differs from the commit's."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    files = git("diff", "--name-only", "--no-renames", commit)
    if files.returncode:
        sys.exit(f"mutants: {files.stderr.strip()}")
    files = set(files.stdout.split())
    # The lists may have stood in another folder then.
    lists = [path for path in git("ls-tree", "-r", "--name-only", commit).stdout.split() if re.search(r"\bmutants/\w+\.json$", path)]
    known = [mutant for path in lists for mutant in json.loads(git("show", f"{commit}:{path}").stdout)]
    names = sorted(tracked(ROOT))
    return [m for m in mutants if m["file"] in files or m not in known or locate(m, ROOT, names)[0] in files]


def prepare(work, configure_arguments):
    """Copies the tracked and new files and builds them once."""
    tree = work / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    for name in tracked(ROOT):
        source, target = ROOT / name, tree / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    subprocess.run(["cmake", "--preset", "dev", "-DATTENTIVE_BUILD_APPS=OFF", "-DATTENTIVE_BUILD_BENCH=OFF",
                    "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON",
                    *configure_arguments], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree


def build(tree, target):
    return subprocess.run(["cmake", "--build", "--preset", "dev", "--target", target], cwd=tree, capture_output=True,
                          text=True)


def test(tree, mutant):
    """True if the named test passes."""
    name = mutant["filter"] if mutant["filter"].startswith("[") else mutant["filter"].replace(",", "\\,")
    command = [str(tree / "build/dev/tests" / mutant["target"]), "--abort", name]  # one failure is enough
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, errors="replace",
                              timeout=mutant.get("timeout", 300))
    except subprocess.TimeoutExpired:
        return False, "timeout"
    ran_nothing = "No test cases matched" in done.stdout or "No tests ran" in done.stdout
    if ran_nothing:
        sys.exit(f"mutants: {mutant['name']}: no test matches {mutant['filter']!r}")
    return done.returncode == 0, f"exit {done.returncode}"


def self_test():
    """Reformats, moves, doubles and removes the text of made-up entries; prints what was told wrongly."""
    line = 'auto grad_q = scaled(q,  at::sum(k, {-1})) -  offset ("two  spaces", \'x\');'
    entry = {"name": "made up", "file": "src/a.cpp", "find": line, "replace": "auto grad_q = q;"}
    laid_out = {
        "as it is": line,
        "broken after a bracket": line.replace("scaled(", "scaled(\n      "),
        "broken before an operator": line.replace(" -  ", "\n    - "),
        "broken after =": line.replace("= ", "=\n    "),
        "single spaces": line.replace(",  ", ", ").replace("-  ", "- "),
        "a space before a bracket less": line.replace("offset (", "offset("),
        "spaces in braces": line.replace("{-1}", "{ -1 }"),
        "broken at ::": line.replace("at::sum", "at::\n      sum"),
    }
    other = {
        "another name": line.replace("grad_q", "grad_k"),
        "words run together": line.replace("auto grad_q", "autograd_q"),
        "other spaces in a literal": line.replace("two  spaces", "two spaces"),
        "another number": line.replace("-1", "-2"),
        "another operator": line.replace(" -  ", " -= "),
    }
    before, after = "int first() { return 1; }\n", "\nint last() { return 2; }\n"
    wrong, count = [], 0

    def expect(what, entry, files, name, reason=""):
        """These files hold the entry's text once, in `name`, and it alone is replaced; or the reason names why not."""
        nonlocal count
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            for path, text in files.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_text(text)
            found, begin, end, why = locate(entry, tree, sorted(files))
            if reason or why:
                if not reason or reason not in why:
                    wrong.append(f"{what}: expected {reason or 'no fault'!r}, got {why!r}")
            elif found != name or (name != entry["file"]) != bool(moved(entry, found)):
                wrong.append(f"{what}: found in {found}, expected {name}")
            elif mutated(files[name], begin, end, entry["replace"]) != before + entry["replace"] + after:
                wrong.append(f"{what}: not exactly the text was replaced")

    for what, text in laid_out.items():
        whole = before + text + after
        expect(what, entry, {"src/a.cpp": whole, "src/b.cpp": before}, "src/a.cpp")
        expect(f"{what}, moved", entry, {"src/a.cpp": before, "src/b.h": whole}, "src/b.h")
        expect(f"{what}, renamed", entry, {"src/b.cu": whole}, "src/b.cu")
        expect(f"{what}, twice", entry, {"src/a.cpp": whole + whole}, "", "occurs 2 times in src/a.cpp")
        expect(f"{what}, moved to two files", entry, {"src/a.cpp": before, "src/b.h": whole, "src/c.h": whole}, "",
               "occurs 2 times in the tree")
        expect(f"{what}, in no C++", entry, {"src/a.cpp": before, "docs/a.md": whole}, "", "occurs 0 times in src/a.cpp")
    for what, text in other.items():
        expect(what, entry, {"src/a.cpp": before + text + after}, "", "occurs 0 times in src/a.cpp")
    expect("a file that is gone", entry, {"src/b.cpp": before}, "", "there is no src/a.cpp")
    # In other languages, and around comments and half literals, white space counts.
    script = {**entry, "file": "a.py"}
    expect("Python", script, {"a.py": before + line + after}, "a.py")
    expect("Python, reformatted", script, {"a.py": before + laid_out["single spaces"] + after}, "", "occurs 0 times in a.py")
    half = {**entry, "find": 'throw "no  value', "replace": 'throw "no number'}
    expect("half a literal", half, {"src/a.cpp": before + 'throw "no  value' + after}, "src/a.cpp")
    comment = {**entry, "find": "a(b); // it's c", "replace": "b(a);"}
    expect("a comment", comment, {"src/a.cpp": before + "a(b);  // it's c" + after}, "src/a.cpp")
    expect("a comment, other words", comment, {"src/a.cpp": before + "a(b); // its c" + after}, "", "occurs 0 times")
    ends = {**entry, "find": "return 9;\n}", "replace": "return 3;\n}"}
    expect("line breaks of its own", ends, {"src/a.cpp": before + "return 9; }" + after}, "src/a.cpp")
    print("\n".join([*wrong, f"self-test: {count} cases, {len(wrong)} missed"]))
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--configure", action="append", default=[], help="an argument for cmake, such as -DTorch_DIR=...")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    mutants = [m for m in load() if not arguments.words or any(w in m["name"] for w in arguments.words)]
    if arguments.since:
        mutants = changed_since(arguments.since, mutants)
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant['name']:44} {mutant['file']}")
        return 0
    if not mutants:
        sys.exit("mutants: none match")
    names = sorted(tracked(ROOT))
    if arguments.check or arguments.stale:
        located = [(mutant, *locate(mutant, ROOT, names)) for mutant in mutants]
        problems = [why for *_, why in located if why]
        notes = [note for mutant, name, *_, why in located if not why and (note := moved(mutant, name))]
        print("\n".join([*notes, *problems, f"{len(mutants)} mutants, {len(problems)} unusable"] if arguments.check else
                        [*problems, f"{len(mutants)} mutants, {len(problems)} stale"]))
        return 1 if problems else 0

    tree = prepare(arguments.work.absolute(), arguments.configure)
    for target in sorted({m["target"] for m in mutants}):
        result = build(tree, target)
        if result.returncode:
            sys.exit(f"mutants: the unchanged sources do not build:\n{result.stdout[-2000:]}")
    for target, pattern in sorted({(m["target"], m["filter"]) for m in mutants}):
        passed, why = test(tree, {"name": "unchanged", "target": target, "filter": pattern})
        if not passed:
            sys.exit(f"mutants: {target} {pattern!r} fails without any mutant ({why})")

    survivors, broken = [], []
    for number, mutant in enumerate(mutants, 1):
        name, begin, end, why = locate(mutant, tree, names)
        if why:
            broken.append(why)
            continue
        if note := moved(mutant, name):
            print(note, flush=True)
        path = tree / name
        original = path.read_text()
        started = time.monotonic()
        path.write_text(mutated(original, begin, end, mutant["replace"]))
        try:
            result = build(tree, mutant["target"])
            if result.returncode:
                verdict = "DOES NOT BUILD"
                broken.append(f"{mutant['name']}: does not build:\n{result.stdout[-1200:]}")
            else:
                passed, why = test(tree, mutant)
                verdict = "SURVIVED" if passed else f"killed ({why})"
                if passed:
                    survivors.append(mutant["name"])
        finally:
            path.write_text(original)
            os.utime(path)
        print(f"{number:3}/{len(mutants)} {mutant['name']:44} {verdict:18} {time.monotonic() - started:5.1f} s", flush=True)

    for text in broken:
        print(f"mutants: {text}", file=sys.stderr)
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors) - len(broken)} killed, {len(survivors)} survived, "
          f"{len(broken)} unusable")
    for name in survivors:
        print(f"survivor: {name}")
    return 1 if survivors or broken else 0


if __name__ == "__main__":
    sys.exit(main())
