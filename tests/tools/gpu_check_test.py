"""tools/gpu_check where there is no GPU, and its report where every program fails: gpu_check_test.py ROOT"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])


def run(path, *arguments):
    return subprocess.run([sys.executable, str(ROOT / "tools/gpu_check"), *arguments], text=True, capture_output=True,
                          env={**os.environ, "PATH": str(path)})


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    report = folder / "report.md"
    options = ["--report", str(report), "--build", str(folder / "build")]

    for why, answer in (("no nvidia-smi", None), ("a driver without a GPU", "exit 0\n"), ("no driver", "exit 9\n")):
        if answer:
            script(folder / "nvidia-smi", answer)
        done = run(folder, *options)
        assert done.returncode == 2, f"{why}: {done}"
        assert done.stderr.startswith("gpu_check: no GPU") and done.stderr.count("\n") == 1, f"{why}: {done}"
        assert done.stdout == "" and not report.exists() and not (folder / "build").exists(), f"{why}: {done}"

    script(folder / "nvidia-smi", "echo 'A card, 1 MiB, 1.0, 9.0'\n")
    for tool in ("ninja", "g++"):
        script(folder / tool, "exit 0\n")
    script(folder / "cmake", "echo '-- attentive: LibTorch of a test'; echo 'why | it failed'; exit 1\n")
    done = run(folder, *options)
    text = report.read_text()
    assert done.returncode == 1, done
    for part in ("* GPU: A card", "* attentive: LibTorch of a test", "| configure | **failed** (status 1) |", "why | it failed",
                 "| build | not run: not configured | – |", "| notebooks | not run: not built | – |"):
        assert part in text, f"{part!r} is not in\n{text}"

    # A complete build without programs: each step fails by itself, and the others still run.
    script(folder / "cmake", "exit 0\n")
    (folder / "build").mkdir(exist_ok=True)
    done = run(folder, *options)
    text = report.read_text()
    assert done.returncode == 1 and "| build | passed |" in text, text
    assert text.count("**failed** (status 127)") >= 12 and "not run" not in text, text
    assert "| distributed: [cuda], two GPUs | skipped: needs two GPUs, this machine has 1 | – |" in text, text

    # With two GPUs, the step runs if there is NCCL, and is skipped otherwise.
    script(folder / "nvidia-smi", "echo 'A card, 1 MiB, 1.0, 9.0'; echo 'A card, 1 MiB, 1.0, 9.0'\n")
    for said, outcome in (("LibTorch of a test", "skipped: the programs are built without NCCL"),
                          ("no training in several processes: it is old", "skipped: the component distributed is not built"),
                          ("NCCL between GPUs, by nccl.h", "**failed** (status 127)")):
        script(folder / "cmake", f"echo '-- attentive: {said}'\n")
        run(folder, *options)
        assert f"| distributed: [cuda], two GPUs | {outcome} |" in report.read_text(), (said, report.read_text())
    script(folder / "cmake", "exit 0\n")
    named = set(re.findall(r"^\| (\w+): \[cuda\]", report.read_text(), re.M))
    defined = set(re.findall(r"attentive_test\((\w+)_test ", (ROOT / "tests/CMakeLists.txt").read_text()))
    assert len(named) == 9 and named <= defined, (named, defined)

    # A folder of programs that is made here and run elsewhere.
    sys.path.insert(0, str(ROOT / "tools/users"))
    sys.dont_write_bytecode = True
    import gpu_prebuilt

    def fault_of(function, *arguments):
        try:
            function(*arguments)
        except gpu_prebuilt.Fault as fault:
            return str(fault)
        raise AssertionError(f"{function.__name__} refused nothing")

    torch = folder / "site-packages/torch"
    (torch / "lib").mkdir(parents=True)
    assert "expected a LibTorch" in fault_of(gpu_prebuilt.torch_version, torch)
    (torch / "version.py").write_text("from typing import Optional\n__version__ = '2.11.0+cu130'\n")
    assert gpu_prebuilt.torch_version(torch) == "2.11.0"
    gpu_prebuilt.check_torch({"torch": "2.11.1"}, torch)
    assert "expected a LibTorch 2.7" in fault_of(gpu_prebuilt.check_torch, {"torch": "2.7.0"}, torch)

    built, packed = folder / "built", folder / "packed"
    for name in ("tests/some_test", "src/libattentive.so.0"):
        (built / name).parent.mkdir(parents=True)
        shutil.copy("/bin/true", built / name)
    packed.mkdir()
    (packed / "diary").write_text("mine")
    assert "expected" in fault_of(gpu_prebuilt.pack, built, packed, ["tests/some_test"], {"torch": "2.11.0"}, torch)
    assert (packed / "diary").exists()
    (packed / "diary").unlink()
    size = gpu_prebuilt.pack(built, packed, ["tests/some_test"], {"torch": "2.11.0", "made": ["on a test's machine"]}, torch)
    assert sorted(path.name for path in packed.rglob("*") if path.is_file()) == [
        "libattentive.so.0", "prebuilt.json", "some_test"], size
    assert gpu_prebuilt.strangers(packed / "tests/some_test", packed, torch) == []
    # A system library that not every machine has is packed with the programs; without it, the check reports
    # it.
    everywhere, gpu_prebuilt.EVERYWHERE = gpu_prebuilt.EVERYWHERE, re.compile("ld-linux")
    assert [name.split()[0] for name in gpu_prebuilt.strangers(packed / "tests/some_test", packed, torch)] == ["libc.so.6"]
    gpu_prebuilt.pack(built, packed, ["tests/some_test"], {"torch": "2.11.0"}, torch)
    assert (packed / "lib/libc.so.6").is_file() and gpu_prebuilt.strangers(packed / "tests/some_test", packed, torch) == []
    gpu_prebuilt.EVERYWHERE = everywhere
    gpu_prebuilt.pack(built, packed, ["tests/some_test"], {"torch": "2.11.0"}, torch)
    assert not (packed / "lib/libc.so.6").exists()
    most, gpu_prebuilt.MOST_BYTES = gpu_prebuilt.MOST_BYTES, size - 1
    assert "expected at most" in fault_of(gpu_prebuilt.pack, built, packed, ["tests/some_test"], {"torch": "2.11.0"}, torch)
    gpu_prebuilt.MOST_BYTES = most

    prebuilt = ["--report", str(report), "--torch", str(torch), "--prebuilt"]
    done = run(folder, *prebuilt, str(folder / "nowhere"))
    assert done.returncode == 1 and "make the folder on a machine with nvcc" in done.stderr, done
    gpu_prebuilt.pack(built, packed, ["tests/some_test"], {"torch": "2.11.0", "made": ["on a test's machine"]}, torch)
    (packed / "apps").mkdir()
    script(packed / "apps/attentive-notebooks", 'echo "libraries $LD_LIBRARY_PATH, tests of $ATTENTIVE_SOURCE_DIR"; exit 1\n')
    done = run(folder, *prebuilt, str(packed))
    text = report.read_text()
    for part in ("* built elsewhere: on a test's machine", f"libraries {packed}/lib:{torch}/lib, tests of {ROOT}",
                 "| notebooks | **failed** (status 1) |", "| parity cases | **failed** (status 127) |"):
        assert part in text, f"{part!r} is not in\n{text}"
    assert "configure" not in text and done.returncode == 1, text
    assert re.search(r"^\| Python: calls on the GPU \| skipped: (this Python has no|the folder holds no operators)", text, re.M), text

    # The Python package of a prebuilt folder.
    assert not gpu_prebuilt.has_operators(packed)
    shutil.copy("/bin/true", packed / "lib/libattentive_operators.so")
    assert gpu_prebuilt.has_operators(packed)
    gpu_prebuilt.make_package(packed, ROOT / "python/attentive", torch, folder / "package")
    assert (folder / "package/attentive/_build.py").read_text().endswith('TORCH = "2.11"\n')
    assert (folder / "package/attentive/lib/libattentive_operators.so").is_file()
    assert (folder / "package/attentive/_library.py").is_file()

    # A program that never ends is stopped, with its children, and the steps left without time are reported.
    script(packed / "apps/attentive-notebooks", 'echo begun; /bin/sleep 600 & wait\n')
    for minutes in ("0.05", "0.5", "5"):  # until this machine gets as far as that program
        done = run(folder, *prebuilt, str(packed), "--minutes", minutes)
        text = report.read_text()
        if "begun" in text:
            break
    assert done.returncode == 1, done
    for part in ("| notebooks | **stopped** after ", "begun", "| training, autocast none | not run: no time left | – |"):
        assert part in text, f"{part!r} is not in\n{text}"
print("gpu_check: all as expected")
