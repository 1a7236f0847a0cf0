"""tools/package with cmake and cpack replaced: what it asks of them, what it prints, and that a failure ends it: package_test.py ROOT"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])
CONTENT = "packed"
NAMES = ("attentive-1.deb", "attentive 1.tar.gz")


def run(failing="nothing", *arguments):
    """The finished process and the commands that ran, one a line."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        packages = tree / "build/packages"
        writes = "".join(f"printf {CONTENT} > '{packages}/{name}'\necho 'CPack: - package: {packages}/{name} generated.'\n" for name in NAMES)
        for path, text in (("bin/cmake", ""), ("tools/setup.sh", ""),
                           ("bin/cpack", f"mkdir -p '{packages}/_CPack_Packages'\necho 'CPack: Create package'\n{writes}")):
            (tree / path).parent.mkdir(exist_ok=True)
            (tree / path).write_text(f'#!/bin/sh\nline="$(basename "$0") $*"\necho "$line" >> {tree}/log\n'
                                     f'case "$line" in "{failing}"*) echo "it fails" >&2; exit 3 ;; esac\n{text}')
            (tree / path).chmod(0o755)
        shutil.copy(ROOT / "tools/package", tree / "tools/package")
        (tree / "build/packaged").mkdir(parents=True)
        done = subprocess.run([tree / "tools/package", *arguments], text=True, capture_output=True, cwd="/",
                              env={**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}"})
        left = sorted(path.name for path in packages.glob("*"))
        return done, (tree / "log").read_text().splitlines(), left, str(packages)


done, log, left, packages = run("nothing", "-DATTENTIVE_TORCH_VERSION=2.9.1", "-DBUILD_SHARED_LIBS=ON")
assert done.returncode == 0 and done.stderr == "", done
assert [line.split()[0] for line in log] == ["setup.sh", "cmake", "cmake", "cpack"], log
configure = log[1].split()
for wanted in ("--fresh", "release", "-DATTENTIVE_PACKAGE=ON", "-DCMAKE_INSTALL_PREFIX=/usr", "-DATTENTIVE_CUDA=OFF"):
    assert wanted in configure, (wanted, configure)
assert configure[-2:] == ["-DATTENTIVE_TORCH_VERSION=2.9.1", "-DBUILD_SHARED_LIBS=ON"], configure
digest = hashlib.sha256(CONTENT.encode()).hexdigest()
assert done.stdout.splitlines() == [f"{packages}/{name}: {len(CONTENT)} bytes, sha256 {digest}" for name in NAMES], done.stdout
assert left == sorted(NAMES), left

for failing, count in (("setup.sh", 1), ("cmake --fresh", 2), ("cmake --build", 3), ("cpack", 4)):
    done, log, left, _ = run(failing)
    assert done.returncode != 0 and "it fails" in done.stderr and "sha256" not in done.stdout, (failing, done)
    assert len(log) == count and not left, (failing, log, left)
print("tools/package: all as expected")
