#!/usr/bin/env python3
"""Compares this package with other runtimes on one CPU: attention alone, and whole language models.

    bench/league/run.py [--part attention models] [--peers NAME...] [--dtype fp32 bf16 int8] [--out FOLDER]

Makes one virtual environment per peer, checks every result, and times this package and the peers in turns. Writes
league.json, league.md and league.csv into the output folder; rows of earlier runs stay unless this run measures them again. A peer
that cannot be installed, converted or run is listed with the reason.
"""

import argparse
import fcntl
import functools
import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import attention
import environments
import models
import peers
import report
from contender import Contender, Refused

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"attention": attention, "models": models}


class League:
    """The settings of a run, its contenders and its results."""

    here = Path(__file__).resolve().parent

    def __init__(self, arguments):
        self.rounds, self.threads = arguments.rounds, arguments.threads
        self.dtypes, self.tokens, self.variants, self.models = arguments.dtype, arguments.tokens, arguments.variant, arguments.model
        self.chosen, self.program = arguments.peers, arguments.ours
        self.environments, self.out = arguments.environments, arguments.out
        self.may_install = not arguments.no_install
        self.out.mkdir(parents=True, exist_ok=True)
        self.path = self.out / "league.json"
        self.news = empty()  # of this run; `save` adds them to the file
        self.present = set()
        with self.ours() as ours:
            self.news["machine"] = ours.ask("about")

    def ours(self):
        return Contender([self.program, self.threads], self.out / "attentive.log")

    def started(self, module, peer):
        """The peer's process; it has loaded its runtime."""
        python = environments.python_in(self.environments, peer.environment)
        contender = Contender([python, self.here / "worker.py", module, self.threads], self.out / f"{module}.log",
                              {"OMP_NUM_THREADS": str(self.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"})
        try:
            self.news["versions"].update(contender.ask("start"))
        except Refused:
            contender.__exit__()
            raise
        return contender

    def available(self, modules):
        """The chosen peers that can be started, with their modules; the others are noted as absent."""
        for module in modules:
            peer = peers.peer(module)
            if self.chosen and module not in self.chosen:
                continue
            try:
                environments.ensure(self.environments, peer.environment, self.may_install)
                with self.started(module, peer):
                    pass
            except (environments.Missing, Refused) as reason:
                self.news["absent"][peer.name] = str(reason)
                print(f"{peer.name}: absent: {reason}", flush=True)
                continue
            for environment in (environments.TORCH, peer.environment) if peer.environment.torch else (peer.environment,):
                self.news["environments"][environment.name] = environments.installed(self.environments, environment)
            self.present.add(peer.name)
            yield module, peer

    @functools.cache
    def attention_peers(self):
        return tuple(self.available(peers.ATTENTION))

    @functools.cache
    def model_peers(self):
        return tuple(self.available(peers.MODELS))

    def add(self, rows):
        """Keeps rows in the place of earlier ones of the same contender and case."""
        for row in rows:
            print(describe(row), flush=True)
        self.news["rows"] += rows
        self.save()

    def save(self):
        """Adds what this run has found to the files, which another run may have changed meanwhile."""
        with open(self.path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else empty()
            for name in ("machine", "versions", "environments", "absent"):
                data[name].update(self.news[name])
            data["absent"] = {name: reason for name, reason in data["absent"].items() if name not in self.present}
            new = {key_of(row): row for row in self.news["rows"]}
            data["rows"] = [new.pop(key_of(row), row) for row in data["rows"]] + list(new.values())
            partial = self.path.with_suffix(".part")
            # Reasons name files by their paths inside the output folder.
            partial.write_text(json.dumps(data, indent=1).replace(f"{self.out.absolute()}/", "") + "\n", encoding="utf-8")
            partial.replace(self.path)
            data = json.loads(self.path.read_text(encoding="utf-8"))
            (self.out / "league.md").write_text(report.page(data), encoding="utf-8")
            (self.out / "league.csv").write_text(report.lines(data), encoding="utf-8")


def empty():
    return {"machine": {}, "versions": {}, "environments": {}, "absent": {}, "rows": []}


def key_of(row):
    return row["part"], row["case"], row["dtype"], row["way"]


def describe(row):
    """A row in one line for the terminal."""
    text = f"{row['case']} {row['dtype']}, {row['way']}: "
    if "refused" in row:
        return text + f"not run: {row['refused']}"
    if row["part"] == "models":
        return text + ", ".join(f"{what} {report.seconds(row[key]['peer']['median'])}, {row[key]['ratio']['median']:.2f} of ours"
                                for what, key in (("prompt", "first_s"), ("a token", "token_s"))) + f"; {row['checked']}"
    return text + f"{report.seconds(row['peer']['median'])}, {row['ratio']['median']:.2f} of ours, {report.seconds(row['ours']['median'])}"


def list_peers(root):
    for module in (*peers.ATTENTION, *peers.MODELS):
        peer = peers.peer(module)
        about = environments.installed(root, peer.environment)
        state = f"installed, {about['bytes'] / 1e9:.1f} GB" if about else "absent: not installed"
        print(f"{module}: {peer.name}: {state}")


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the peers and whether they are installed")
    parser.add_argument("--prepare", action="store_true", help="install and convert, but measure nothing")
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--peers", nargs="+", choices=(*peers.ATTENTION, *peers.MODELS), help="default: all")
    parser.add_argument("--dtype", nargs="+", default=["fp32", "bf16", "int8"], choices=("fp32", "bf16", "int8"))
    parser.add_argument("--tokens", nargs="+", type=int, default=[1024, 4096], help="of attention alone")
    parser.add_argument("--variant", nargs="+", default=attention.VARIANTS, choices=attention.VARIANTS, help="of attention alone")
    parser.add_argument("--model", nargs="+", default=list(models.NAMES), choices=models.NAMES, help="of the whole models")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-install", action="store_true", help="install nothing: list what is not there as absent")
    parser.add_argument("--ours", type=Path, default=ROOT / "build/release/bench/league_ours", help="this package's program")
    parser.add_argument("--out", type=Path, default=ROOT / "build/league", help="folder of league.json, league.md, league.csv and the logs")
    parser.add_argument("--environments", type=Path, help="folder of the virtual environments; default: inside --out")
    settings = parser.parse_args(arguments)
    settings.environments = (settings.environments or settings.out / "environments").absolute()
    return settings


def main():
    settings = parsed(sys.argv[1:])
    if settings.list:
        list_peers(settings.environments)
        return 0
    if not settings.ours.exists():
        sys.exit(f"{settings.ours} is missing: cmake --preset release && cmake --build build/release --target league_ours")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # the contenders end as well
    league = League(settings)
    for part in settings.part:
        if settings.prepare:
            PARTS[part].prepare(league)
        else:
            PARTS[part].run(league)
    league.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
