"""The notebooks as pages.

    python3 notebook_pages_test.py <folder of the apps> <own_cell> <their source folder> <whether pages have pictures: ON or OFF>
"""

import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import xml.etree.ElementTree

FOLDER, OWN_CELL, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
DOCUMENTS = ("000", "001", "002", "003", "004")
DATA = json.loads((SOURCE / "expected.json").read_text())
EMPTY = {"meta", "img"}  # elements without an end tag
PICTURES = sys.argv[4] == "ON"


def run(app, *arguments):
    done = subprocess.run([str(app), "--device", "cpu", *map(str, arguments)], capture_output=True, text=True,
                          cwd=tempfile.gettempdir())
    return done.returncode, done.stdout, done.stderr


class Element:
    def __init__(self, name, attributes=()):
        self.name, self.attributes, self.parts = name, dict(attributes), []

    def text(self):
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def all(self, name, **wanted):
        """The elements with that name below this one, in order; cls="x" selects a class."""
        for part in self.parts:
            if isinstance(part, str):
                continue
            classes = part.attributes.get("class", "").split()
            if part.name == name and all(value in classes if key == "cls" else part.attributes.get(key) == value
                                         for key, value in wanted.items()):
                yield part
            yield from part.all(name, **wanted)

    def one(self, name, **wanted):
        [element] = self.all(name, **wanted)
        return element


