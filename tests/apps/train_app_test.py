"""Tests attentive-train and attentive-generate as a user runs them at a terminal.

    python3 train_app_test.py <attentive-train> <attentive-generate>
"""

import fcntl
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

TRAIN, GENERATE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
TINY = {"layers": 1, "heads": 1, "width": 8, "block": 16, "batch": 1, "device": "cpu", "threads": 1, "evaluate-every": 0}
TINY_FLAGS = [f"--{name}={value}" for name, value in TINY.items()]
CTRL_C = b"\x03"


class Terminal:
    """Runs a program on its own terminal, with keyboard and screen."""

    def __init__(self, command, columns):
        self.text, self.ended = "", False
        self.process, self.end = pty.fork()
        if self.process == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvp(command[0], list(map(str, command)))

    def resize(self, columns):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        """Reads more of the screen; returns False at the end."""
        try:
            data = os.read(self.end, 65536)
        except OSError:  # Linux reports this when the program has ended
            return False
        self.text += data.decode()
        return bool(data)

    def wait_for(self, text):
        while text not in self.text:
            if not self.read():
                raise AssertionError(f"{text!r} is not in {self.text!r}")

    def press(self, key):
        os.write(self.end, key)

    def wait(self):
        """Reads to the end; returns the exit status, or the negative signal number."""
        while self.read():
            pass
        return self.close()

    def close(self):
        """Closes the window; returns the exit status."""
        os.close(self.end)
        self.ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def kill(self):
        if not self.ended:
            os.kill(self.process, signal.SIGKILL)
            self.close()

    def draws(self):
        """All states of the progress line."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\^C", "", self.text)
        return [line for line in re.split(r"[\r\n]+", plain) if re.match(r" *\d+%", line)]


class TrainApp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("to be or not to be, that is the question\n" * 20)
        self.run_folder = self.folder / "run"

    def command(self, *flags, out="run", text="text", **settings):
        settings = {**TINY, **{name.replace("_", "-"): value for name, value in settings.items()}}
        values = [f"--{name}={value}" for name, value in settings.items()]
        return [TRAIN, "--text", self.folder / text, "--out", self.folder / out, *values, *flags]

    def terminal(self, command, columns=80):
        terminal = Terminal(command, columns)
        self.addCleanup(terminal.kill)
        return terminal

    def start(self, command, **options):
        """Starts a run without a terminal that prints its steps."""
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        for line in process.stderr:
            if "loss" in line:
                return process
        raise AssertionError("the run ended without a step")

    def train(self, *flags, **settings):
        return subprocess.run(self.command(*flags, **settings), capture_output=True, text=True)

    def latest(self):
        return (self.run_folder / "latest").read_text().strip()

    # The progress line

    def test_the_progress_line_is_narrower_than_the_terminal(self):
        for columns in (200, 80, 40, 12, 2, 1):
            with self.subTest(columns=columns):
                terminal = self.terminal(self.command(steps=30, out=f"run{columns}"), columns)
                self.assertEqual(terminal.wait(), 0, terminal.text)
                self.assertGreaterEqual(terminal.text.count("\x1b[K"), 1)
                for draw in terminal.draws():
                    self.assertLessEqual(len(draw), columns - 3)
                self.assertEqual(columns >= 12, any(draw.startswith("100%") for draw in terminal.draws()))

    def test_a_terminal_without_a_width_has_80_columns(self):
        terminal = self.terminal(self.command(steps=30), columns=0)
        self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.draws())
        for draw in terminal.draws():
            self.assertTrue(50 < len(draw) <= 77, draw)

    def test_the_progress_line_follows_a_window_that_shrinks(self):
        terminal = self.terminal(self.command(steps=1000000))
        terminal.wait_for("tok/s")
        terminal.resize(30)
        before = len(terminal.text)
        terminal.text += "\n"  # later lines are drawn for 30 columns, except possibly the next one
        while terminal.text[before:].count("\x1b[K") < 5:
            terminal.read()
        terminal.press(CTRL_C)
        self.assertEqual(terminal.wait(), 0)
        terminal.text = terminal.text[before:]
        for draw in terminal.draws()[2:]:
            self.assertLessEqual(len(draw), 27)

    # Ctrl-C

    def test_ctrl_c_is_answered_at_once_and_saves(self):
        terminal = self.terminal(self.command(steps=1000000))
        terminal.wait_for("tok/s")
        terminal.press(CTRL_C)
        self.assertEqual(terminal.wait(), 0, terminal.text)
        answer = f"stopping after this step, then saving to {self.run_folder}; Ctrl-C again ends at once, without saving"
        self.assertIn("\x1b[K" + answer + "\r\n", terminal.text)
        self.assertEqual(terminal.text.count("stopping"), 1)
        saved = f"saved {self.run_folder}/{self.latest()}"
        self.assertLess(terminal.text.index(answer), terminal.text.index(saved))
        self.assertRegex(terminal.text, r"stopped after step \d+; go on with: ")

    def test_a_second_ctrl_c_kills(self):
        # Each step takes seconds, so that the second one comes before the first is over; if not, minutes.
        big = {"layers": 4, "heads": 4, "width": 256, "block": 256, "batch": 32, "steps": 10}
        self.text.write_text("to be or not to be, that is the question\n" * 200)
        for attempt in range(5):
            terminal = self.terminal(self.command(**big, accumulate=4**attempt, out=f"run{attempt}"))
            terminal.wait_for("threads")
            terminal.press(CTRL_C)
            terminal.wait_for("stopping after this step")
            terminal.press(CTRL_C)
            status = terminal.wait()
            if status == 0:  # pressed after the end
                continue
            self.assertEqual(status, -signal.SIGINT, terminal.text)
            self.assertNotIn("saved", terminal.text)
            return
        self.fail("the second Ctrl-C came too late five times")

    def test_without_a_terminal_the_answer_is_a_plain_line(self):
        process = self.start(self.command(steps=1000000))
        process.send_signal(signal.SIGTERM)
        text = process.stderr.read()
        self.assertEqual(process.wait(), 0)
        self.assertRegex(text, r"(^|\n)stopping after this step, then saving to .*\n")
        self.assertNotIn("\x1b", text)

    def test_a_lost_reader_or_terminal_saves(self):
        for number, ending in enumerate(("pipe", "hangup", "both Ctrl-C and pipe")):
            with self.subTest(ending=ending):
                self.run_folder = self.folder / f"run{number}"
                process = self.start(self.command(steps=1000000, out=f"run{number}"))
                if "hangup" in ending:
                    process.send_signal(signal.SIGHUP)
                    process.send_signal(signal.SIGHUP)  # the shell and the kernel each send one
                    process.stderr.read()
                process.stderr.close()  # `| tee log` ends at the same Ctrl-C
                if "Ctrl-C" in ending:
                    process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(), 0)
                self.assertTrue((self.run_folder / self.latest() / "manifest.json").exists())

    def test_a_window_that_is_closed_saves(self):
        terminal = self.terminal(self.command(steps=1000000))
        terminal.wait_for("tok/s")
        self.assertEqual(terminal.close(), 0)
        self.assertTrue((self.run_folder / self.latest() / "manifest.json").exists())

    def test_signals_that_were_ignored_stay_so(self):
        """Signals ignored by nohup or by a shell for background jobs stay ignored."""
        for ignored in (signal.SIGHUP, signal.SIGINT):
            with self.subTest(signal=ignored.name):
                out = f"run{ignored.name}"
                process = self.start(self.command(steps=400, out=out),
                                     preexec_fn=lambda: signal.signal(ignored, signal.SIG_IGN))
                process.send_signal(ignored)
                text = process.stderr.read()
                self.assertEqual(process.wait(), 0)
                self.assertIn("\ndone: ", text)

    def test_a_run_in_use_is_refused_with_its_process(self):
        terminal = self.terminal(self.command(steps=1000000, save_every=1))
        terminal.wait_for("saved")
        other = self.train("--resume")
        self.assertEqual(other.returncode, 1)
        self.assertEqual(other.stderr, f"attentive-train: CheckpointFolder: {self.run_folder}: process {terminal.process} "
                                       "writes its checkpoints here, and may still be saving one\n")
        terminal.press(CTRL_C)
        self.assertEqual(terminal.wait(), 0)

    def test_a_closed_standard_error_writes_into_no_file(self):
        done = subprocess.run(self.command(steps=20, save_every=5), preexec_fn=lambda: os.close(2))
        self.assertEqual(done.returncode, 0)
        for path in self.run_folder.rglob("*"):
            if path.is_file():
                self.assertNotIn(b"ETA", path.read_bytes(), path)
        self.assertEqual((self.run_folder / ".lock").read_bytes(), b"")

    # The output of a run, and the files that it does not change

    def files(self):
        """The files of the run, with their bytes and times of change; without the lock, which every process takes."""
        return {str(path.relative_to(self.run_folder)): (path.read_bytes(), path.stat().st_mtime_ns)
                for path in self.run_folder.rglob("*") if path.is_file() and path.name != ".lock"}

    def test_resuming_a_finished_run_changes_no_file(self):
        self.assertEqual(self.train(steps=20, save_every=10, sample_every=10, log_every=5).returncode, 0)
        before = self.files()
        for more in ([], ["--log-format=jsonl"], ["--sample-every=1"], ["--save-every=1", "--keep=1"]):
            with self.subTest(more=more):
                done = subprocess.run(self.command("--resume", *more), capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stderr.count("note: nothing is left to do of 20 updates\n"), 1)
                self.assertEqual(self.files(), before)

    def test_a_damaged_log_loses_only_its_damaged_lines(self):
        for kind, edit in (("csv", lambda line: line.replace(",", ";", 1)), ("jsonl", lambda line: line.replace(":", "", 1))):
            with self.subTest(kind=kind):
                self.run_folder = self.folder / kind
                flags = dict(out=kind, steps=60, save_every=30, log_every=5, decay_steps=100, log_format=kind)
                self.assertEqual(self.train(**flags).returncode, 0)
                log = self.run_folder / f"log.{kind}"
                whole = log.read_text().splitlines(keepends=True)
                second, last = whole[2], whole[-1]
                damaged = [*whole[:2], edit(second), *whole[3:-1], "\n", last[:-9]]
                log.write_text("".join(damaged))
                done = self.train("--resume", **{**flags, "steps": 90})
                self.assertEqual(done.returncode, 0, done.stderr)
                note = f"note: {log}: dropped line "
                self.assertIn(f"{note}3, which is no row of a log: {edit(second)[:40]}", done.stderr)
                self.assertIn(f"{note}{len(damaged)}, which has no end: {last[:40]}", done.stderr)
                self.assertEqual(done.stderr.count("dropped line"), 2)
                after = log.read_text().splitlines(keepends=True)
                kept = [*whole[:2], *whole[3:-1]]
                self.assertEqual(after[: len(kept)], kept)
                self.assertEqual(len(after), len(kept) + 6)

    def test_float16_scales_the_loss_and_a_run_without_says_so_once(self):
        def scales(out):
            return [line.split(",")[-1] for line in (self.folder / out / "log.csv").read_text().splitlines()[1:]]

        for name, scale, flags in (
            ("dynamic", "65536", {"autocast": "float16"}),
            ("off", "", {"autocast": "float16", "loss_scale": "off"}),
            ("fixed", "0.5", {"autocast": "float16", "loss_scale": 0.5}),
            ("bfloat16", "", {"autocast": "bfloat16"}),
            ("float32", "", {}),
            ("scaled", "65536", {"loss_scale": "dynamic"}),
        ):
            with self.subTest(name):
                flags = {**flags, "log_every": 1, "decay_steps": 9, "out": name}
                done = self.train(steps=3, **flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(scales(name), [scale] * 3)
                self.assertEqual(done.stderr.count("note: float16 without loss scaling: "), int(name == "off"))
                # A resumed run takes the scaling from the checkpoint.
                done = self.train("--resume", steps=5, log_every=1, out=name)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(scales(name), [scale] * 5)
        done = self.train("--resume", steps=7, loss_scale="off", out="dynamic")
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected loss_scaling_mode = \"dynamic\" as in the checkpoint, got \"off\"", done.stderr)
        for bad in ("x", "0", "-1", "inf", "nan", "1e30"):
            done = self.train(loss_scale=bad)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"--loss-scale: expected dynamic, off or a number above 0, at most 16777216, got {bad}\n", done.stderr)

    def test_settings_that_contradict_each_other_or_fit_no_machine_are_refused_by_their_flags(self):
        for words, flags in (
            ("--lr: expected at least --min-lr, 0.0001, got 1e-300\n", {"lr": 1e-300}),
            ("--lr: expected at least --min-lr, 0.5, got 0.001\n", {"min_lr": 0.5}),
            ("--heads: expected a divisor of --width, 8, got 3\n", {"heads": 3}),
            ("--kv-heads: expected 0 or a divisor of --heads, 4, got 3\n", {"heads": 4, "kv_heads": 3}),
            ("--layers and --width: expected weights of at most ", {"width": 65536, "layers": 1024}),
            ("--batch, --block and --width: expected a batch of at most ", {"width": 512, "block": 1 << 20, "batch": 1 << 20, "positions": "rotary"}),
        ):
            with self.subTest(flags=flags):
                done = self.train(**flags)
                self.assertEqual(done.returncode, 1)
                self.assertTrue(done.stderr.startswith("attentive-train: " + words), done.stderr)
                self.assertFalse((self.run_folder / "latest").exists())
        self.assertEqual(self.train(steps=2, lr=0.01).returncode, 0)
        done = self.train("--resume", steps=2, lr=1e-5)
        self.assertIn("--lr: expected at least --min-lr, 0.0001, got 1e-05\n", done.stderr)

    # Tokens in a file

    def result(self, out):
        """The weights of a run and its log, without times."""
        folder = self.folder / out
        step = folder / (folder / "latest").read_text().strip()
        rows = [line.split(",") for line in (folder / "log.csv").read_text().splitlines()]
        time = rows[0].index("tokens_per_second")
        return [(step / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")], [row[:time] + row[time + 1:] for row in rows]

    def test_tokens_in_a_file_train_as_those_in_memory(self):
        tokens = self.folder / "the tokens"
        flags = dict(steps=6, decay_steps=12, dropout=0.2, log_every=1, evaluate_every=3)
        for kind in ("char", "bpe"):
            with self.subTest(tokenizer=kind):
                memory, mapped = f"{kind}-memory", f"{kind}-mapped"
                self.assertEqual(self.train(out=memory, tokenizer=kind, **flags).returncode, 0)
                done = self.train("--tokens", tokens, out=mapped, tokenizer=kind, **flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"tokenizing {self.text} into {tokens}\n", done.stderr)
                self.assertEqual(self.result(mapped), self.result(memory))
                self.assertFalse((self.folder / mapped / "tokens.bin").exists())
                # A run that goes on may change the place of its tokens, and reads a file that fits.
                written = tokens.stat().st_mtime_ns
                self.assertEqual(self.train("--resume", out=memory, steps=12, tokens=tokens).returncode, 0)
                done = self.train("--resume", out=mapped, steps=12)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.result(mapped), self.result(memory))
                self.assertEqual(len(self.result(mapped)[1]), 13)
                done = self.train(out=f"{kind}-again", tokenizer=kind, tokens=tokens, **flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("tokenizing", done.stderr)
                self.assertEqual(tokens.stat().st_mtime_ns, written)
                tokens.unlink()

    def test_a_file_of_other_tokens_is_refused_and_kept(self):
        tokens = self.folder / "tokens"
        self.assertEqual(self.train(steps=2, tokens=tokens).returncode, 0)
        good, text = tokens.read_bytes(), self.text.read_bytes()
        expected = f"attentive-train: --tokens {tokens}: expected the tokens of {self.text}, but "
        mapped = f"attentive-train: token_file_mismatch: {tokens}: "
        for words, edit, flags in (
            (expected + f"it holds the tokens of a text of {len(text)} bytes, and this one has {len(text) + 1}\n",
             lambda: self.text.write_bytes(text + b"t"), {}),
            (expected + "it holds the tokens of another text of the same size: the SHA-256 differs\n",
             lambda: self.text.write_bytes(text[::-1]), {}),
            (expected + "it was made by another tokenizer, of 15 tokens\n", lambda: None, {"tokenizer": "bpe"}),
            (mapped + f"damaged: expected {len(good)} bytes, got {len(good) - 1}\n", lambda: tokens.write_bytes(good[:-1]), {}),
            (mapped + "damaged: the SHA-256 of its header differs\n", lambda: tokens.write_bytes(good[:99] + b"x" + good[100:]), {}),
            (mapped + "expected a token file, got another file\n", lambda: tokens.write_bytes(text), {}),
        ):
            with self.subTest(words=words):
                edit()
                before = tokens.read_bytes()
                done = self.train(steps=2, tokens=tokens, out="other", **flags)
                self.assertEqual((done.returncode, done.stderr), (1, words))
                self.assertEqual(tokens.read_bytes(), before)
                self.text.write_bytes(text)
                tokens.write_bytes(good)
        done = self.train(steps=2, tokens=self.text, out="other")
        self.assertEqual(done.stderr, f"attentive-train: token_file_mismatch: {self.text}: expected a token file, got another file\n")
        self.assertEqual(self.text.read_bytes(), text)
        done = self.train(steps=2, tokens=self.folder / "none" / "tokens", out="other")
        self.assertIn("attentive-train: write_token_file: ", done.stderr)
        self.assertFalse((self.folder / "other" / "latest").exists())

    def test_a_long_text_has_its_tokens_in_the_folder_of_the_run(self):
        """More than 16 MiB; words of a thousand letters make few tokens."""
        def write(letter):
            self.text.write_text((letter * 1023 + "\n") * 16500)

        flags = dict(steps=3, decay_steps=6, tokenizer="bpe", vocab=267, log_every=1, evaluate_every=0)
        write("x")
        tokens = self.run_folder / "tokens.bin"
        done = self.train(**flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"tokenizing {self.text} into {tokens}\n", done.stderr)
        self.assertTrue(tokens.read_bytes().startswith(b"attntok\n"))
        elsewhere = self.folder / "elsewhere"
        self.assertEqual(self.train(tokens=elsewhere, out="other", **flags).returncode, 0)
        self.assertEqual(elsewhere.read_bytes(), tokens.read_bytes())
        self.assertFalse((self.folder / "other" / "tokens.bin").exists())
        self.assertEqual(self.result("run"), self.result("other"))
        # A run that goes on reads them, and writes them again if they are gone.
        written = tokens.stat().st_mtime_ns
        done = self.train("--resume", steps=4)
        self.assertEqual((done.returncode, tokens.stat().st_mtime_ns), (0, written), done.stderr)
        tokens.unlink()
        self.assertEqual(self.train("--resume", steps=6).returncode, 0)
        self.assertEqual(tokens.read_bytes(), elsewhere.read_bytes())
        self.assertEqual(self.train("--resume", out="other", steps=6, tokens=elsewhere).returncode, 0)
        self.assertEqual(self.result("run")[0], self.result("other")[0])
        # A new run replaces those of another text, but no other file.
        (self.folder / "new").mkdir()
        shutil.copy(tokens, self.folder / "new" / "tokens.bin")
        write("y")
        self.assertEqual(self.train(out="new", **flags).returncode, 0)
        self.assertNotEqual((self.folder / "new" / "tokens.bin").read_bytes(), elsewhere.read_bytes())
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "tokens.bin").write_text("mine")
        done = self.train(out="mine", **flags)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tokens.bin: expected a token file, got another file\n", done.stderr)
        self.assertEqual((self.folder / "mine" / "tokens.bin").read_text(), "mine")

    # Commands to paste

    def hint(self, text, words):
        return re.search(words + r"(.*)", text)[1].rstrip("\r")

    def test_the_command_at_the_end_can_be_pasted(self):
        """The command works whatever name the program was called by, in the shell that called it."""
        programs = self.folder / "my programs"
        programs.mkdir()
        for program in (TRAIN, GENERATE):
            shutil.copy(program, programs)
        relative = os.path.relpath(TRAIN, self.folder)
        path = {**os.environ, "PATH": f"{TRAIN.parent}:{os.environ['PATH']}"}
        for number, (program, env) in enumerate((
            (str(TRAIN), None), (relative, None), ("my programs/attentive-train", None), ("attentive-train", path),
        )):
            with self.subTest(program=program):
                arguments = ["--text", "text", "--out", f"it's run {number}", *TINY_FLAGS, "--steps=2"]
                done = subprocess.run(shlex.join([program, *arguments]), shell=True, cwd=self.folder, env=env,
                                      stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                command = self.hint(done.stderr, "try: ")
                made = subprocess.run(f"{command} --tokens 3", shell=True, cwd=self.folder, env=env, text=True,
                                      capture_output=True)
                self.assertEqual((made.returncode, made.stderr), (0, ""), command)
                self.assertTrue(made.stdout.startswith("to"), made.stdout)

    def test_the_prompt_of_that_command_is_known_to_the_model(self):
        """The prompt is the first word of the text, however unusual, but no longer than the context."""
        for number, (text, block, prompt) in enumerate((
            ("\n\n  it's `odd` $HOME " * 10, 16, "it's"),
            ("Donaudampfschifffahrtsgesellschaft " * 10, 16, "Donaudampfsc"),
            ("Donaudampfschifffahrtsgesellschaft " * 10, 4, "Dona"),
            ("aaaäöü äöüß, " * 20, 4, "aaa"),
            ("привет мир " * 10, 16, "привет"),
        )):
            with self.subTest(text=text[:20], block=block):
                (self.folder / "odd").write_text(text)
                done = self.train(steps=2, block=block, text="odd", out=f"run{number}")
                self.assertEqual(done.returncode, 0, done.stderr)
                command = self.hint(done.stderr, "try: ")
                self.assertEqual(shlex.split(command)[-2:], ["--prompt", prompt])
                made = subprocess.run(f"{command} --tokens 1", shell=True, capture_output=True)
                self.assertEqual((made.returncode, made.stderr), (0, b""))

    def test_no_command_names_a_program_that_is_not_there(self):
        shutil.copy(TRAIN, self.folder)
        done = subprocess.run([self.folder / TRAIN.name, *self.command(steps=2)[1:]], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("done: ", done.stderr)
        self.assertNotIn("try: ", done.stderr)

    def test_the_command_after_a_stop_goes_on(self):
        terminal = self.terminal(self.command(steps=1000000, log_format="jsonl", out="a b", tokens=self.folder / "t t"))
        terminal.wait_for("tok/s")
        terminal.press(CTRL_C)
        self.assertEqual(terminal.wait(), 0)
        command = self.hint(terminal.text, "go on with: ")
        self.assertEqual(shlex.split(command), list(map(str, [
            TRAIN, "--text", self.text, "--out", self.folder / "a b", "--tokens", self.folder / "t t", "--device", "cpu", "--threads", "1", "--log-format",
            "jsonl", "--resume"])))
        terminal = self.terminal(shlex.split(command))
        terminal.wait_for("going on after step")
        terminal.wait_for("tok/s")
        terminal.press(CTRL_C)
        self.assertEqual(terminal.wait(), 0)

    # attentive-generate

    def test_generate_says_that_it_stopped_at_the_context(self):
        self.assertEqual(self.train(steps=2).returncode, 0)
        base = [GENERATE, "--model", self.run_folder, "--prompt", "to be"]
        for tokens, more, note in (
            (12, [], ""),
            (13, [], "attentive-generate: stopped after 12 of 13 tokens: the model's context of 16 is full; --slide goes on\n"),
            (120, [], "attentive-generate: stopped after 12 of 120 tokens: the model's context of 16 is full; --slide goes on\n"),
            (120, ["--slide"], ""),
        ):
            with self.subTest(tokens=tokens, more=more):
                done = subprocess.run([*base, "--tokens", str(tokens), *more], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, note))
                self.assertEqual(len(done.stdout), len("to be") + (tokens if not note else 12) + 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
