"""docs/coverage.md names every row of the expected numbers, and only files that are there. Argument: the source folder."""

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
for path in re.findall(r"`([\w./-]+/[\w./-]+)`", page):
    if not (root / path).exists():
        problems.append(f"{path} is not there")
print("\n".join(problems) or f"docs/coverage.md: {len(named)} rows")
sys.exit(bool(problems))
