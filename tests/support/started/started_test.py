"""A client ends as its program would, whatever the command line, working folder, streams, signals and environment.

    with_started.py CLIENT PRELOAD started_test.py /bin/sh
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SHELL = sys.argv[1]


def run(script, *arguments, **options):
    return subprocess.run([SHELL, "-c", script, "sh", *arguments], capture_output=True, text=True, **options)


def close_standard_output():
    os.close(1)


def ignore_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Started(unittest.TestCase):
    def test_a_copy_of_the_waiting_program_runs_the_command_line(self):
        self.assertNotEqual(run("echo $PPID").stdout, f"{os.getpid()}\n")

    def test_another_environment_has_the_program_itself_run(self):
        done = run("echo $PPID $COLOUR", env={**os.environ, "COLOUR": "red"})
        self.assertEqual(done.stdout, f"{os.getpid()} red\n")

    def test_the_environment_is_that_of_the_client(self):
        self.assertEqual(run("echo $LD_PRELOAD $ATTENTIVE_STARTED_SOCKET").stdout, "\n")

    def test_status_arguments_and_streams(self):
        done = run('cat; echo "$1|$2"; echo error >&2; exit 3', "a b", "", input="text\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "text\na b|\n", "error\n"))

    def test_the_working_folder_and_the_mask_of_new_files(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("pwd -P; umask; : > new", cwd=folder, umask=0o027)
            self.assertEqual(done.stdout, f"{pathlib.Path(folder).resolve()}\n0027\n")
            self.assertEqual((pathlib.Path(folder) / "new").stat().st_mode & 0o777, 0o640)

    def test_death_by_a_signal(self):
        self.assertEqual(run("kill -KILL $$").returncode, -signal.SIGKILL)
        self.assertEqual(run("kill -TERM $$").returncode, -signal.SIGTERM)

    def test_a_closed_stream_is_closed(self):
        done = subprocess.run([SHELL, "-c", "[ -e /proc/$$/fd/0 ] && [ ! -e /proc/$$/fd/1 ] && [ -e /proc/$$/fd/2 ]"],
                              preexec_fn=close_standard_output)
        self.assertEqual(done.returncode, 0)

    def test_ignored_signals_are_ignored(self):
        self.assertEqual(run("kill -HUP $$; echo alive", preexec_fn=ignore_hangups).stdout, "alive\n")
        self.assertEqual(run("kill -HUP $$; echo alive").stdout, "")

    def test_a_signal_to_the_client_reaches_the_program(self):
        with subprocess.Popen([SHELL, "-c", "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.01; done"],
                              stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual(process.stdout.read(), "caught\n")
        self.assertEqual(process.returncode, 7)

    def test_the_program_ends_with_its_client(self):
        with subprocess.Popen([SHELL, "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE, text=True) as process:
            number = int(process.stdout.readline())
            process.kill()
        deadline = time.monotonic() + 20
        while pathlib.Path(f"/proc/{number}").exists():
            self.assertLess(time.monotonic(), deadline, "the program still runs")
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
