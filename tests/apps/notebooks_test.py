"""Tests the notebook apps as a user runs them: python3 notebooks_test.py <folder of the apps> <their source folder>"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

FOLDER, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DATA = SOURCE / "expected.json"

# One number per document, and one per way of comparing: document, row, check, position, wrong number.
WRONG = [
    ("000", "000-4c", "y[0,0,:4]", 1, -0.102541),  # recorded to more digits
    ("001", "001-25", "sa_v1(inputs)", 3, 0.8212),  # printed table: its last digit
    ("001", "001-35", "dropout(example)", 7, 1),  # dropout, on either stream
    ("001", "001-32", "masked", 1, 0.0),  # -inf counts as a number
    ("002", "002-6", "attn_scores_softmax", 3, 6.0347e-06),  # significant digits
    ("002", "002-9", "outputs", 2, 1.6),
    ("003", "003-4", "output with a mask", 0, -0.0971),
    ("004", "004-2", "weights", 1, 0.5),
    ("004", "004-4", "shape of the output", 2, 17),  # a shape
]


def run(app, *arguments):
    command = [str(FOLDER / app), "--device", "cpu", *arguments]
    # Runs from another folder, because the apps contain their expected numbers.
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    return done.returncode, done.stdout, done.stderr


def find(entries, key, value):
    return next(entry for entry in entries if entry[key] == value)


class Notebooks(unittest.TestCase):
    def setUp(self):
        self.data = json.loads(DATA.read_text())
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.copy = pathlib.Path(folder.name) / "expected.json"

    def run_with(self, app, text, *arguments):
        self.copy.write_text(text)
        return run(app, "--expected", str(self.copy), *arguments)

    def entries(self):
        return [entry for document, entries in self.data.items() if document != "about" for entry in entries]

    def test_unchanged_copy_agrees(self):
        code, out, _ = self.run_with("attentive-notebook-003", json.dumps(self.data))
        self.assertEqual(code, 0, out)
        self.assertIn("Every number agrees.", out)

    def test_one_wrong_digit(self):
        for document, row, name, place, wrong in WRONG:
            with self.subTest(row=row, check=name):
                data = json.loads(DATA.read_text())
                values = find(find(data[document], "id", row)["checks"], "name", name)["values"]
                for numbers in values.values() if isinstance(values, dict) else [values]:
                    self.assertNotEqual(numbers[place], wrong)
                    numbers[place] = wrong
                code, out, _ = self.run_with(f"attentive-notebook-{document}", json.dumps(data))
                self.assertEqual(code, 1, out)
                self.assertEqual(out.count("DIFFERS at "), 1, out)
                at_row = re.search(rf"\n{row} .*  DIFFERS\n  (.*\n?.*)DIFFERS at ", out)
                self.assertTrue(at_row and at_row[1].startswith(name), out)
                self.assertIn("Some numbers do not agree.", out)

    def test_one_wrong_digit_among_all_numbers(self):
        find(find(self.data["001"], "id", "001-25")["checks"], "name", "sa_v1(inputs)")["values"][3] = 0.8212
        code, out, _ = self.run_with("attentive-notebook-001", json.dumps(self.data), "--full")
        self.assertEqual((code, out.count("DIFFERS at ")), (1, 1), out)
        at_row = out[out.index("\n001-25  ") :]
        self.assertIn("DIFFERS at [1,1] by ", at_row[: at_row.index("\n\n")])

    def test_all_notebooks_see_it_too(self):
        find(self.data["002"], "id", "002-2")["checks"][0]["values"][0] = 7
        code, out, _ = self.run_with("attentive-notebooks", json.dumps(self.data), "--cell", "002-2")
        self.assertEqual((code, out.count("DIFFERS at [0,0]")), (1, 1), out)

    def test_every_row_of_the_data_is_shown(self):
        code, out, _ = run("attentive-notebooks", "--full")
        self.assertEqual(code, 0, out)
        for entry in self.entries():
            self.assertRegex(out, rf"\n{entry['id']}  \S.*\n")
            for check in entry["checks"]:
                self.assertIn(f"\n  {check['name']} ", out)

    def test_without_an_option_every_row_is_one_line_of_80_columns(self):
        code, out, _ = run("attentive-notebooks")
        self.assertEqual(code, 0, out)
        rows = re.findall(r"^(C-\d+|\d{3}-\w+) +(\S.{43}) +(\d*) +(\S*)  (ok|text|shown)$", out, re.M)
        verdicts = {row: (numbers, difference, verdict) for row, _, numbers, difference, verdict in rows}
        self.assertEqual(len(rows), len(verdicts))
        for entry in self.entries():
            numbers = sum(math.prod(check["shape"]) for check in entry["checks"] if check.get("compare", True))
            shown = verdicts.pop(entry["id"])
            self.assertEqual(shown[0], str(numbers) if numbers else "", entry["id"])
            self.assertEqual(shown[2], "ok" if numbers else "shown" if entry["checks"] else "text", entry["id"])
        self.assertEqual(verdicts, {})
        self.assertRegex(out, r"\n001-25  Class SelfAttention_v1  +12   3\.\de-05  ok\n")
        for line in out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        self.assertIn("\n --full shows every number, ", out)
        self.assertNotIn("--full", run("attentive-notebooks", "--full")[1])
        self.assertNotIn("printed", out)

    def test_a_row_without_code_is_missed(self):
        self.data["004"].append({"id": "004-99", "cell": None, "checks": []})
        code, out, _ = self.run_with("attentive-notebooks", json.dumps(self.data))
        self.assertEqual(code, 1)
        self.assertIn("004-99 was not shown", out)

    def test_a_check_without_code_is_missed(self):
        check = {"name": "new", "shape": [], "values": [1], "tolerance": 0, "source": "derived"}
        find(self.data["002"], "id", "002-2")["checks"].append(check)
        code, out, _ = self.run_with("attentive-notebook-002", json.dumps(self.data))
        self.assertEqual(code, 1)
        self.assertIn('"new" was not computed', out)

    def test_one_cell(self):
        code, out, _ = run("attentive-notebook-001", "--cell", "25")
        self.assertEqual(code, 0)
        self.assertIn("\n001-25  Class SelfAttention_v1\n", out)
        self.assertNotIn("\n001-24 ", out)
        self.assertNotIn("\n001-26 ", out)

    def test_a_row_brings_its_parts(self):
        code, out, _ = run("attentive-notebook-000", "--cell", "4")
        self.assertEqual(code, 0)
        for row in ("000-4 ", "000-4a ", "000-4e "):
            self.assertIn(f"\n{row}", out)
        self.assertNotIn("\n000-3", out)

    def test_stale_cells_are_shown_only(self):
        for row in ("01", "21"):
            code, out, _ = run("attentive-notebook-001", "--cell", row)
            self.assertEqual(code, 0)
            self.assertIn("shown, not compared", out)
            self.assertIn("No number was compared.", out)

    def test_list_runs_nothing(self):
        code, out, _ = run("attentive-notebook-002", "--list")
        self.assertEqual(code, 0)
        self.assertIn("002-6    Softmax\n", out)
        self.assertNotIn("C++", out)

    def test_source_of_every_row(self):
        """The code of each row is that of its cell in the notebook's source, with the comment above it."""
        rows = set()
        call = r'^((?:  //[^\n]*\n)*)  nb\.cell\("{}",\s+"(?:[^"\\]|\\.)*",\s+\[&\] {{( [^\n]* |\n.*?\n  )}}\);$'
        for document in ("000", "001", "002", "003", "004"):
            text = (SOURCE / f"notebook_{document}.cpp").read_text()
            code, out, _ = run(f"attentive-notebook-{document}", "--list", "--source")
            self.assertEqual(code, 0)
            printed = dict(re.findall(r"^([0-9C]\S*) +.*\n((?:(?:    .*)?\n)+)", out, re.M))
            rows |= set(printed)
            for row, source in printed.items():
                with self.subTest(row=row):
                    [(comment, code)] = re.findall(call.format(row), text, re.M | re.S)
                    self.assertEqual(textwrap.dedent(source).strip("\n"),
                                     textwrap.dedent(comment) + textwrap.dedent(code).strip())
        self.assertEqual(rows, {entry["id"] for entry in self.entries()})

    def test_source_stands_between_title_and_numbers(self):
        code, out, _ = run("attentive-notebook-001", "--cell", "13", "--source")
        self.assertEqual(code, 0)
        source = '    nb.check("all_context_vecs", torch::matmul(attn_weights, inputs));\n'
        begin = out.index("\n001-13  ")
        self.assertLess(begin, out.index(source))
        self.assertLess(out.index(source), out.index("  all_context_vecs (6,3): "))
        self.assertNotIn(source, run("attentive-notebook-001", "--cell", "13")[1])

    def test_bad_usage(self):
        for arguments in (
            ["--cell", "77"],
            ["--cell", "000-1"],
            ["--device", "tpu"],
            ["--expected", "/nowhere/expected.json"],
            ["--nonsense"],
            ["25"],
        ):
            with self.subTest(arguments=arguments):
                code, _, error = run("attentive-notebook-001", *arguments)
                self.assertEqual(code, 2)
                self.assertTrue(error.strip())

    def test_bad_data(self):
        find(self.data["002"], "id", "002-2")["checks"][0]["values"].pop()
        for text, reason in ((json.dumps(self.data), "002-2"), ("{", "parse"), ("[1]", "expected.json")):
            with self.subTest(reason=reason):
                code, _, error = self.run_with("attentive-notebook-002", text)
                self.assertEqual(code, 2)
                self.assertIn(reason, error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
