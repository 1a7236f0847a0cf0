"""Writes cases of whole models with new numbers, from this transformers, and runs attentive-parity on them.

    python tools/checks/fresh_models.py --parity build/dev/apps/attentive-parity [--seed N]

The configurations are those of make_model_cases.py and make_encoder_cases.py; weights, inputs and masks are drawn anew in
every run (the seed is printed, so that a failure can be repeated). Then one row of weights of each family is changed, and the
executable has to say so. Needs PyTorch and transformers. Exit status 0 if everything came out as it should.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "generators"))
from attentive_case import save_safetensors  # noqa: E402
from case_support import cases_of  # noqa: E402
from fresh_parity import Parity  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parents[1]
GENERATORS = ("make_model_cases.py", "make_encoder_cases.py")


def change_one_row(parity, case, metadata, tensors, changed):
    name = next(name for name in tensors if name.startswith("state.") and name.endswith("layers.2.weight"))
    tensors[name][0] += 1  # a whole row, because one hidden unit may be zero for every token
    save_safetensors(changed, tensors, metadata)
    parity.expect(f"{case}, one row of weights changed", 1, "DIFFERENT", changed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parity", required=True, help="the executable attentive-parity")
    parser.add_argument("--seed", type=int, default=None, help="repeats the run that printed this seed")
    settings = parser.parse_args()
    seed = time.time_ns() % 2**31 + 1 if settings.seed is None else settings.seed
    parity = Parity(settings.parity)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        for generator in GENERATORS:
            subprocess.run([sys.executable, TOOLS / "generators" / generator, "--seed", str(seed), "--out", folder], check=True)
        bundles = sorted(pathlib.Path(folder).glob("*.safetensors"))
        cases = {case: content for bundle in bundles for case, content in cases_of(bundle).items()}
        everything = f"{len(cases)} cases: {len(cases)} passed, 0 different, 0 skipped, 0 unusable"
        parity.expect(f"{len(cases)} fresh cases of models", 0, everything, "--quiet", *bundles)
        for case in {case.split("-")[0]: case for case in cases}.values():
            change_one_row(parity, case, *cases[case], pathlib.Path(folder) / "changed.safetensors")
    print(f"{parity.problems} problems")
    sys.exit(parity.problems > 0)


if __name__ == "__main__":
    main()
