"""tools/checks/python_env and tools/checks/python_tests, without a network: python_env_test.py ROOT"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])
QUIET = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
# An index that refuses connections immediately, and no index at all.
UNREACHABLE = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "no_proxy": "127.0.0.1"}
NONE = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
# A module venv that copies an environment, because each one made anew takes seconds: pip is unpacked and compiled.
COPYING_VENV = "import shutil, sys\nshutil.copytree({!r}, sys.argv[1], symlinks=True)\n"
CTEST = '#!/bin/sh\necho "ctest $* with $ATTENTIVE_PYTHON"\nfor log; do :; done\necho "$RESULT" > "$log"\n'


def tree_in(folder, requirements):
    tree = Path(folder).resolve()
    (tree / "tools/checks").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "build/dev").mkdir(parents=True)
    for tool in ("python_env", "python_tests"):
        shutil.copy(ROOT / "tools/checks" / tool, tree / "tools/checks")
    (tree / "tools/checks/python_requirements.txt").write_text(requirements)
    (tree / "bin/ctest").write_text(CTEST)
    (tree / "bin/ctest").chmod(0o755)
    return tree


def copy_environments(tree, environment):
    """From now on, the tools in this tree get copies of an environment."""
    (tree / "modules").mkdir()
    (tree / "modules/venv.py").write_text(COPYING_VENV.format(str(environment)))


def start(tree, tool, environment, **more):
    path = f"{tree}/bin:{QUIET['PATH']}"
    if (tree / "modules").exists():
        more["PYTHONPATH"] = f"{tree}/modules"
    return subprocess.Popen([tree / "tools/checks" / tool], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**QUIET, "PATH": path, "XDG_CACHE_HOME": f"{tree}/cache", **environment, **more})


def run(*arguments, **more):
    process = start(*arguments, **more)
    out, errors = process.communicate()
    return process.returncode, out, errors


def check_unreachable(tree):
    status, out, errors = run(tree, "python_env", UNREACHABLE)
    assert (status, out) == (3, ""), (status, out, errors)
    assert "pip cannot reach its package index" in errors, errors
    assert [path.suffix for path in (tree / "cache/attentive").iterdir()] == [".lock"]
    status, out, errors = run(tree, "python_tests", UNREACHABLE)
    assert status == 0 and out.startswith("SKIPPED: all tests that need Python's PyTorch") and "ctest" not in out, (out, errors)


def check_refused(tree):
    for tool in ("python_env", "python_tests"):
        status, out, errors = run(tree, tool, NONE)
        assert (status, out) == (1, ""), (tool, status, out, errors)
        assert "pip failed" in errors and "No matching distribution found for attentive-no-such-package" in errors, errors


def check_installed(tree, keep):
    """The first environment is one that Python makes, and is kept."""
    both = [start(tree, "python_env", NONE) for _ in range(2)]
    results = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert sum("installing" in errors for _, errors in results) == 1, results
    (path,) = {out.strip() for out, _ in results}
    shutil.copytree(Path(path).parent.parent, keep, symlinks=True)
    copy_environments(tree, keep)
    assert Path(path).is_relative_to(tree / "cache/attentive"), path
    status, out, errors = run(tree, "python_env", UNREACHABLE)
    assert (status, out.strip(), errors) == (0, path, ""), (status, out, errors)
    status, out, errors = run(tree, "python_tests", NONE, RESULT="1/1 Test #1: fresh_parity ... Passed")
    assert status == 0 and "-L ^python$ --no-tests=error" in out and out.rstrip().endswith(f"with {path}"), (status, out, errors)
    status, _, errors = run(tree, "python_tests", NONE, RESULT="1/1 Test #1: fresh_parity ...***Skipped")
    assert status == 1 and "yet these were skipped" in errors, (status, errors)
    # A comment changes no environment.
    (tree / "tools/checks/python_requirements.txt").write_text("# Nothing at all.\n")
    status, out, errors = run(tree, "python_env", UNREACHABLE)
    assert (status, out.strip(), errors) == (0, path, ""), (status, out, errors)
    # An interrupted install is repeated.
    (Path(path).parent.parent / "complete").unlink()
    status, out, errors = run(tree, "python_env", NONE)
    assert status == 0 and out.strip() == path and "installing" in errors, (status, out, errors)


with tempfile.TemporaryDirectory() as folder:
    environment = Path(folder).resolve() / "environment"
    check_installed(tree_in(f"{folder}/installed", "# nothing\n"), environment)
    for check in (check_unreachable, check_refused):
        tree = tree_in(f"{folder}/{check.__name__}", "attentive-no-such-package\n")
        copy_environments(tree, environment)
        check(tree)
print("tools/checks/python_env: all as expected")
