#!/usr/bin/env python3
"""Checks the width of comments and pages, and the first words of comments (CONTRIBUTING.md, "English").

    tools/checks/check_prose.py [ROOT]        prints one line per fault; exit status 1 if there is any
    tools/checks/check_prose.py --self-test   breaks each rule in a made-up tree and wants it reported

Comments are those of the C++ and CUDA files in src, include, apps, bench, tests and exercises. Lines with a URL and rows
of tables may be longer. In Python and CMake files and in the scripts of tools, only the first words of comments and
docstrings are checked. Pages are all Markdown files; there code, rows of tables, definitions of links, lines that a
program writes (between the marks of bench/tables.py or of the options table), and lines that cannot be broken may be longer.
"""

import functools
import re
import tempfile
from pathlib import Path

import tree_check

WIDTH = 110
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
TOPS = ("src", "include", "apps", "bench", "tests", "exercises")
FIRST_WORDS = re.compile(r"(What|Of|Whose|The same|Those)\b")
# A comment, or a literal in which // or /* begins no comment. The prefix of a number keeps its digit separators together.
TOKEN = re.compile(r'''(?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
                     | (?<![A-Za-z0-9_])(?:u8|u|U|L)?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
                     | "(?:[^"\\\n]|\\.)*" | (?<![0-9A-Za-z_])[0-9][0-9A-Za-z_.']* | '(?:[^'\\\n]|\\.)*' ''', re.S | re.X)


def comments_of(text):
    """(number of the first line, column, whether code precedes it, text) of every comment of a C++ file."""
    for match in TOKEN.finditer(text):
        if match["comment"]:
            start = text.rfind("\n", 0, match.start()) + 1
            before = text[start:match.start()]
            yield text.count("\n", 0, match.start()) + 1, len(before), bool(before.strip()), match["comment"]


def faults_of_source(text):
    """(line, fault) for the comments of a C++ file."""
    lines, last_line, last_column = text.split("\n"), -1, -1
    for line, column, after_code, comment in comments_of(text):
        continues = line == last_line + 1 and column == last_column and not after_code
        last_line, last_column = line + comment.count("\n"), column
        words = re.sub(r"^(?:///?<?|/\*+)\s*", "", comment)
        if not continues and (match := FIRST_WORDS.match(words)):
            yield line, f'a comment begins with "{match[1]}"; make it a sentence with a subject'
        for number in range(line, last_line + 1):
            told = lines[number - 1]
            is_row = re.match(r"\s*(?:///?|\*)?\s*\|", told)
            if len(told) > WIDTH and "://" not in told and not is_row:
                yield number, f"a comment ends at column {len(told)}; at most {WIDTH}"


def faults_of_script(text):
    """(line, fault) for the comments and docstrings of a Python, CMake or shell file."""
    continues = False
    for number, line in enumerate(text.split("\n"), 1):
        begun = re.match(r'\s*(#+|[rf]?"""(?=\S))\s*', line)
        if begun and not continues and (match := FIRST_WORDS.match(line[begun.end():])):
            yield number, f'a comment begins with "{match[1]}"; make it a sentence with a subject'
        continues = bool(begun) and begun[1].startswith("#")


def is_script(path):
    """Whether a file is a Python, CMake or shell file; those without a suffix are in tools and .ci."""
    return path.suffix in (".py", ".cmake", ".sh") or path.name == "CMakeLists.txt" or (
        path.parts[0] in ("tools", ".ci") and not path.suffix)


def can_be_broken(line):
    """Whether a page's line has a space, outside of code spans and the targets of links, at which it can be made shorter."""
    kept = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda match: "x" * len(match[0]), line.strip())
    return " " in kept[2:]


def faults_of_page(text):
    """(line, fault) for the prose of a page."""
    fence, code, written, blank = "", False, False, True
    for number, line in enumerate(text.split("\n"), 1):
        opened = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            if opened and line.strip() == fence:
                fence = ""
            blank = False
            continue
        if opened:
            fence = opened[1]
            continue
        if re.match("<!-- (figures|table)\\b(?! end)", line):
            written = True
        elif re.match("<!-- (end|table end) -->", line):
            written = False
        code = line.startswith("    ") and (code or blank) or code and not line.strip()
        blank = not line.strip()
        is_row = line.lstrip().startswith("|")
        is_definition = re.match(r"\s*\[[^\]]+\]:\s", line)
        if len(line) > WIDTH and not (written or code or is_row or is_definition) and can_be_broken(line):
            yield number, f"a line of prose has {len(line)} columns; at most {WIDTH}"


