"""Doxygen's view of a header: prints it with the indented lines of its comments as code blocks.

The comments set shapes, lists and examples off by two more blanks. Markdown wants four and an empty line before.

    doxygen_filter.py HEADER
"""

import re
import sys


def filtered(lines):
    was_code = was_empty = True
    for line in lines:
        comment = re.match(r"^(\s*///)( *)(.*)$", line)
        if not comment or line.lstrip().startswith("///<"):
            was_code = was_empty = True
            yield line
            continue
        start, blanks, text = comment.groups()
        code = bool(text) and len(blanks) >= 3
        if code and not was_code and not was_empty:
            yield start
        # After a code block, a new paragraph begins.
        if text and not code and was_code and not was_empty:
            yield start
        yield f"{start}    {blanks}{text}" if code else line
        was_code, was_empty = code, not text


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    print("\n".join(filtered(text.splitlines())) if sys.argv[1].endswith(".h") else text)
