"""If output cannot be written, every program says so in one line and exits with status 1. A closed reader is not an
error.

    python3 output_test.py <source folder> <program> ...
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
PROGRAMS = {path.name: path for path in (pathlib.Path(argument).resolve() for argument in sys.argv[2:])}
FULL = "cannot write to standard output: No space left on device"
CLOSED = "cannot write to standard output: Bad file descriptor"
CASE = str(ROOT / "tests/parity/notebooks.safetensors#MultiHeadAttention-notebook")


def safetensors(path, tensors):
    """Writes uint8 tensors, given as name: (shape, bytes)."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def close_standard_output():
    os.close(1)


def ignore_broken_pipes():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        text = cls.folder / "text"
        text.write_text("to be or not to be, that is the question " * 10)
        if "attentive-train" in PROGRAMS:
            tiny = "--steps 2 --layers 1 --heads 1 --width 8 --block 16 --batch 1 --device cpu --threads 1".split()
            subprocess.run([PROGRAMS["attentive-train"], "--text", text, "--out", cls.folder / "run", *tiny], check=True,
                           stderr=subprocess.DEVNULL)
        digits = cls.folder / "digits.safetensors"
        safetensors(digits, {"images": ([100, 8, 8], bytes(6400)), "labels": ([100], bytes(100))})
        # Commands that print something, with their standard input.
        cls.work = {
            "attentive-convert": [[str(cls.folder / "run"), str(cls.folder / "converted"), "--force"]],
            "attentive-generate": [["--model", str(cls.folder / "run"), "--prompt", "to", "--tokens", "4"]],
            "attentive-learn-bias": [["--device", "cpu"]],
            "attentive-learn-copy": [["--device", "cpu"]],
            "attentive-parity": [[CASE], ["--json", CASE], ["--quiet", CASE, CASE]],
            "attentive-view": [["--case", CASE, "--svg", str(cls.folder / "head.svg")]],
            "attentive-vit-digits": [["--data", str(digits), "--epochs", "1", "--layers", "1", "--device", "cpu"]],
            "attentive-notebooks": [["--list"], ["--device", "cpu"]],
            "attentive-notebook-000": [["--list"], ["--device", "cpu"]],
            "attentive-bench": [["--suite", "tiny", "--budget", "0.001", "--threads", "1"]],
            "gpt_step_bench": [[str(text), "small", "1", "1"]],
            "attention_loop": [["--tokens", "16", "--seconds", "0.01"]],
        }

    def commands(self):
        """The commands whose output is tested; --version is printed by the same code as --help."""
        for name in PROGRAMS:
            yield name, ["--help"]
            for arguments in self.work.get(name, []):
                yield name, arguments

    def run_program(self, name, arguments, **options):
        return subprocess.run([PROGRAMS[name], *arguments], input="1\n", text=True, stderr=subprocess.PIPE, **options)

    def test_a_killed_process_of_the_same_number_leaves_nothing_to_stumble_over(self):
        # LLVM's OpenMP runtime maps a file of this name, and an empty one cannot be read.
        leave_and_run = ': > "/dev/shm/__KMP_REGISTERED_LIB_$$_$(id -u)" && exec "$@"'
        for name in PROGRAMS.keys() & self.work.keys():
            arguments = self.work[name][-1]  # computes something, because no program needs the runtime before
            with self.subTest(program=name, arguments=arguments):
                done = subprocess.run(["sh", "-c", leave_and_run, "sh", PROGRAMS[name], *arguments], input="1\n", text=True,
                                      capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_full_disk_is_reported(self):
        with open("/dev/full", "w") as full:
            for name, arguments in self.commands():
                with self.subTest(name=name, arguments=arguments):
                    done = self.run_program(name, arguments, stdout=full)
                    self.assertEqual((done.returncode, done.stderr), (1, f"{name}: {FULL}\n"))

    def test_help_ends_with_0_where_it_can_be_written(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = self.run_program(name, ["--help"], stdout=subprocess.PIPE)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("--version", done.stdout)

    def test_a_closed_standard_output_is_reported(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = self.run_program(name, ["--help"], preexec_fn=close_standard_output)
                self.assertEqual((done.returncode, done.stderr), (1, f"{name}: {CLOSED}\n"))

    def test_a_reader_that_goes_away_is_no_error(self):
        for name, arguments in self.commands():
            long = name == "attentive-bench" or name.startswith("attentive-notebook-")
            if long and arguments != ["--help"]:
                continue  # one more pipe of the same kind
            # main() sees to an ignored signal, whatever the arguments are.
            for ignored in (False, True) if arguments == ["--help"] else (False,):
                with self.subTest(name=name, arguments=arguments, ignored=ignored):
                    reading, writing = os.pipe()
                    os.close(reading)
                    done = self.run_program(name, arguments, stdout=writing, restore_signals=not ignored,
                                            preexec_fn=ignore_broken_pipes if ignored else None)
                    os.close(writing)
                    # Ended by the signal, or with the status that a shell reports for it.
                    self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGPIPE if ignored else -signal.SIGPIPE, ""))

    def test_a_verdict_is_kept(self):
        """The status stays 1 for a difference and 2 for unusable input, even if nothing can be written."""
        if "attentive-parity" not in PROGRAMS:
            self.skipTest("attentive-parity is not built")
        with open("/dev/full", "w") as full:
            done = self.run_program("attentive-parity", ["--json", str(self.folder / "none")], stdout=full)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"attentive-parity: {FULL}\n")

    def test_errors_that_cannot_be_written_change_no_status(self):
        with open("/dev/full", "w") as full:
            for name in PROGRAMS:
                with self.subTest(name=name):
                    done = subprocess.run([PROGRAMS[name], "--nonsense"], stdout=subprocess.PIPE, stderr=full)
                    self.assertEqual((done.returncode, done.stdout), (2, b""))

    def test_a_version_names_the_program_and_torch(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = self.run_program(name, ["--version"], stdout=subprocess.PIPE)
                self.assertRegex(done.stdout, rf"^{name} \d+\.\d+\.\d+, LibTorch \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
