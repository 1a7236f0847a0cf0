"""Every number that a program takes has limits, and a wrong one is refused at once. flags_test.cpp tests the limits themselves.

    python3 flags_test.py <program> ...
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = {path.name: path for path in (pathlib.Path(argument).resolve() for argument in sys.argv[1:])}
# The description of a check in apps/common/flags.h.
LIMITS = r"(?:from )?[\d.e+-]+ to (?:below )?[\d.e+]+|above [\d.e+-]+, at most [\d.e+]+"


def run(name, *arguments):
    return subprocess.run([PROGRAMS[name], *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


class Flags(unittest.TestCase):
    def refused(self, name, words, *arguments):
        done = run(name, *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        self.assertTrue(done.stderr.startswith(words), f"{arguments}: {done.stderr}")

    def test_every_flag_that_takes_a_number_has_limits(self):
        """Reads all flags that --help lists, so that a flag added later is tested, too."""
        found = 0
        for name in PROGRAMS:
            for flag, kind in re.findall(r"^ *(?:-\w,)?(--[\w-]+) ((?:INT|UINT|FLOAT)\b.*)", run(name, "--help").stdout, re.M):
                found += 1
                with self.subTest(program=name, flag=flag):
                    self.assertRegex(kind, rf"^\w+:(?:{LIMITS})")
        self.assertGreaterEqual(found, 45 if "attentive-view" in PROGRAMS else 40)

    def test_the_limits_are_named(self):
        threads = "--threads: expected a whole number from 0 to 1024, got 1000000\n"
        seed = "--seed: expected a whole number from 0 to 18446744073709551615, got "
        for name, words, *arguments in (
            ("attentive-train", threads, "--threads", 1000000),
            ("attentive-generate", threads, "--threads", 1000000),
            ("attentive-vit-digits", threads, "--threads", 1000000),
            ("attentive-train", "--width: expected a whole number from 1 to 65536, got 100000000\n", "--width", 100000000),
            ("attentive-vit-digits", "--width: expected a whole number from 1 to 65536, got 100000000\n", "--width", 100000000),
            ("attentive-train", seed + "18446744073709551616\n", "--seed", 1 << 64),
            ("attentive-learn-copy", seed + "-1\n", "--seed=-1"),
            ("attentive-train", "--beta1: expected a number from 0 to below 1, got 1\n", "--beta1", 1),
            ("attentive-generate", "--top-p: expected a number above 0, at most 1, got 0\n", "--top-p", 0),
            ("attentive-view", "--megabytes: expected a number above 0, at most 1000000, got nan\n", "--megabytes", "nan"),
            ("attentive-train", "--tied: expected true or false, got 2\n", "--tied", 2),
            ("attentive-train", "--bias: expected true or false, got 01\n", "--bias", "01"),
            ("attentive-train", "--preset: x not in {", "--preset", "x"),
            ("attentive-convert", "--dtype: int8 not in {", "--dtype", "int8", "a", "b"),
        ):
            if name in PROGRAMS:
                with self.subTest(program=name, arguments=arguments):
                    self.refused(name, words, *arguments)

    def test_a_configuration_file_has_the_same_limits(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "settings.toml"
            for line, words in (("seed = -1", "--seed: expected a whole number from 0 to 18446744073709551615, got -1"),
                                ("tied = 2", "--tied: expected true or false, got 2"),
                                ("lr = nan", "--lr: expected a number from 0 to 1000, got nan")):
                with self.subTest(line=line):
                    file.write_text(line + "\n")
                    self.refused("attentive-train", words, "--config", file)

    def test_the_largest_seed_and_the_words_for_yes_are_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "text").write_text("to be or not to be " * 20)
            for out, *flags in (("a", "--tied=on", "--bias=yes"), ("b", "--tied=true", "--bias=1"), ("c", "--tied=off", "--bias=no")):
                done = run("attentive-train", "--text", folder / "text", "--out", folder / out, f"--seed={(1 << 64) - 1}", "--steps=1", "--layers=1",
                           "--heads=1", "--width=8", "--block=16", "--batch=1", "--device=cpu", "--threads=1", *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
            weights = [next((folder / out).glob("step-*/model.safetensors")).read_bytes() for out in "abc"]
            self.assertEqual(weights[0], weights[1])
            self.assertNotEqual(weights[0], weights[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
