"""Writes cases of whole models, or of learned position biases, with new numbers, from this transformers, and runs their tests.

    python tools/checks/fresh_models.py --parity build/dev/apps/attentive-parity [--seed N]    whole models
    python tools/checks/fresh_models.py --biases build/dev/tests/modules_test [--seed N]       biases, layers of T5 and Swin

The configurations of models are those of make_model_cases.py and make_encoder_cases.py; weights, inputs and masks, and for
biases the settings of make_bias_cases.py as well, are drawn anew in every run (the seed is printed, so that a failure can be
repeated). Then weights of each kind of case are changed, a row of a model or one number of a bias, and the executable has to
say so. Needs PyTorch and transformers. Exit status 0 if everything came out as it should.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOOLS / "generators"))
from case_support import cases_of, save_safetensors, write_bundle  # noqa: E402
from fresh_parity import Parity  # noqa: E402


def written(folder, seed, *generators):
    """The bundles that generators write, and their cases."""
    for generator in generators:
        subprocess.run([sys.executable, TOOLS / "generators" / generator, "--seed", str(seed), "--out", folder], check=True)
    bundles = sorted(folder.glob("*.safetensors"))
    return bundles, {case: content for bundle in bundles for case, content in cases_of(bundle).items()}


def one_of_each_kind(cases):
    return {case.split("-")[0]: case for case in cases}.values()


def weight_of(tensors, ends):
    return next(name for name in tensors if name.startswith("state.") and name.endswith(ends))


def check_models(executable, folder, seed):
    """The number of problems."""
    parity = Parity(executable)
    bundles, cases = written(folder, seed, "make_model_cases.py", "make_encoder_cases.py")
    everything = f"{len(cases)} cases: {len(cases)} passed, 0 different, 0 skipped, 0 unusable"
    parity.expect(f"{len(cases)} fresh cases of models", 0, everything, "--quiet", *bundles)
    for case in one_of_each_kind(cases):
        metadata, tensors = cases[case]
        tensors[weight_of(tensors, "layers.2.weight")][0] += 1  # a whole row, because one hidden unit may be zero for every token
        save_safetensors(folder / "changed.safetensors", tensors, metadata)
        parity.expect(f"{case}, one row of weights changed", 1, "DIFFERENT", folder / "changed.safetensors")
    return parity.problems


def check_biases(executable, folder, seed):
    """The number of problems."""

    def run_tests(bundle):
        environment = {**os.environ, "ATTENTIVE_BIAS_CASES": str(bundle)}
        return subprocess.run([executable, "[bias_cases]"], env=environment, capture_output=True, text=True)

    (bundle,), cases = written(folder, seed, "make_bias_cases.py")
    done = run_tests(bundle)
    problems = int(done.returncode != 0)
    if problems:
        print(done.stdout, done.stderr, sep="")
    changed = folder / "changed.safetensors"
    for case in one_of_each_kind(cases):
        tensors = cases[case][1]
        name = weight_of(tensors, ("weight", "table", "slopes"))
        before = tensors[name].clone()
        tensors[name].view(-1)[0] += 1
        write_bundle(changed, cases)
        tensors[name] = before
        seen = f"{changed.name}#{case}" in run_tests(changed).stdout
        print(f"{'ok' if seen else 'PROBLEM'} {case}, one weight changed")
        problems += not seen
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs = parser.add_mutually_exclusive_group(required=True)
    programs.add_argument("--parity", help="the executable attentive-parity")
    programs.add_argument("--biases", help="the executable modules_test")
    parser.add_argument("--seed", type=int, default=None, help="repeats the run that printed this seed")
    settings = parser.parse_args()
    seed = time.time_ns() % 2**31 + 1 if settings.seed is None else settings.seed
    print(f"seed {seed}")
    check = check_biases if settings.biases else check_models
    with tempfile.TemporaryDirectory() as folder:
        problems = check(settings.biases or settings.parity, pathlib.Path(folder), seed)
    print(f"{problems} problems")
    sys.exit(problems > 0)


if __name__ == "__main__":
    main()
