"""tools/exercise: its list, its report with the hint of the page, its answer to bad usage. Builds nothing.

Argument: the source folder.
"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
TOOL = ROOT / "tools/exercise"


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("exercise", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("exercise", loader))
    loader.exec_module(module)
    return module


def run(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True)


def main():
    tool = load()
    folders = tool.folders()
    assert sorted(folders) == list(range(1, 14)), folders
    for number, folder in folders.items():
        files = {file.name for file in folder.iterdir()}
        assert files == {"README.md", "task.h", "exercise.cpp", "check.cpp"}, (folder, files)
        assert (ROOT / f"exercises/solutions/{folder.name}.cpp").is_file(), folder
        assert "GAP" in (folder / "exercise.cpp").read_text(), folder
        page = (folder / "README.md").read_text()
        assert tool.title_of(folder).startswith(f"{number}. "), folder
        assert f"`tools/exercise {number}`" in page, folder
        hints = [tool.hint_of(page, hint) for hint in (1, 2, 3)]
        assert all(hints) and len(set(hints)) == 3 and not tool.hint_of(page, 4), folder

    report = tool.report_of(folders[3], "exercise 3, hint 2: a query\nsees\n")
    assert report.startswith("3. The causal mask before the softmax: not solved yet.\n\na query\nsees\n\nHint 2 ("), report
    assert "exercises/03_mask_before_softmax/README.md" in report and "masked_fill(later, x)" in report, report

    listed = run()
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 13, listed
    assert "exercises/11_own_score" in listed.stdout, listed
    for wrong in (["0"], ["14"], ["three"], ["--solve"]):
        assert run(*wrong).returncode == 2, wrong
    print("tools/exercise: thirteen exercises with three hints each")


main()
