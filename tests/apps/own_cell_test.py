"""Tests a notebook with cells that are not in expected.json: python3 own_cell_test.py <own_cell> <own_cell.cpp>"""

import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

PROGRAM, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])


def run(*arguments):
    command = [str(PROGRAM), "--device", "cpu", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    return done.returncode, done.stdout, done.stderr


class OwnCell(unittest.TestCase):
    def test_it_is_shown_and_marked(self):
        code, out, error = run("--cell", "001-43")
        self.assertEqual((code, error), (0, ""))
        self.assertIn("\n001-43  Scratch\n", out)
        # The inner products of 001-09, of which the document prints this row: 0.9544 1.4950 1.4754 0.8434 0.7070 1.0865.
        self.assertIn("  scores (6,6): shown\n    0.9995  0.9544  0.9422  0.4753  0.4576  0.6310\n"
                      "    0.9544  1.4950  1.4754  0.8434  0.7070  1.0865\n", out)
        self.assertIn("  a number                     C++ 2.5000\n", out)
        self.assertIn("  a mask (2,2): shown\n    1  0\n    1  1\n", out)
        self.assertIn("\n mine        1        0      0      3  -\n"
                      "   001-43 has no expected numbers: shown, not compared\n", out)
        self.assertIn("\n No number was compared.\n", out)

    def test_a_cell_with_expected_numbers_may_show_others(self):
        code, out, _ = run("--cell", "001-02")
        self.assertEqual(code, 0)
        self.assertIn("  inputs (6,3): difference ", out)
        self.assertIn("  their sum                    C++ 9.2600\n", out)
        self.assertIn("\n mine        1        1      0      1  ", out)
        self.assertNotIn("has no expected numbers", out)
        self.assertIn("\n Every number agrees.\n", out)

    def test_any_tensor_can_be_shown(self):
        code, out, error = run("--cell", "44")
        self.assertEqual((code, error), (0, ""))
        self.assertIn("  nothing (3,0): no numbers\n", out)
        self.assertIn("  no row                       C++ ()\n", out)
        self.assertIn("  small                        C++ (1.2500e-07, 0.0000e+00)\n", out)
        self.assertIn("  large                        C++ (1.0000e+30)\n", out)
        self.assertIn("  infinite                     C++ (-inf)\n", out)
        self.assertIn("  long (1000): shown\n      0    1    2 ", out)
        self.assertIn("    22  23\n    … 8 more rows\n", out)
        self.assertIn("  in half precision, of four axes (1,1,1,1): shown\n    1\n", out)

    def test_its_source(self):
        _, out, _ = run("--cell", "001-43", "--source")
        lines = SOURCE.read_text().splitlines(keepends=True)
        call = next(i for i, line in enumerate(lines) if 'nb.cell("001-43"' in line)
        end = next(i for i in range(call, len(lines)) if lines[i] == "  });\n")
        comment, code = (textwrap.dedent("".join(part)) for part in (lines[call - 2 : call], lines[call + 1 : end]))
        self.assertTrue(comment.startswith("// A cell of one's own. It may use"))
        source = textwrap.indent(comment + code, "    ")
        self.assertIn(f"\n001-43  Scratch\n{source}  A brace in a text", out)

    def test_the_source_of_a_cell_in_one_line(self):
        _, out, _ = run("--list", "--source")
        self.assertIn('\n001-45   Words {and} "quotes"\n    nb.say("Nothing but words.");\n', out)

    def test_it_is_listed(self):
        code, out, _ = run("--list")
        self.assertEqual(code, 0)
        self.assertIn("\n001-43   Scratch\n", out)
        self.assertNotIn("C++", out)

    def test_a_line_for_each(self):
        code, out, _ = run()
        self.assertEqual(code, 1)  # of the documents that stop
        self.assertRegex(out, r"\n001-02  Six tokens of three features  +18   \d\.\de-08  ok\n")
        self.assertRegex(out, r"\n001-43  Scratch +shown\n")
        self.assertRegex(out, r"\n001-44  Sizes of every kind, under a title that is …  +shown\n")
        self.assertRegex(out, r'\n001-45  Words {and} "quotes"  +text\n')
        self.assertRegex(out, r"\nwrong-1 A check  +STOPPED\n")
        self.assertNotIn("wrong-1a", out)
        for line in out[: out.index(" document rows ")].splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_what_cannot_be_shown_or_compared_stops_with_the_reason(self):
        for cell, reason in (
            ("wrong-1", "the expected numbers have no entry wrong-1; show() prints a value without one"),
            ("wrong-2", "undefined: expected a tensor, got an undefined one"),
            ("wrong-3", "complex: expected real numbers, got ComplexFloat"),
        ):
            with self.subTest(cell=cell):
                code, out, _ = run("--cell", cell)
                self.assertEqual(code, 1)
                self.assertIn(f"   stopped at {cell}: {reason}\n", out)
                self.assertIn("\n Some numbers do not agree.\n", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
