"""Writes cases of learned position biases with new configurations and numbers, from this transformers, and runs their tests.

    python tools/checks/fresh_biases.py --tests build/dev/tests/modules_test [--seed N]

Settings, weights and inputs of make_bias_cases.py are drawn anew in every run (the seed is printed, so that a failure can be
repeated). Then one weight of each kind is changed, and the tests have to fail. Needs PyTorch and transformers. Exit status 0 if
everything came out as it should.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "generators"))
from case_support import cases_of, write_bundle  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parents[1]


def run_tests(tests, bundle):
    environment = {**os.environ, "ATTENTIVE_BIAS_CASES": str(bundle)}
    return subprocess.run([tests, "[bias_cases]"], env=environment, capture_output=True, text=True)


def changes_are_seen(tests, bundle):
    """The number of kinds of cases whose changed weight no test noticed."""
    unseen = 0
    cases = cases_of(bundle)
    changed = bundle.with_name("changed.safetensors")
    for case in {case.split("-")[0]: case for case in cases}.values():
        tensors = cases[case][1]
        name = next(name for name in tensors if name.startswith("state.") and name.endswith(("weight", "table", "slopes")))
        before = tensors[name].clone()
        tensors[name].view(-1)[0] += 1
        write_bundle(changed, cases)
        tensors[name] = before
        seen = f"{changed.name}#{case}" in run_tests(tests, changed).stdout
        print(f"{'ok' if seen else 'PROBLEM'} {case}, one weight changed")
        unseen += not seen
    return unseen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", required=True, help="the executable modules_test")
    parser.add_argument("--seed", type=int, default=None, help="repeats the run that printed this seed")
    settings = parser.parse_args()
    seed = time.time_ns() % 2**31 + 1 if settings.seed is None else settings.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as root:
        subprocess.run([sys.executable, TOOLS / "generators/make_bias_cases.py", "--seed", str(seed), "--out", root], check=True)
        bundle = pathlib.Path(root) / "biases.safetensors"
        done = run_tests(settings.tests, bundle)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="")
        problems = (done.returncode != 0) + changes_are_seen(settings.tests, bundle)
    print(f"{problems} problems")
    sys.exit(problems > 0)


if __name__ == "__main__":
    main()