class Page(html.parser.HTMLParser):
    """Parses a page; elements that are not properly nested are an error."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.root = Element("document")
        self.open = [self.root]
        self.feed(self.source)
        self.close()
        if len(self.open) != 1:
            raise ValueError(f"{path.name}: <{self.open[-1].name}> does not end")

    def handle_starttag(self, tag, attrs):
        if len(dict(attrs)) != len(attrs):
            raise ValueError(f"an attribute twice: <{tag} {attrs}>")
        element = Element(tag, attrs)
        self.open[-1].parts.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_endtag(self, tag):
        if self.open.pop().name != tag:
            raise ValueError(f"</{tag}> at {self.getpos()} ends another element")

    def handle_data(self, data):
        self.open[-1].parts.append(data)

    def cells(self):
        return {section.attributes["id"]: section for section in self.root.all("section", cls="cell")}


def rows_of(table):
    return [[cell.text() for cell in row.all("td")] for row in table.one("tbody").all("tr")]


def checks_of(cell):
    """The texts that a cell shows for each check: name -> (C++, expected), each as one flat list."""
    checks = {}
    for table in cell.all("table", cls="lines"):
        for row in table.one("tbody").all("tr"):
            values = [column.text() for column in row.all("td")]
            numbers = [re.findall(r"[^(), ]+", value) for value in values[:2]]
            checks[row.one("th").text()] = (*numbers, values[2], values[3])
    for figure in cell.all("figure", cls="check"):
        tables = [[text for row in rows_of(table) for text in row] for table in figure.all("table")]
        names = [table.one("caption").text() for table in figure.all("table")]
        if len(tables) == 2:
            caption = figure.one("figcaption")
            checks[caption.one("code").text()] = (*tables, names[1], next(caption.all("span", cls="verdict")).text())
    return checks


class NotebookPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.out = pathlib.Path(folder.name) / "made" / "on the way"
        cls.status, cls.printed, cls.error = run(FOLDER / "attentive-notebooks", "--full", "--html", cls.out)
        cls.pages = {document: Page(cls.out / f"notebook-{document}.html") for document in DOCUMENTS}
        cls.index = Page(cls.out / "index.html")
        cls.cells = {row: cell for page in cls.pages.values() for row, cell in page.cells().items()}

    def entries(self):
        return {entry["id"]: entry for name, entries in DATA.items() if name != "about" for entry in entries}

    def test_a_page_for_each_document_and_nothing_else(self):
        self.assertEqual((self.status, self.error), (0, ""))
        self.assertIn(f" Written as pages: {self.out}/index.html\n", self.printed)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                         ["index.html", *(f"notebook-{document}.html" for document in DOCUMENTS)])
        self.assertEqual([link.attributes["href"] for link in self.index.root.all("a")],
                         [f"notebook-{document}.html" for document in DOCUMENTS])

    def test_the_terminal_shows_the_same_as_without_pages(self):
        app = FOLDER / "attentive-notebook-002"
        with tempfile.TemporaryDirectory() as folder:
            for options in ((), ("--full", "--source"), ("--cell", "6")):
                with self.subTest(options=options):
                    status, printed, _ = run(app, *options, "--html", folder)
                    self.assertEqual((status, printed.replace(f" Written as pages: {folder}/index.html\n", "")),
                                     run(app, *options)[:2])

    def test_every_cell_has_its_place_in_order(self):
        self.assertEqual(set(self.cells), set(self.entries()))
        for document, page in self.pages.items():
            ids = list(page.cells())
            listed = re.findall(r"^(C-\d+|\d{3}-\w+) ", run(FOLDER / f"attentive-notebook-{document}", "--list")[1], re.M)
            self.assertEqual(ids, listed)
            self.assertEqual([link.attributes["href"] for link in page.root.one("nav").all("a")],
                             [f"#{row}" for row in ids] + ["#summary"])

    def test_every_cell_has_a_concept_and_the_note_of_the_data(self):
        for row, cell in self.cells.items():
            self.assertGreater(len(cell.one("p", cls="concept").text()), 25, row)
            notes = [note.text() for note in cell.all("p", cls="note")]
            self.assertEqual(notes, [note for note in [self.entries()[row].get("note")] if note], row)

    def test_the_code_is_that_of_the_cell(self):
        for document, page in self.pages.items():
            _, listed, _ = run(FOLDER / f"attentive-notebook-{document}", "--list", "--source")
            sources = dict(re.findall(r"^([0-9C]\S*) +.*\n((?:(?:    .*)?\n)+)", listed, re.M))
            for row, cell in page.cells().items():
                lines = [line[4:] for line in sources[row].rstrip("\n").split("\n")]
                while lines[0].startswith("//") and lines[0][3:] in cell.one("p", cls="concept").text():
                    lines.pop(0)  # the comment above the cell is its concept
                self.assertEqual(cell.one("pre").text().rstrip("\n"), "\n".join(lines), row)
        colours = {span.attributes["class"] for span in self.cells["001-03"].one("pre").all("span")}
        self.assertEqual(colours, {"k", "n", "s"})

    def test_every_number_is_the_terminal_s_and_the_expected_one(self):
        shown = 0
        for entry in self.entries().values():
            checks = checks_of(self.cells[entry["id"]])
            for check in entry["checks"]:
                with self.subTest(row=entry["id"], check=check["name"]):
                    computed, expected, source, verdict = checks[check["name"]]
                    self.assertEqual(source, check["source"])
                    self.check_expected(check, expected)
                    self.assertEqual(len(computed), len(expected))
                    self.check_printed(entry["id"], check["name"], computed, expected, verdict)
                    shown += len(computed)
        self.assertGreater(shown, 1500)

    def check_expected(self, check, texts):
        """Checks that the texts are the expected numbers, on one of the two dropout streams."""
        values = check["values"]
        lists = list(values.values()) if isinstance(values, dict) else [values]
        self.assertIn(len(texts), {len(numbers) for numbers in lists})
        close = [all(text == str(value) or abs(float(text) - float(value)) <= 1e-4 * max(1, abs(float(value)))
                     for text, value in zip(texts, numbers)) for numbers in lists]
        self.assertTrue(any(close), texts)

    def check_printed(self, row, name, computed, expected, verdict):
        """Checks that the output of --full for a check begins with the texts on the page."""
        at_row = self.printed[self.printed.index(f"\n{row}  ") + 1 :]
        at_row = at_row[: at_row.index("\n\n")]
        begin = re.search(rf"\n  {re.escape(name)}(?: +C\+\+ | \([\d,]*\): )", at_row)
        at_check = at_row[begin.start() + 1 :]
        line, *table = at_check.splitlines()
        self.assertTrue(line.endswith(verdict.split(" ", 1)[1]), (line, verdict))
        if " C++ " in line:
            for texts in (computed, expected):
                self.assertIn(" " + (f"({', '.join(texts)})" if f"({texts[0]}" in line else texts[0]) + " ", line)
            return
        left, right = [], []
        for text in table[1:]:
            if " | " not in text:
                break
            for side, numbers in zip(text.split(" | "), (left, right)):
                numbers.append([number for number in side.split() if number != "…"])
        width = self.row_length(row, name)
        for numbers, texts in ((left, computed), (right, expected)):
            for place, printed in enumerate(numbers):
                self.assertEqual(printed, texts[place * width : place * width + len(printed)])

    def row_length(self, row, name):
        [check] = [check for check in self.entries()[row]["checks"] if check["name"] == name]
        return check["shape"][-1] if check["shape"] else 1

    def test_the_page_says_what_agrees(self):
        for row, cell in self.cells.items():
            verdict = next(cell.all("span", cls="verdict")).text().split()[-1]
            self.assertIn(verdict, ("ok", "text", "shown"), row)
        for page in self.pages.values():
            self.assertEqual(page.root.one("p", cls="conclusion").text(), "Every number agrees.")
        rows = self.index.root.one("section", id="summary").one("tbody").all("tr")
        self.assertEqual([row.one("th").text() for row in rows], list(DOCUMENTS))

    def test_pages_need_no_network_and_name_their_source(self):
        for document, page in {**self.pages, "": self.index}.items():
            for attribute in ("src", "href"):
                for element in self.everything(page.root):
                    target = element.attributes.get(attribute, "#")
                    self.assertRegex(target, r"^(#|data:image/svg\+xml,|index\.html$|notebook-\d{3}\.html$)")
            self.assertEqual(list(page.root.all("script")) + list(page.root.all("link")), [])
            self.assertNotRegex(re.sub(r'"data:[^"]*"', "", page.source), r"https?:|url\(|@import")
            if document:
                self.assertIn(f"Document {document}: ", page.root.one("p", cls="origin").text())
                self.assertGreater(len(page.root.one("p", cls="introduction").text()), 100)

    def everything(self, element):
        for part in element.parts:
            if not isinstance(part, str):
                yield part
                yield from self.everything(part)

    def test_pages_can_be_read_without_eyes(self):
        for page in [*self.pages.values(), self.index]:
            everything = list(self.everything(page.root))
            ids = [element.attributes["id"] for element in everything if "id" in element.attributes]
            self.assertEqual(len(ids), len(set(ids)))
            self.assertEqual({link.attributes["href"][1:] for link in page.root.all("a")
                              if link.attributes["href"].startswith("#")} - set(ids), set())
            headings = [int(element.name[1]) for element in everything if re.fullmatch(r"h\d", element.name)]
            self.assertEqual(headings[0], 1)
            self.assertEqual(headings.count(1), 1)
            self.assertTrue(all(after - before <= 1 for before, after in zip(headings, headings[1:])))
            for head in page.root.all("th"):
                self.assertIn(head.attributes["scope"], ("row", "col"))
            for element in everything:
                if "scroll" in element.attributes.get("class", "") or element.name == "pre":
                    self.assertEqual(element.attributes["tabindex"], "0")
                    self.assertTrue(element.attributes["aria-label"])

    def test_pictures(self):
        pictures = {row: [image.attributes for image in cell.all("img")] for row, cell in self.cells.items()}
        if not PICTURES:
            self.assertEqual([row for row, images in pictures.items() if images], [])
            self.assertIn("Without pictures", self.index.root.one("footer").text())
            self.skipTest("this build has no attentive::viz: pages have no pictures, and say so")
        for row, count in (("001-11", 1), ("001-29", 1), ("001-32", 1), ("001-33", 1), ("001-36", 1), ("001-40", 2),
                           ("000-3d", 4), ("003-1", 2), ("003-4", 6), ("002-14", 1), ("004-5", 1), ("C-12", 2)):
            self.assertEqual(len(pictures[row]), count, row)
        for images in pictures.values():
            for image in images:
                prefix, svg = image["src"].split(",", 1)
                self.assertEqual(prefix, "data:image/svg+xml")
                drawn = xml.etree.ElementTree.fromstring(urllib.parse.unquote(svg))
                self.assertTrue(drawn.tag.endswith("svg"))
                self.assertIn(": a map of ", image["alt"])
        self.assertEqual(pictures["001-33"][0]["alt"], "attn_weights: a map of 6 by 6 numbers, the largest 1 in row "
                         "Your, column Your; 15 are hidden")
        self.assertNotIn("Without pictures", self.index.root.one("footer").text())

    def test_one_cell(self):
        with tempfile.TemporaryDirectory() as folder:
            status, _, _ = run(FOLDER / "attentive-notebooks", "--cell", "001-25", "--html", folder)
            self.assertEqual(status, 0)
            self.assertEqual(sorted(os.listdir(folder)), ["index.html", "notebook-001.html"])
            self.assertEqual(list(Page(pathlib.Path(folder) / "notebook-001.html").cells()), ["001-25"])

    def test_what_differs_is_marked_on_the_page(self):
        data = json.loads(json.dumps(DATA))
        [check] = [check for entry in data["001"] if entry["id"] == "001-25" for check in entry["checks"]]
        check["values"][3] = 0.8212
        with tempfile.TemporaryDirectory() as folder:
            expected = pathlib.Path(folder) / "expected.json"
            expected.write_text(json.dumps(data))
            status, _, _ = run(FOLDER / "attentive-notebook-001", "--expected", expected, "--html", folder)
            self.assertEqual(status, 1)
            page = Page(pathlib.Path(folder) / "notebook-001.html")
            cell = page.cells()["001-25"]
            self.assertEqual([mark.text() for mark in cell.all("mark")], ["0.8210", "0.8212"])
            self.assertIn("DIFFERS at [1,1] by ", checks_of(cell)["sa_v1(inputs)"][3])
            self.assertEqual(next(cell.all("span", cls="differs")).text(), "✗ DIFFERS")
            self.assertEqual(page.root.one("p", cls="conclusion").text(), "Some numbers do not agree.")

    def test_cells_of_one_s_own(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            status, printed, error = run(OWN_CELL, "--html", folder)
            self.assertEqual((status, error), (1, ""))  # of the documents that stop
            cells = Page(folder / "notebook-mine.html").cells()
            self.assertIn('A brace in a text, {{{, or a comment counts for nothing: {', cells["001-43"].text())
            self.assertIn('nb.say("A brace in a text, {}, or', cells["001-43"].one("pre").text())
            self.assertIn('"{{{"', Page(folder / "notebook-mine.html").source.replace("&quot;", '"'))
            self.assertEqual(cells["001-45"].one("h2").text(), '001-45 Words {and} "quotes"')
            self.assertIn("… 968 more columns", cells["001-44"].text())
            stopped = Page(folder / "notebook-check.html")
            self.assertEqual(list(stopped.cells()), ["wrong-1"])
            self.assertIn("✗ STOPPED", stopped.cells()["wrong-1"].text())
            self.assertIn("stopped at wrong-1: the expected numbers have no entry",
                          stopped.root.one("section", id="summary").text())

    def test_a_page_replaces_an_earlier_one(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "notebook-002.html"
            page.write_text("an earlier page")
            self.assertEqual(run(FOLDER / "attentive-notebook-002", "--html", folder)[0], 0)
            self.assertEqual(len(Page(page).cells()), 16)
            self.assertEqual(sorted(os.listdir(folder)), ["index.html", "notebook-002.html"])

    def test_what_cannot_be_written_is_bad_usage(self):
        app = FOLDER / "attentive-notebook-002"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            file.write_text("")
            for out, reason in ((file, f"cannot create the folder {file}: File exists"),
                                (file / "out", f"cannot create the folder {file}: File exists"),
                                ("/proc/attentive", "cannot create the folder /proc/attentive: ")):
                status, printed, error = run(app, "--html", out)
                self.assertEqual((status, printed), (2, ""), error)
                self.assertIn(f"attentive-notebook-002: {reason}", error)
            blocked = pathlib.Path(folder) / "notebook-002.html"
            blocked.mkdir()
            status, _, error = run(app, "--html", folder)
            self.assertEqual(status, 2)
            self.assertIn(f"cannot write {blocked}: Is a directory", error)
            self.assertEqual(sorted(os.listdir(folder)), ["file", "notebook-002.html"])
        status, _, error = run(app, "--list", "--html", "out")
        self.assertEqual(status, 2)
        self.assertIn("--list", error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
