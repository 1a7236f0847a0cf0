"""The library in a process: one OpenMP runtime, PyTorch's threads, the order of imports, forks, symbols. Each in a new process."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch

import attentive
from attentive import _build, _library

CALL = """
q = torch.randn(1, 8, 512, 64)
y = attentive.attention(q, q, q, causal="bottom_right")
"""


def run(program, **environment):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("imports", ["import attentive, torch", "import torch, attentive", "import torch\nx = torch.ones(9)\nimport attentive"],
                         ids=["before", "after", "after a call"])
def test_one_openmp_runtime(imports):
    """Only PyTorch's own runtime is loaded, wherever the package is imported."""
    found = run(imports + CALL + """
import os
paths = {os.path.realpath(line.split()[-1]) for line in open("/proc/self/maps") if "/" in line}
print("\\n".join(sorted(path for path in paths if "omp" in os.path.basename(path))))
""").splitlines()
    assert len(found) == 1
    assert re.search(r"torch(\.libs|/lib)/libgomp", found[0])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads):
    """The kernel runs on the threads that torch.set_num_threads allows, beside those that are there already."""
    found = run(f"""
import os, torch, attentive
torch.set_num_threads({threads})
before = len(os.listdir("/proc/self/task"))
{CALL}
print(len(os.listdir("/proc/self/task")) - before)
""")
    assert int(found) == threads - 1


FORK = """
import os, torch, attentive
torch.set_num_threads(2)
""" + CALL + """
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    again = attentive.attention(q, q, q, causal="bottom_right")
    os._exit(0 if torch.allclose(again, y, rtol=1e-5, atol=2e-6) else 1)
print(os.waitpid(child, 0)[1])
"""


def test_forked_process():
    """As PyTorch's own operators, a call in a forked process runs on one thread."""
    assert run(FORK) == "0"


def test_forked_workers_of_a_data_loader():
    assert run("""
import torch, attentive
""" + CALL + """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, n):
        return attentive.attention(q, q, q, causal="bottom_right", scale=1.0 / (n + 1))
loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork")
for n, got in enumerate(loader):
    want = attentive.attention(q, q, q, causal="bottom_right", scale=1.0 / (n + 1))
    assert torch.allclose(got[0], want, rtol=1e-5, atol=2e-6)
print(n)
""") == "3"


SCRIPT = """
import torch, attentive
class Attend(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        return torch.ops.attentive.attention(q, k, v, causal="bottom_right", window_left=3)[0]
"""


def test_torchscript(tmp_path):
    """A scripted module, saved and loaded, forward and backward. torch.jit.script reads the source from a file."""
    program = tmp_path / "script.py"
    program.write_text(SCRIPT + f"""
torch.jit.script(Attend()).save({str(tmp_path / "attend.ts")!r})
scripted = torch.jit.load({str(tmp_path / "attend.ts")!r})
q = torch.randn(1, 4, 9, 8, requires_grad=True)
want = attentive.attention(q, q, q, causal="bottom_right", window=(3, -1))
wanted, = torch.autograd.grad(want.square().sum(), q)
for _ in range(4):  # the executor changes its graph during the first calls
    got = scripted(q, q, q)
    assert got.equal(want)
    assert torch.autograd.grad(got.square().sum(), q)[0].allclose(wanted, rtol=1e-5, atol=5e-6)
print("done")
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert done.stdout == "done\n", done.stderr


def test_library_stays():
    """Closing the library leaves it in memory, because PyTorch's dispatcher keeps pointers to its functions."""
    assert run("""
import _ctypes, ctypes, torch, attentive
path = str(attentive._library.FOLDER / "lib/libattentive_operators.so")
for _ in range(3):
    _ctypes.dlclose(ctypes.CDLL(path)._handle)
    _ctypes.dlclose(ctypes.CDLL(path, mode=4)._handle)  # RTLD_NOLOAD
""" + CALL + "print(len(y))") == "1"


def test_symbols():
    """The library shows one function of ours, so it cannot mix with another copy of the package."""
    path = _library.FOLDER / "lib" / "libattentive_operators.so"
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["_ZN9attentive14load_operatorsEv"]


def test_another_torch_is_refused():
    """Before the library is loaded, in one line."""
    _library.check_torch("2.11", "2.11.7+cpu")
    for other in ("2.12.0", "2.1.0", "3.11.0+cu130"):
        with pytest.raises(ImportError) as caught:
            _library.check_torch("2.11", other)
        assert str(caught.value).startswith(f"attentive was built with torch 2.11, but torch {other} is installed: pip install ")
        assert "\n" not in str(caught.value)
    assert run("""
import torch
torch.__version__ = "9.9.0"
try:
    import attentive
except ImportError as error:
    print(error, hasattr(torch.ops.attentive, "attention"))
""").endswith("False")
    assert torch.__version__.startswith(_build.TORCH + ".")


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", attentive.__version__)
    from importlib.metadata import version
    assert version("torch-attentive") == attentive.__version__
