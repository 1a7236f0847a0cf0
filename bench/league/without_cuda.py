"""Lets a PyTorch that was built for CUDA be imported without CUDA's libraries, which are larger than itself.

In their place stand libraries of their names without contents, and one library with all functions that PyTorch asks of
them. These return "no device", so PyTorch finds no GPU.
"""

import re
import subprocess

FUNCTIONS = "libwithout_cuda.so"
NO_DEVICE = 100  # cudaErrorNoDevice
CUDA = "cu|nv|nccl"  # how the names of its libraries and functions begin
LEFT_OUT = re.compile(r"Requires-Dist: (nvidia|cuda|triton)\b")


def without_packages(metadata):
    """The text of a wheel's METADATA without its need for CUDA's packages."""
    return "".join(line for line in metadata.splitlines(keepends=True) if not LEFT_OUT.match(line))


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, text=True, capture_output=True).stdout


def symbols(libraries, kind):
    """The names of functions that the libraries define or lack, without their versions."""
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", f"--{kind}-only", *libraries).splitlines() if " " in line}


def link(folder, name, source, *options):
    done = subprocess.run(["g++", "-shared", "-x", "c++", "-", "-x", "none", "-Wl,-soname," + name, "-Wl,-rpath,$ORIGIN", *options, "-o",
                           folder / name], input=source, text=True, capture_output=True)
    if done.returncode != 0:
        raise OSError(f"g++ cannot make {name}: {done.stderr.strip()}")


def function(name):
    """A function in C++ that returns the error; as text, where the name is that of a text."""
    kind, value = ("const char*", '"no CUDA device"') if name.endswith(("String", "Name")) else ("int", NO_DEVICE)
    return f'extern "C" {kind} {name}() {{ return {value}; }}\n'


def stand_in(folder):
    """Makes the libraries of CUDA that those of `folder` need, since the machine's own may be others."""
    libraries = [path for path in folder.glob("*.so*") if path.is_file()]
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", *libraries)))
    missing = sorted(name for name in needed if re.match(f"lib({CUDA})", name) and not (folder / name).exists())
    # The loader ends a program that finds a function without a version in the library that it was linked with, so
    # that all functions are in another one.
    lacking = sorted(name for name in symbols(libraries, "undefined") - symbols(libraries, "defined")
                     if re.match(f"_*({CUDA})", name))
    link(folder, FUNCTIONS, "".join(map(function, lacking)))
    for name in missing:
        link(folder, name, "", "-Wl,--no-as-needed", f"-L{folder}", f"-l:{FUNCTIONS}")


def separate(site):
    """Makes the PyTorch in the folder `site` independent of CUDA. Raises OSError if a library cannot be made."""
    metadata = next(site.glob("torch-*.dist-info")) / "METADATA"
    metadata.write_text(without_packages(metadata.read_text(encoding="utf-8")), encoding="utf-8")
    stand_in(site / "torch/lib")
