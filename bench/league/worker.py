"""Runs one peer inside its own environment and answers the lines of contender.py: worker.py PEER THREADS"""

import json
import os
import sys
import time

import peers

SAMPLE = 0.02  # seconds; a sample is the mean of as many calls as fill it


class Attention:
    """The commands of attention alone."""

    def __init__(self, peer):
        self.peer = peer
        self.ready = {}

    def prepare(self, way, **case):
        import numpy

        start = time.perf_counter()
        call = self.peer.call(way, case)
        result = self.peer.numbers(call())
        first = time.perf_counter() - start
        expected = numpy.fromfile(f"{case['folder']}/expected.bin", numpy.float32).reshape(result.shape)
        once = self.seconds(call, 1)
        self.ready[way] = call, max(1, round(SAMPLE / once))
        return {"error": float(abs(result - expected).max() / abs(expected).max()), "prepared_s": first}

    def sample(self, way):
        call, calls = self.ready[way]
        self.seconds(call, calls)  # wakes its threads
        return {"seconds": self.seconds(call, calls)}

    @staticmethod
    def seconds(call, calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls


class Model:
    """The commands of whole models."""

    def __init__(self, peer):
        self.peer = peer

    def convert(self, folder, dtype, target):
        start = time.perf_counter()
        self.peer.convert(folder, dtype, target)
        return {"seconds": time.perf_counter() - start}

    def load(self, folder, dtype):
        start = time.perf_counter()
        self.peer.load(folder, dtype)
        return {"seconds": time.perf_counter() - start}

    def logits(self, prompt):
        return {"logits": self.peer.logits(prompt)}

    def continued(self, prompt, tokens):
        times, ids = [], []

        def note(token):
            times.append(time.perf_counter())
            ids.append(int(token))

        start = time.perf_counter()
        self.peer.continued(prompt, tokens, note)
        return {"ids": ids, "first_s": times[0] - start, "token_s": (times[-1] - times[0]) / (len(ids) - 1)}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints does not disturb the protocol
    peer = peers.peer(sys.argv[1])
    commands = (Model if hasattr(peer, "continued") else Attention)(peer)
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        try:
            answer = peer.start(int(sys.argv[2])) if name == "start" else getattr(commands, name)(**command)
        except NotImplementedError as error:
            answer = {"refused": str(error)}
        except Exception as error:  # whatever a foreign runtime raises is its reason
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
