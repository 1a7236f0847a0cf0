"""A contender: a process that answers JSON objects, one per line, and stands still while another has its turn."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import threading

LIMIT = 30 * 60  # seconds for one answer


class Refused(Exception):
    """A contender cannot do what was asked; the message is its reason."""


class Contender:
    """Starts `command`. The process is stopped except while it answers, so that no thread of it spins meanwhile."""

    def __init__(self, command, log, environment=None):
        with open(log, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, text=True, env={**os.environ, **(environment or {})},
                                            start_new_session=True)  # with a group for the processes that it starts
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.signal(signal.SIGKILL)
        self.process.communicate()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def ask(self, what, **fields):
        """The answer to one command; raises Refused if there is none or it is a refusal."""
        self.signal(signal.SIGCONT)
        watch = threading.Timer(LIMIT, self.signal, (signal.SIGKILL,))
        watch.start()
        try:
            print(json.dumps({"do": what, **fields}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = watch.finished.is_set()
            watch.cancel()
        if late:
            raise Refused(f"no answer within {LIMIT // 60} minutes")
        if not line:
            raise Refused(f"the process ended with status {self.process.wait()}; see {self.log}")
        self.signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"].strip().splitlines()[0][:160])
        return answer

    def peak_bytes(self):
        """The most memory that the process has had so far, mapped files included."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def take_turns(ways, rounds):
    """Calls the functions of `ways` in rounds, each round beginning with another. Returns the results by name, and the
    reasons of those that were refused on the way."""
    results, refused = {name: [] for name in ways}, {}
    for turn in range(rounds):
        names = list(results)
        for step in range(len(names)):
            name = names[(turn + step) % len(names)]
            try:
                results[name].append(ways[name]())
            except Refused as reason:
                refused[name] = str(reason)
                del results[name]
    return results, refused


def spread(values):
    """Median and the range of the middle 80 %."""
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "p10": ordered[len(ordered) // 10], "p90": ordered[len(ordered) * 9 // 10]}


def compared(theirs, ours):
    """The times of a peer beside ours of the same rounds."""
    return {"peer": spread(theirs), "ours": spread(ours), "ratio": spread([a / b for a, b in zip(theirs, ours, strict=True)])}
