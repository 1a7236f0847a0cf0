"""Runs the user's code in a child process, and moves what that wrote into place."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from .options import Options

PARTS = {  # of a result, as the summary names them
    "recognised": "became attention()",
    "composed": "stayed as written",
    "never_ran": "never ran",
    "unseeded": "no seed gives",
    "notes": "note",
    "left_out": "left out",
}


def run(work, out, *, force=False, check=False, limit=None):
    """Does `work`, {"options": ...} or {"record": a command}, and writes the folder `out` unless it only checks.

    Returns (why it failed, None) or (None, what was found).
    """
    out = pathlib.Path(out).absolute()
    if out.exists() and not check and not (force and out.is_dir()):
        return f"{out} exists; --force replaces a folder", None
    home = None if check else out.parent
    if home is not None and not home.is_dir():
        return f"the folder {home} does not exist", None
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=home) as scratch:
        made = pathlib.Path(scratch) / "made"
        made.mkdir()
        error, result = _in_child(work, made, limit)
        if not error and not check:
            try:
                _move(made, out)
            except OSError as problem:
                error = f"{out} could not be written: {problem}"
    return (error, None) if error else (None, result)


def _in_child(work, folder, limit):
    """Runs `_child` in a process of its own: (why it failed, None) or (None, its result)."""
    limit = limit or (None if "record" in work else 300)
    result = folder.parent / "result.json"
    top = str(pathlib.Path(__file__).resolve().parents[__package__.count(".") + 1])
    path = [top]  # instead of the current folder, whose files would be executed wholly when they are imported
    if "record" in work:
        path.insert(0, os.path.dirname(os.path.abspath(work["record"][0])))
    code = f"import sys; sys.path[:1] = {path!r}; from {__package__}.run import _child; _child({str(folder)!r}, {str(result)!r})"
    output = None if "record" in work else subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=output, stderr=output, text=True, start_new_session=True
    )
    try:
        process.communicate(json.dumps(work), timeout=limit)
    except subprocess.TimeoutExpired:
        return f"not finished after {limit:g} s; give smaller sizes or a longer --time-limit", None
    finally:
        if process.poll() is None:  # the limit, or an interrupt from the keyboard
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode < 0:
        return f"the process that ran the code was killed ({signal.Signals(-process.returncode).name})", None
    if not result.exists():
        return f"the process that ran the code ended with status {process.returncode} and no result", None
    answer = json.loads(result.read_text(encoding="utf-8"))
    return answer.get("error"), answer


def _child(folder, result):
    """Runs in the child: executes the user's code and leaves a result, or why there is none."""
    work = json.loads(sys.stdin.read())
    try:
        if "record" in work:
            from . import program

            answer = program.record(work["record"], folder)
        else:
            from . import port

            translation = port.build(Options(**work["options"]), folder)
            answer = {part: [str(item) for item in getattr(translation, part)] for part in PARTS if part != "left_out"}
        answer["files"] = sorted(os.listdir(folder))
    except BaseException as error:
        from .load import described

        answer = {"error": described(error)}
    pathlib.Path(result).write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads of the user's code do not keep the process


def _move(made, out):
    """Puts a folder where it belongs, in one step also where there is one already."""
    if not out.exists():
        made.rename(out)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None or exchange(-100, os.fsencode(made), -100, os.fsencode(out), 2) != 0:  # AT_FDCWD, RENAME_EXCHANGE
        old = made.with_name("old")
        out.rename(old)
        made.rename(out)
