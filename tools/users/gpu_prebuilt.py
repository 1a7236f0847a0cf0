"""The programs that tools/gpu_check runs, built on a machine without a GPU for one that has nothing but LibTorch.

A prebuilt folder holds tests/, apps/ and bench/ as a build folder does, lib/ with this package's shared libraries and those
of the system that not every machine has, and prebuilt.json, which says what it was built from. Nothing in it depends on where it lies: LibTorch is named by the
environment, and the tests' data by ATTENTIVE_SOURCE_DIR.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

MANIFEST = "prebuilt.json"
MOST_BYTES = 60 * 2**20
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
# Libraries that every machine with PyTorch has: the C and C++ libraries, and OpenMP's, which LibTorch
# contains.
EVERYWHERE = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libutil|libstdc\+\+|libgcc_s|libgomp)\.so\b")


class Fault(Exception):
    """The reason why a prebuilt folder cannot be made or used, as one sentence."""


def torch_of_python():
    """The package folder of this interpreter's torch, or None."""
    found = importlib.util.find_spec("torch")
    return Path(found.origin).parent if found and found.origin else None


def torch_version(torch):
    """The release, such as 2.11.0, of a LibTorch: its folder `torch` of a wheel, or that of an archive."""
    for name, pattern in (("version.py", r"__version__ = '([0-9.]+)"), ("build-version", r"([0-9.]+)")):
        path = torch / name
        found = path.exists() and re.search(pattern, path.read_text())
        if found:
            return found[1]
    raise Fault(f"expected a LibTorch in {torch}, found neither version.py nor build-version")


def libraries(torch):
    """The folders of LibTorch's shared libraries, and of the NVIDIA wheels beside it."""
    return [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]


def environment(folder, torch, source):
    paths = [folder / "lib", *libraries(torch)]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, paths)), "ATTENTIVE_SOURCE_DIR": str(source)}


def read_manifest(folder):
    path = folder / MANIFEST
    if not path.exists():
        raise Fault(f"expected {path}; make the folder on a machine with nvcc: tools/gpu_check --prebuilt {folder}")
    return json.loads(path.read_text())


def check_torch(manifest, torch):
    """Compares versions, because the C++ ABI differs between minor releases."""
    have, want = torch_version(torch).split(".")[:2], manifest["torch"].split(".")[:2]
    if have != want:
        raise Fault(f"expected a LibTorch {'.'.join(want)} as the programs were built with, got {'.'.join(have)} in {torch}")


def linked(program, folder, torch):
    """(name, path) of every library that a program loads; the path of one that is not found is empty."""
    listed = subprocess.run(["ldd", str(program)], env=environment(folder, torch, folder), text=True, check=True,
                            capture_output=True).stdout
    found = [line.strip().partition(" => ") for line in listed.splitlines()]
    return [(name, "" if "not found" in path else path.split(" (")[0]) for name, arrow, path in found if arrow]


def pack(build, folder, programs, manifest, torch):
    """Copies programs and shared libraries without their symbols, and what of the system is not on every machine; returns
    their bytes in all."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise Fault(f"expected {folder} to be new, empty or a prebuilt folder")
    shutil.rmtree(folder, ignore_errors=True)
    copies = [(build / name, folder / name) for name in programs]
    copies += [(path, folder / "lib" / path.name) for path in sorted(build.glob("src/**/libattentive*.so*"))]
    for source, target in copies:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if not target.is_symlink():
            subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)
    for _, target in copies:
        for name, path in linked(target, folder, torch):
            if path.startswith(SYSTEM) and not EVERYWHERE.match(name):
                (folder / "lib").mkdir(exist_ok=True)
                shutil.copy2(path, folder / "lib" / name)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if size > MOST_BYTES:
        shutil.rmtree(folder)
        raise Fault(f"expected at most {MOST_BYTES >> 20} MiB, got {size / 2**20:.1f} MiB in {folder}")
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return size


def has_operators(folder):
    return (folder / "lib/libattentive_operators.so").exists()


def make_package(folder, sources, torch, target):
    """Makes the Python package attentive in `target`, of the sources and of the operators in a prebuilt folder."""
    shutil.copytree(sources, target / "attentive", ignore=shutil.ignore_patterns("__pycache__"))
    minor = ".".join(torch_version(torch).split(".")[:2])
    (target / "attentive/_build.py").write_text(f'VERSION = "prebuilt"\nTORCH = "{minor}"\n')
    (target / "attentive/lib").symlink_to(folder / "lib")


def strangers(program, folder, torch):
    """The libraries that a program loads from elsewhere than the folder, LibTorch or every machine, or cannot find."""
    allowed = [os.path.realpath(path) for path in (folder, torch.parent)]
    found = []
    for name, path in linked(program, folder, torch):
        inside = any(os.path.realpath(path).startswith(root + os.sep) for root in allowed)
        if not inside and not (path.startswith(SYSTEM) and EVERYWHERE.match(name)):
            found.append(f"{name} ({path or 'not found'})")
    return found
