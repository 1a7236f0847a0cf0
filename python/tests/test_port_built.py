"""What attentive-port writes, compiled by g++ against the C++ package of the wheel; the ctest `port` does it by clang."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import attentive

PORT = Path(__file__).resolve().parents[2] / "tests/package/port"


def built(source, folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "Torch"))}
    for command in (
        ["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_CXX_COMPILER=g++",
         f"-DCMAKE_PREFIX_PATH={attentive.cmake_prefix_path}", *arguments],
        ["cmake", "--build", folder],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def test_project(tmp_path):
    """One class with a training loop and every dtype, by the commands of its README."""
    project = tmp_path / "attention_of_gpt"
    subprocess.run([sys.executable, PORT / "project.py", project], check=True)
    built(project, tmp_path / "build", "-DCMAKE_CXX_FLAGS=-Werror")
    command = ["ctest", "--test-dir", tmp_path / "build", "--output-on-failure", "--no-tests=error"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "100% tests passed, 0 tests failed out of 2" in done.stdout


@pytest.mark.long
def test_all_classes(tmp_path):
    """Without a warning, and with broken emitters noticed, among them one that leaves draws in the order of g++."""
    subprocess.run([sys.executable, PORT / "generate.py", tmp_path / "written", "--gxx"], check=True)
    built(PORT, tmp_path / "build", f"-DSOURCES={tmp_path / 'written'}")
    done = subprocess.run([tmp_path / "build/program"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
