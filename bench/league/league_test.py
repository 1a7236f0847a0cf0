"""Tests run.py without a network: league_test.py PROGRAM (league_ours)"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = Path(__file__).with_name("run.py")
PROGRAM = sys.argv[1]
sys.path.insert(0, str(RUN.parent))

import environments
import peers
import without_cuda


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
    with open(Path(folder) / "league.csv", encoding="utf-8") as file:
        assert next(file).startswith("# league: ")
        figures = {(row["case"], row["dtype"], row["way"]): row for row in csv.DictReader(file)}
    ours, built_in = (figures["ALiBi T=64", "bf16", way] for way in ("attentive", "attentive, built-in option"))
    assert float(ours["seconds"]) > 0 and not ours["ratio"] and float(built_in["ratio"]) > 0, figures
    assert all(0 < row["ratio"]["p10"] <= row["ratio"]["p90"] for row in data["rows"]), data["rows"]


def check_no_model(folder):
    """Without transformers there is no model to run, and the table says so."""
    done = run("--part", "models", "--no-install", "--model", "gpt2", "--dtype", "fp32", "--rounds", "2", "--ours", PROGRAM, "--out", folder)
    assert done.returncode == 0, done
    rows = json.loads((Path(folder) / "league.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["case"], row["way"], row["refused"]) for row in rows] == [
        ("GPT-2 124M", "attentive", "transformers, which makes the model: not installed")], rows
    assert "which makes the model: not installed" in (Path(folder) / "league.md").read_text(encoding="utf-8")


def check_one_try(folder):
    """An environment that cannot be made is tried once, whichever peers and models ask for it."""
    tried = []

    def install(_, environment):
        tried.append(environment.name)
        raise environments.Missing(f"no {environment.name}")

    environments.install = install
    for name in ("transformers_model", "transformers_compiled", "transformers_model", "openvino_attention"):
        try:
            environments.ensure(Path(folder), peers.peer(name).environment, may_install=True)
        except environments.Missing as reason:
            assert str(reason) in ("no torch", "no openvino_attention"), reason
        else:
            raise AssertionError(name)
    assert tried == ["torch", "openvino_attention"], tried


def built(path, source, *options):
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *options, "-o", path], input=source, text=True, check=True)


ASK_WITHOUT_CUDA = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ask.restype = ctypes.c_char_p
print(library.count(), library.ask().decode())
"""


def check_without_cuda(folder):
    """A library that was linked with one of CUDA's loads without it, and hears of no device."""
    site = Path(folder)
    metadata = site / "torch-1.0.dist-info/METADATA"
    libraries = site / "torch/lib"
    for made in (metadata.parent, libraries):
        made.mkdir(parents=True)
    kept = "Name: torch\nRequires-Dist: sympy>=1.13\n"
    metadata.write_text(f"{kept}Requires-Dist: nvidia-cudnn-cu13==9.2\nRequires-Dist: cuda-toolkit[cudart]==13\nRequires-Dist: triton~=3.9\n")
    (site / "versions").write_text("libcudart.so.99 { global: *; };")
    cuda = site / "libcudart.so.99"
    built(cuda, 'extern "C" int cudaGetDeviceCount(int*) { return 0; } extern "C" const char* cudaGetErrorString(int) { return ""; }', f"-Wl,-soname,{cuda.name},--version-script,{site / 'versions'}")
    built(libraries / "libtorch.so", """extern "C" int cudaGetDeviceCount(int*);
extern "C" const char* cudaGetErrorString(int);
extern "C" const char* ask() { int n; return cudaGetErrorString(cudaGetDeviceCount(&n)); }
extern "C" int count() { int n; return cudaGetDeviceCount(&n); }""",
          cuda, "-Wl,-rpath,$ORIGIN,--disable-new-dtags")
    cuda.unlink()
    without_cuda.separate(site)
    assert metadata.read_text() == kept, metadata.read_text()
    answer = subprocess.run([sys.executable, "-c", ASK_WITHOUT_CUDA, libraries / "libtorch.so"],
                            text=True, capture_output=True)
    assert answer.stdout == f"{without_cuda.NO_DEVICE} no CUDA device\n", answer
    assert sorted(path.name for path in libraries.iterdir()) == [cuda.name, "libtorch.so", without_cuda.FUNCTIONS], libraries


def check_missing_program(folder):
    done = run("--ours", f"{folder}/none", "--out", folder)
    assert done.returncode == 1 and "--target league_ours" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_help()
        check_list(folder)
        check_missing_program(folder)
        check_absent(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_no_model(folder)
        check_one_try(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_without_cuda(folder)


if __name__ == "__main__":
    main()
