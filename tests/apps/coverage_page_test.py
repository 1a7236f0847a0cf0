"""docs/coverage.md names every row of the expected numbers; it and docs/reliability.md name only files that are there.

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
for list_title, rows in (("Properties", 10), ("Inputs", 25)):
    section = reliability.split(f"## {list_title}\n")[1].split("\n## ")[0]
    if [int(number) for number in re.findall(r"^\| (\d+) \|", section, re.M)] != list(range(1, rows + 1)):
        problems.append(f"docs/reliability.md: {list_title} are not numbered 1 to {rows}")
print("\n".join(problems) or f"docs/coverage.md: {len(named)} rows")
sys.exit(bool(problems))
