"""Tests run.py without a network: league_test.py PROGRAM (league_ours)"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = Path(__file__).with_name("run.py")
PROGRAM = sys.argv[1]
sys.path.insert(0, str(RUN.parent))

import peers


def run(*arguments):
    return subprocess.run([sys.executable, RUN, *arguments], text=True, capture_output=True)


def check_help():
    done = run("--help")
    assert done.returncode == 0 and "--part" in done.stdout and "other runtimes" in done.stdout, done


def check_list(folder):
    done = run("--list", "--environments", folder)
    modules = (*peers.ATTENTION, *peers.MODELS)
    expected = [f"{module}: {peers.peer(module).name}: absent: not installed" for module in modules]
    assert done.returncode == 0 and done.stdout.splitlines() == expected, done


def check_absent(folder):
    """Without any peer, this package stands alone, and the peers are named."""
    done = run("--part", "attention", "--no-install", "--tokens", "64", "--rounds", "2", "--ours", PROGRAM, "--out", folder)
    assert done.returncode == 0, done
    data = json.loads((Path(folder) / "league.json").read_text(encoding="utf-8"))
    absent = {peers.peer(module).name: "not installed" for module in peers.ATTENTION}
    assert data["absent"] == absent, data["absent"]
    table = (Path(folder) / "league.md").read_text(encoding="utf-8")
    for name in absent:
        assert f"{name}: absent: not installed" in done.stdout and f"| {name} | not installed |" in table, (done, table)
    ways = {(row["case"], row["dtype"], row["way"]) for row in data["rows"]}
    for dtype in ("fp32", "bf16"):
        assert ("causal T=64", dtype, "attentive") in ways and ("ALiBi T=64", dtype, "attentive, built-in option") in ways, ways
    assert all(0 < row["ratio"]["p10"] <= row["ratio"]["p90"] for row in data["rows"]), data["rows"]


def check_missing_program(folder):
    done = run("--ours", f"{folder}/none", "--out", folder)
    assert done.returncode == 1 and "--target league_ours" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_help()
        check_list(folder)
        check_missing_program(folder)
        check_absent(folder)


if __name__ == "__main__":
    main()
