"""docs/coverage.md names every row of the expected numbers; it and docs/reliability.md name only files that are there, and
docs/features.md and the table of docs/guide/accelerate.md only tests that are there.

Argument: the source folder.
"""

import json
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "docs/coverage.md").read_text()
data = json.loads((root / "apps/notebooks/expected.json").read_text())

named = {row for line in page.splitlines() if line.startswith("| ") for row in line.split("|")[1].replace(" ", "").split(",")}
problems = [
    f"row {entry['id']} is missing"
    for document, entries in data.items()
    if document != "about"
    for entry in entries
    if entry["id"] not in named
]
reliability = (root / "docs/reliability.md").read_text()
for path in re.findall(r"`([\w./-]+/[\w./-]+)`", page + reliability):
    if not (root / path).exists():
        problems.append(f"{path} is not there")
for line in reliability.split("\n## Drawn cases\n")[0].splitlines():
    if line.startswith("| ") and "`tests/" not in line and not line.endswith("| test |"):
        problems.append(f"docs/reliability.md: no test shows {line}")
cases = set()
for path in (root / "tests").rglob("*.cpp"):
    cases |= set(re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', path.read_text()))
for line in (root / "docs/features.md").read_text().splitlines():
    cells = line.split("|")
    if len(cells) != 5 or cells[1].strip() in ("feature", "---"):
        continue
    tests = re.findall(r"`([^`]+)`", cells[3])
    problems += [f"docs/features.md: there is no test {name!r}" for name in tests if name not in cases]
    if not tests and not cells[2].strip().startswith("no"):
        problems.append(f"docs/features.md: {cells[1].strip()!r} names no test")
# The table of what each line of a program reaches: its last column names a row's tests.
guide = "docs/guide/accelerate.md"
sdpa_operators = (root / guide).read_text().split("## What is reached\n")[1].split("\n## ")[0]
rows = [line.split("|") for line in sdpa_operators.splitlines() if line.startswith("|")][2:]
if not rows:
    problems.append(f"{guide}: no row says what is reached")
for cells in rows:
    tests = re.findall(r"`([^`]+)`", cells[4])
    problems += [f"{guide}: there is no test {name!r}" for name in tests if name not in cases]
    if not tests:
        problems.append(f"{guide}: {cells[1].strip()!r} names no test")
print("\n".join(problems) or f"docs/coverage.md: {len(named)} rows")
sys.exit(bool(problems))