def faults_in(root):
    """All faults under `root`, as text, and the number of files."""
    faults, count = [], 0
    for path in tree_check.files_of(root):
        if path.parts[0] in TOPS and path.name.endswith(SUFFIXES):
            check = faults_of_source
        elif path.suffix == ".md":
            check = faults_of_page
        elif is_script(path):
            check = faults_of_script
        else:
            continue
        count += 1
        text = (root / path).read_text(encoding="utf-8")
        faults += [f"{path}:{number}: {fault}" for number, fault in check(text)]
    return faults, count


def self_test():
    """Adds one fault at a time to a correct tree."""
    long = "long " * 22  # with what precedes it, more than the width
    source = ("/// A row is hidden.\n/// What begins a line here begins no comment.\n"
              + f"// See https://example.org/{'x' * 100}\n"
              + f"// | {long} |\n"
              + "const char* text = \"// What begins a string\";\n"
              + f"const char* raw = R\"(\n// What begins a line of a raw string, {long}\n)\";\n"
              + "int many = 1'000'000;  // Counts\n"
              + "                       // The same column continues it.\n"
              + f"const char* wide = \"{long}\";\n")
    page = (f"# Title\n\n```cpp\n{long}{long}\n```\n\n    {long}{long}\n\n| {long}{long} |\n\n"
            f"[name]: https://example.org/{'x' * 100} \"title\"\n\n[{'x' * 60}](https://example.org/{'x' * 100})\n\n"
            f"<!-- figures: machine -->\n\n{long}{long}\n\n<!-- end -->\n\nText.\n\n"
            f"<!-- table: made -->\n(1) {long}\n<!-- table end -->\n\nText.\n")
    comments = [f"\n{mark} {words} of a row is hidden.\n" for mark in ("//", "///") for words in (
        "What", "Of", "Whose", "The same", "Those")]
    comments += ["\n/* What is hidden. */\n", "\n/** Of\n * two lines. */\n", "\nint a = 1;  // Of a row\n",
                 "\nint a = 1;\n// Those of a row\n", "\nint a = 1'0;  // What is one\n", "\nchar c = '\"';  // What is one\n",
                 f"\n// {long}\n", f"\n/* Two\n * {long} */\n", f"\nint a = 1;  // {long[:100]}\n", f"\n/// A row.\n/// {long}\n"]
    lines = [f"\n{long}{long}\n", f"\n- A point.\n  {long}\n", f"\n> {long}\n", f"\n```\n```\n{long}x\n",
             f"\nSee [it](https://example.org/{'x' * 100}) and more.\n", f"\n## {long}\n", f"\nText\n    {long}\n"]
    broken = {path: comments for path in ("src/core/a.cpp", "include/attentive/core/a.h", "apps/a/main.cpp", "bench/a.cpp", "tests/a_test.cpp",
                                          "exercises/a.cpp",
                                          "src/kernels/native_cuda/a.cu", "src/kernels/native_cuda/a.cuh")}
    script = "# A row is hidden.\n# What begins a line here begins no comment.\nset(a 1)  # What follows code\n"
    broken |= {path: [f"\n# {words} of a row is hidden.\n" for words in ("What", "Of", "Whose", "The same", "Those")] + [
        '\n"""What is hidden."""\n'] for path in ("CMakeLists.txt", "src/CMakeLists.txt", "cmake/a.cmake", "tools/a.py", "tools/a",
                                                 "tools/a.sh", ".ci/run", "tests/a_test.py")}
    broken |= {path: lines for path in ("README.md", "docs/page.md", "docs/decisions/0001-why.md", "bench/README.md")}
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        write = functools.partial(tree_check.write, root)

        def right(path):
            return page if path.endswith(".md") else source if path.endswith(SUFFIXES) else script

        write("tools/a.cpp", comments[0])
        write("bench/results/a.json", lines[0])
        for path in broken:
            write(path, right(path))
        missed += [f"reported, but right: {fault}" for fault in faults_in(root)[0]]
        for path, added in broken.items():
            for text in added:
                write(path, right(path) + text)
                if len(faults_in(root)[0]) != 1:
                    missed.append(f"not reported once: {path}: {text.strip()[:60]!r}")
            write(path, right(path))
    return tree_check.report_self_test(f"{sum(map(len, broken.values()))} faults", missed)


if __name__ == "__main__":
    tree_check.main("prose", "files", faults_in, self_test)
