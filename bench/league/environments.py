"""One virtual environment per peer. Those that need PyTorch see the one of the environment `torch`, a PyTorch without CUDA:
the wheel for CPUs or, where its index cannot be reached, the usual one without the packages of CUDA that it asks for.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import without_cuda

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
LIMIT = 30 * 60  # seconds for one environment


@dataclass(frozen=True)
class Environment:
    """Packages to install by name. `torch`: whether the shared PyTorch is needed as well; `alone`: an own PyTorch
    and packages that are installed without those that they ask for; `cmake`: settings for what is compiled."""

    name: str
    packages: tuple
    torch: bool = False
    alone: tuple = ()
    cmake: tuple = ()


TORCH = Environment("torch", ("numpy",), alone=("torch",))


class Missing(Exception):
    """An environment is not there; the message is the reason."""


def python_in(root, environment):
    return root / environment.name / "bin/python3"


def record_of(root, environment):
    return root / environment.name / "league.json"


def installed(root, environment):
    """The record of an environment that is complete, otherwise None."""
    path = record_of(root, environment)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def size_of(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())


def pip(python, *arguments, deadline, cmake=()):
    command = [python, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off",
               *arguments]
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=max(1, deadline - time.monotonic()),
                              env={**os.environ, "CMAKE_ARGS": " ".join(cmake)})
    except subprocess.TimeoutExpired:
        raise Missing(f"not installed within {LIMIT // 60} minutes") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines() or [""]
        raise Missing(lines[0][:200])


def cpu_seconds():
    """The time that all processors have worked for programs that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def install_torch(python, site, packages, deadline):
    """Installs a PyTorch for CPUs, and the other `packages`, each without those that it asks for."""
    try:
        pip(python, "--retries", "0", "--index-url", CPU_WHEELS, packages[0], deadline=deadline)
    except Missing:
        pip(python, "--no-deps", packages[0], deadline=deadline)
        try:
            without_cuda.separate(site)
        except OSError as reason:
            raise Missing(str(reason)) from None
        pip(python, packages[0], deadline=deadline)  # what it needs for CPUs
    if packages[1:]:
        pip(python, "--no-deps", *packages[1:], deadline=deadline)


def install(root, environment):
    """Makes the environment and returns its record: seconds and bytes."""
    folder = root / environment.name
    shutil.rmtree(folder, ignore_errors=True)
    start, cpu_start = time.monotonic(), cpu_seconds()
    deadline = start + LIMIT
    made = subprocess.run([sys.executable, "-m", "venv", folder], text=True, capture_output=True)
    if made.returncode != 0:
        raise Missing("this Python cannot make a virtual environment; apt-get install python3-venv")
    python = python_in(root, environment)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    if environment.torch:
        # Packages of the environment itself come first, so that it may have other versions of everything else.
        shared = next((root / TORCH.name / "lib").glob("python*")) / "site-packages"
        (site / "torch_environment.pth").write_text(f"{shared}\n", encoding="utf-8")
    if environment.alone:
        install_torch(python, site, environment.alone, deadline)
    pip(python, *environment.packages, deadline=deadline, cmake=environment.cmake)
    about = {"seconds": time.monotonic() - start, "cpu_seconds": cpu_seconds() - cpu_start, "bytes": size_of(folder)}
    record_of(root, environment).write_text(json.dumps(about) + "\n", encoding="utf-8")
    return about


failures = {}  # why environments could not be made, by their folders


def ensure(root, environment, may_install):
    """The record of the environment, which is made if need be. Raises Missing with the reason; what failed once is not
    tried again by this process, as it may have taken the whole limit."""
    about = installed(root, environment)
    if about:
        return about
    if not may_install:
        raise Missing("not installed")
    folder = Path(root) / environment.name
    if folder in failures:
        raise Missing(failures[folder])
    try:
        if environment.torch:
            ensure(root, TORCH, may_install)
        print(f"installing {', '.join((*environment.alone, *environment.packages))}", flush=True)
        Path(root).mkdir(parents=True, exist_ok=True)
        about = install(root, environment)
    except Missing as reason:
        failures[folder] = str(reason)
        raise
    print(f"environment {environment.name}: {about['seconds'] / 60:.1f} minutes, {about['bytes'] / 1e9:.1f} GB", flush=True)
    return about
