"""One virtual environment per peer. Those that need PyTorch see the one of the environment `torch`."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
LIMIT = 30 * 60  # seconds for one environment


@dataclass(frozen=True)
class Environment:
    """Packages to install by name; `torch`: whether PyTorch is needed as well."""

    name: str
    packages: tuple
    torch: bool = False


TORCH = Environment("torch", ("torch", "numpy"))


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


def pip(python, *arguments, deadline):
    command = [python, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off",
               *arguments]
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Missing(f"not installed within {LIMIT // 60} minutes") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines() or [""]
        raise Missing(lines[0][:200])


def install(root, environment):
    """Makes the environment and returns its record: seconds and bytes."""
    folder = root / environment.name
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    deadline = start + LIMIT
    made = subprocess.run([sys.executable, "-m", "venv", folder], text=True, capture_output=True)
    if made.returncode != 0:
        raise Missing("this Python cannot make a virtual environment; apt-get install python3-venv")
    python = python_in(root, environment)
    if environment.torch:
        # Packages of the environment itself come first, so that it may have other versions of everything else.
        site = next((folder / "lib").glob("python*")) / "site-packages"
        shared = next((root / TORCH.name / "lib").glob("python*")) / "site-packages"
        (site / "torch_environment.pth").write_text(f"{shared}\n", encoding="utf-8")
    indices = [("--retries", "0", "--index-url", CPU_WHEELS), ()] if environment == TORCH else [()]
    for place, index in enumerate(indices, 1):
        try:
            pip(python, *index, *environment.packages, deadline=deadline)
            break
        except Missing:
            if place == len(indices):
                raise
    about = {"seconds": time.monotonic() - start, "bytes": size_of(folder)}
    record_of(root, environment).write_text(json.dumps(about) + "\n", encoding="utf-8")
    return about


def ensure(root, environment, may_install):
    """The record of the environment, which is made if need be. Raises Missing with the reason."""
    about = installed(root, environment)
    if about:
        return about
    if not may_install:
        raise Missing("not installed")
    if environment.torch:
        ensure(root, TORCH, may_install)
    print(f"installing {', '.join(environment.packages)}", flush=True)
    Path(root).mkdir(parents=True, exist_ok=True)
    about = install(root, environment)
    print(f"environment {environment.name}: {about['seconds'] / 60:.1f} minutes, {about['bytes'] / 1e9:.1f} GB", flush=True)
    return about
