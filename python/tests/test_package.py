"""The C++ package inside the wheel: a program that finds it, and that runs what Python exported."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

import attentive
from attentive import _library

PROGRAM = Path(__file__).parent / "package_program"
SIZES = (2, 3, 9, 8)


def built(folder):
    """The program, configured with nothing but the folder that the package names."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "Torch"))}
    for command in (
        ["cmake", "-S", PROGRAM, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_COMPILER=g++",
         f"-DCMAKE_PREFIX_PATH={attentive.cmake_prefix_path}"],
        ["cmake", "--build", folder],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        if command[1] == "-S":
            printed = done.stdout
    return folder / "program", printed


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        y = attentive.attention(q, k, v, causal="bottom_right", softcap=3.0)
        return y, y.transpose(1, 2).flatten(2)


def test_program_runs_an_aotinductor_package(tmp_path):
    count = torch.Size(SIZES).numel()
    arguments = [torch.arange(count, dtype=torch.float64).mul(step).sin().reshape(SIZES).float() for step in (0.11, 0.17, 0.23)]
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(Model(), tuple(arguments)), package_path=str(tmp_path / "model.pt2")
    )
    program, configured = built(tmp_path / "build")
    # The LibTorch is the one in the folder beside the package.
    assert f"from the Python packages with attentive: {Path(torch.__file__).resolve().parent}" in configured
    if torch.__version__.startswith("2.7.") and "NVIDIA libraries incomplete" in configured:
        pytest.skip("a package of PyTorch 2.7 loads libtorch.so, which needs NVIDIA libraries that are not installed")
    done = subprocess.run([program, package, *map(str, SIZES)], capture_output=True, text=True)
    assert done.returncode == 0, configured + done.stderr
    for line, want in zip(done.stdout.splitlines(), Model()(*arguments), strict=True):
        total, squares = map(float, line.split())
        assert total == pytest.approx(want.double().sum().item(), rel=1e-5, abs=1e-4)
        assert squares == pytest.approx(want.double().square().sum().item(), rel=1e-5)


def test_no_file_names_the_machine_of_the_build():
    wheel = os.environ.get("ATTENTIVE_WHEEL")
    if not wheel:
        pytest.skip("ATTENTIVE_WHEEL does not name the wheel's file")
    places = [str(Path(__file__).resolve().parents[2]), str(Path.home()), str(Path(torch.__file__).resolve().parent)]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            for place in places:
                assert place.encode() not in content, f"{name} names {place}"


def test_what_is_in_the_package():
    """Libraries, headers and targets of the components that the guide names."""
    folder = _library.FOLDER
    components = ("attention", "files", "models", "text", "train", "accelerate", "operators")
    for name in components:
        library = f"libattentive_{name}" + (".so" if name == "operators" else ".a")
        assert (folder / "lib" / library).is_file()
        assert (folder / "lib/cmake/attentive" / f"attentive-{name}-targets.cmake").is_file()
    assert (folder / "include/attentive/attention.h").is_file()
    assert (folder / "py.typed").is_file()
