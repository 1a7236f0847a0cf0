"""Functions that the checks of the source tree (check_*.py) share: the command line, and making a test tree, the
list of a tree's files."""

import subprocess
import sys
import tempfile
from pathlib import Path


def write(root, path, text):
    """Writes a file of a test tree, with its parent folders."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def files_of(root):
    """The files of a tree, relative to it: those that git does not ignore; all where the tree is no git checkout."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True,
                            text=True) if (root / ".git").exists() else None
    if listed and listed.returncode == 0:
        names = {Path(name) for name in listed.stdout.split("\0") if name}
    else:
        names = {path.relative_to(root) for path in root.rglob("*")}
        names = {name for name in names if name.parts[0] not in ("build", ".git")}
    return sorted(name for name in names if (root / name).is_file())


def missed_of(faults_in, right, wrong):
    """Tries a check on a right tree, {path: text}, and on wrong ones, {name: (path, another text, or None for no file)}.
    Returns a line for each tree that it judges wrongly."""
    missed = []
    for name, changed in {"right": {}, **{name: {path: text} for name, (path, text) in wrong.items()}}.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for file, content in {**right, **changed}.items():
                if content is not None:
                    write(root, file, content)
            if bool(faults_in(root)[0]) != (name != "right"):
                missed.append(f"not as it should be: {name}")
    return missed


def report_self_test(what, missed):
    """Prints the faults that a self-test missed; returns its exit status."""
    for line in missed:
        print(line)
    print(f"self-test: {what}, {len(missed)} missed")
    return 1 if missed else 0


def main(name, what, faults_in, self_test):
    """`check [ROOT]` or `check --self-test`. faults_in(root) gives the faults as text and how many files were read."""
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        sys.exit(self_test())
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parents[2]).resolve()
    faults, count = faults_in(root)
    for fault in faults:
        print(fault)
    print(f"{name}: {count} {what}, {len(faults)} faults")
    sys.exit(1 if faults or count == 0 else 0)
