"""Every relative link of the pages leads to a file that is there, and to a heading in it; a page's diff adds lines that stand
in the file that it names; docs/reference.md names every public header, and tools/README.md every file of tools and of its
folders, each below the heading of its folder.

Argument: the source folder.
"""

import pathlib
import re
import sys
import urllib.parse


def without_code(text):
    """The page without fenced blocks and code spans, which contain no links."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def anchors_of(text):
    """The anchors that GitHub gives the headings, and those that the page sets itself."""
    seen, anchors = {}, set()
    fenceless = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", fenceless, re.M):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors | set(re.findall(r"""<a (?:id|name)="([^"]+)">""", text))


def links_of(text):
    text = without_code(text)
    found = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    found += re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, re.M)
    return found + re.findall(r"""(?:src|href)="([^"]+)\"""", text)


def broken_links(root, page):
    text = page.read_text()
    for link in links_of(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / urllib.parse.unquote(path)).resolve() if path else page.resolve()
        if not target.is_relative_to(root) or not target.exists():
            yield f"{page.relative_to(root)}: {link} is not there"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text()):
            yield f"{page.relative_to(root)}: {link} names no heading of {target.relative_to(root)}"


def missing_in_index(root):
    """Pages that the index, docs/README.md, does not link to, either directly or by their folder."""
    docs = root / "docs"
    targets = {(docs / link.partition("#")[0]).resolve() for link in links_of((docs / "README.md").read_text())}
    for page in sorted(docs.rglob("*.md")):
        exempt = page in (docs / "README.md", docs / "api.md")  # api.md is the first page of Doxygen's output
        if not exempt and page not in targets and (page.parent == docs or page.parent not in targets):
            yield f"docs/README.md does not lead to {page.relative_to(root)}"


def unnamed_in(text, folder):
    """The files of a folder, but for its page and folders, whose names stand nowhere in the text as code."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name != "README.md" and not re.search(rf"`(?:[\w.]+/)*{re.escape(file.name)}(?: [^`]*)?`", text):
            yield file.name


def sections_of(text):
    """The text below each heading of the second level, by the folder that the heading names as code, else ""."""
    parts = re.split(r"^## (.*)$", "## \n" + text, flags=re.M)[1:]
    return {"".join(re.findall(r"`tools/(\w+)`", heading)): below for heading, below in zip(parts[::2], parts[1::2])}


def unnamed_tools(tools):
    sections = sections_of((tools / "README.md").read_text())
    folders = {"", *(path.name for path in tools.iterdir() if path.is_dir() and path.name != "__pycache__")}
    for folder in sorted(folders):
        for name in unnamed_in(sections.get(folder, ""), tools / folder):
            yield f"tools/README.md does not name {name} below the heading of tools/{folder}"


def lines_not_there(root, page):
    """Added lines of a page's diffs that do not stand in the file that a line "+++ PATH" names above them."""
    for diff in re.findall(r"^```diff\n(.*?)^```", page.read_text(), re.M | re.S):
        lines = None
        for line in diff.splitlines():
            if line.startswith("+++ "):
                path = line[4:]
                lines = [there.strip() for there in (root / path).read_text().splitlines()] if (root / path).is_file() else []
            elif lines is not None and line[1:].strip() not in lines:
                yield f"{page.relative_to(root)}: {path} has no line {line[1:].strip()}"


def selftest():
    page = "# A `b` (c), d\n## A\n## A\n```\n# no heading [x](y)\n```\n[l](m.md#a-1 \"t\") ![p](p.svg) `[n](o)`\n"
    assert anchors_of(page) == {"a-b-c-d", "a", "a-1"}, anchors_of(page)
    assert links_of(page) == ["m.md#a-1", "p.svg"], links_of(page)
    assert sections_of("a\n## B: `tools/b`\nc\n") == {"": "\na\n", "b": "\nc\n"}, sections_of("a\n## B: `tools/b`\nc\n")


def main():
    selftest()
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("apps/*/README.md"),
             *root.glob("exercises/**/README.md"), root / "bench/README.md", root / "tests/parity/README.md",
             root / "tests/viz/page/README.md", root / "tools/README.md"]
    problems = [problem for page in sorted(pages) for problem in broken_links(root, page)]
    problems += [problem for page in sorted(pages) for problem in lines_not_there(root, page)]
    index = (root / "docs/reference.md").read_text()
    for header in sorted((root / "include/attentive").rglob("*.h")):
        name = str(header.relative_to(root / "include/attentive"))
        if f"`{name}`" not in index:
            problems.append(f"docs/reference.md does not name {name}")
    for name in re.findall(r"`([a-z_0-9]+/[a-z_0-9]+\.h)`", index):
        if not (root / "include/attentive" / name).exists():
            problems.append(f"docs/reference.md names {name}, which is not there")
    problems += missing_in_index(root)
    problems += unnamed_tools(root / "tools")
    print("\n".join(problems) or f"{len(pages)} pages, no broken link")
    sys.exit(bool(problems))


main()
