#!/usr/bin/env python3
"""Changes one line of the sources at a time and demands that the named test fails.

    python3 tools/mutants/run.py              all mutants; prints the survivors; exit 1 if there is one
    python3 tools/mutants/run.py scale causal only those whose name contains a word
    python3 tools/mutants/run.py --since main  only those whose file or entry differs from a commit's
    python3 tools/mutants/run.py --list
    python3 tools/mutants/run.py --check      builds nothing; exit 1 if an entry fits the sources no more

The list is tools/mutants/*.json: objects with `name`, `file`, `find` (must occur exactly once), `replace`, `target` (a test
executable of the build), `filter` (the name of a Catch2 test, or tags) and, for one that makes the test hang, `timeout` in
seconds. The sources are copied to a folder of their own and built there, so the working tree is never touched. Shared
libraries: a mutant costs one compilation and one link.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def problem(mutant, tree):
    """The reason why a mutant cannot be applied to these sources; empty if it can."""
    path = tree / mutant["file"]
    if not path.is_file():
        return f"{mutant['name']}: there is no {mutant['file']}"
    count = path.read_text().count(mutant["find"])
    return "" if count == 1 else f"{mutant['name']}: {mutant['find']!r} occurs {count} times in {mutant['file']}"


def changed_since(commit, mutants):
    """The mutants whose file or entry differs from the commit's."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    files = git("diff", "--name-only", commit)
    if files.returncode:
        sys.exit(f"mutants: {files.stderr.strip()}")
    files = set(files.stdout.split())
    known = []
    for path in HERE.glob("*.json"):
        before = git("show", f"{commit}:{path.relative_to(ROOT)}")
        known += json.loads(before.stdout) if before.returncode == 0 else []
    return [m for m in mutants if m["file"] in files or m not in known]


def prepare(work, configure_arguments):
    """Copies the tracked and new files and builds them once."""
    tree = work / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, tree / name
        if not source.is_file():
            continue
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--configure", action="append", default=[], help="an argument for cmake, such as -DTorch_DIR=...")
    arguments = parser.parse_args()
    mutants = [m for m in load() if not arguments.words or any(w in m["name"] for w in arguments.words)]
    if arguments.since:
        mutants = changed_since(arguments.since, mutants)
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant['name']:44} {mutant['file']}")
        return 0
    if not mutants:
        sys.exit("mutants: none match")
    if arguments.check:
        problems = [why for mutant in mutants if (why := problem(mutant, ROOT))]
        print("\n".join([*problems, f"{len(mutants)} mutants, {len(problems)} unusable"]))
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
        path = tree / mutant["file"]
        if why := problem(mutant, tree):
            broken.append(why)
            continue
        original = path.read_text()
        started = time.monotonic()
        path.write_text(original.replace(mutant["find"], mutant["replace"]))
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
