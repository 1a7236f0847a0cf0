"""The command `attentive-port`: runs the translation in a child process and moves what it wrote into place."""

import argparse
import ast
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from .options import Options

_HELP = """
Translates a PyTorch class of a notebook or file into C++ for LibTorch, with a test that compares both.

The tool EXECUTES the file's code with your rights: its imports, definitions and simple assignments, the class's constructor
and its forward. It never executes other statements of the top level. Port only what you would run.
"""

_EXAMPLES = """
examples:
  integers       attentive-port my.ipynb MyAttention --args "64, 4" --inputs "x=randn(B, T, 64)" --out my_attention
  a mask         --inputs "x=randn(B, T, 64), mask=ones(T, T).tril()"     (given again, --inputs runs other branches too)
  a dtype        --args "64, 4, dtype=torch.bfloat16"
  a config       --args "GPTConfig(n_embd=64, n_head=4)"
  training       --train "AdamW(lr=1e-3, weight_decay=0.01)" --clip 1.0 --loss "y.square().mean()"
  a program      attentive-port --out cases --record train.py --epochs 1   (a parity case for each of its attention calls)

Expressions see the names of the file, torch's functions, B and T. In --loss, y is what forward returns.
"""

_PARTS = {  # of a result, as the summary names them
    "recognised": "became attention()",
    "composed": "stayed as written",
    "never_ran": "never ran",
    "unseeded": "no seed gives",
    "notes": "note",
    "left_out": "left out",
}


def main(argv=None):
    """Runs the command; returns its exit status: 0, 1 after one line on stderr, or 2 for a wrong command line."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
        options = None if arguments.record else _options(parser, arguments, argv)
        if arguments.record and not arguments.out:
            parser.error("--record needs --out, the folder for the cases")
    except SystemExit as end:
        return end.code or 0
    out = pathlib.Path(arguments.out or options.name).absolute()
    if out.exists() and not arguments.check and not (arguments.force and out.is_dir()):
        return _fail(f"{out} exists; --force replaces a folder")
    home = None if arguments.check else out.parent
    if home is not None and not home.is_dir():
        return _fail(f"the folder {home} does not exist")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=home) as scratch:
        made = pathlib.Path(scratch) / "made"
        made.mkdir()
        work = {"record": arguments.record} if arguments.record else {"options": dataclasses.asdict(options)}
        error, result = _in_child(work, made, arguments.time_limit)
        if error:
            return _fail(error)
        if not arguments.check:
            try:
                _move(made, out)
            except OSError as problem:
                return _fail(f"{out} could not be written: {problem}")
        _summary(result, None if arguments.check else arguments.out)
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="attentive-port", description=_HELP, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="a .py or .ipynb")
    add("class_name", nargs="?", metavar="CLASS", help="a class of it that is derived from nn.Module")
    add("--args", default="", metavar="EXPR", help="the constructor's arguments")
    add("--inputs", action="append", default=[], metavar="EXPR", help="forward's arguments; may be given several times")
    add("--out", metavar="FOLDER", help="the folder to write")
    add("--force", action="store_true", help="replace the folder if it exists, with all that is in it")
    add("--check", action="store_true", help="do everything, write nothing")
    add("--composed", action="store_true", help="keep the operations as written, without attention()")
    add("--train", metavar="OPTIMIZER", help="also write train.cpp: AdamW, Adam or SGD with its options")
    add("--loss", metavar="EXPR", help="the loss of --train; y is what forward returns; default: its mean square")
    add("--clip", type=float, metavar="X", help="the largest norm of the gradients in --train")
    add("--set", action="append", default=[], dest="settings", metavar="NAME=EXPR", help="the value of a name of the file")
    add("--dtypes", default="", metavar="LIST", help="further runs: float64,bfloat16,autocast")
    add("--size", action="append", default=[], dest="sizes", metavar="B=2,T=6", help="sizes to run; default: B=2,T=6 and B=3,T=9")
    add("--time-limit", type=float, metavar="SECONDS", help="default: 300; none with --record")
    add("--record", nargs=argparse.REMAINDER, help="a Python program and its arguments: write a case for each attention call")
    return parser


def _options(parser, arguments, argv):
    """The checked options; ends with status 2 if they are wrong."""
    if not arguments.class_name:
        parser.error("FILE and CLASS are needed")
    if not re.search(r"\.(py|ipynb)$", arguments.file) or not os.path.isfile(arguments.file):
        parser.error(f"{arguments.file} is not a .py or .ipynb that is there")
    if not (arguments.out or arguments.check):
        parser.error("--out is needed, or --check")
    if not arguments.inputs:
        parser.error('--inputs is needed, such as --inputs "x=randn(B, T, 64)"')
    calls = [("--args", arguments.args), *(("--inputs", text) for text in arguments.inputs)]
    settings = dict(_pair(parser, "--set", text) for text in arguments.settings)
    for what, text in [*((what, f"f({text}\n)") for what, text in calls), *settings.items(), ("--loss", arguments.loss or "0")]:
        try:
            ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            parser.error(f"{what}: {error.msg}: {text.removeprefix('f(').removesuffix(chr(10) + ')')}")
    sizes = [dict(_pair(parser, "--size", part) for part in text.split(",")) for text in arguments.sizes]
    if not all(text.isdecimal() for size in sizes for text in size.values()):
        parser.error("--size takes numbers: --size B=2,T=6")
    dtypes = [name for name in arguments.dtypes.split(",") if name]
    if not set(dtypes) <= {"float64", "bfloat16", "autocast"}:
        parser.error("--dtypes takes float64, bfloat16 and autocast")
    if (arguments.loss or arguments.clip is not None) and not arguments.train:
        parser.error("--loss and --clip belong to --train")
    if arguments.train:
        from .case import optimizer
        from .kinds import Refusal

        try:
            optimizer(arguments.train)
        except Refusal as error:
            parser.error(f"--train: {error}")
    folder = os.path.basename(os.path.abspath(arguments.out)) if arguments.out else _snake(arguments.class_name)
    name = re.sub(r"\W", "_", folder)
    options = Options(
        file=os.path.abspath(arguments.file),
        class_name=arguments.class_name,
        name=name if name[0].isalpha() else f"port_{name}",
        args=arguments.args,
        inputs=arguments.inputs,
        settings=settings,
        dtypes=dtypes,
        composed=arguments.composed,
        train=arguments.train,
        loss=arguments.loss,
        clip=arguments.clip,
        command=shlex.join(["attentive-port", *argv]),
    )
    if sizes:
        options.sizes = [{key: int(text) for key, text in size.items()} for size in sizes]
    return options


def _pair(parser, what, text):
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier() and value.strip()):
        parser.error(f"{what} takes NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _fail(why):
    print("attentive-port: " + " ".join(str(why).split()), file=sys.stderr)
    return 1


def _in_child(work, folder, limit):
    """Runs `_child` in a process of its own: (why it failed, None) or (None, its result)."""
    limit = limit or (None if "record" in work else 300)
    result = folder.parent / "result.json"
    top = str(pathlib.Path(__file__).resolve().parents[__package__.count(".") + 1])
    path = [top]  # instead of the current folder, whose files would be executed wholly when they are imported
    if "record" in work:
        path.insert(0, os.path.dirname(os.path.abspath(work["record"][0])))
    code = f"import sys; sys.path[:1] = {path!r}; from {__package__}.cli import _child; _child({str(folder)!r}, {str(result)!r})"
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
            answer = {part: [str(item) for item in getattr(translation, part)] for part in _PARTS if part != "left_out"}
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


def _summary(result, out):
    print(f"wrote {out}: {', '.join(result['files'])}" if out else f"would write {', '.join(result['files'])}")
    for key, title in _PARTS.items():
        for item in result.get(key, ()):
            print(f"  {title}: {item}")


if __name__ == "__main__":
    sys.exit(main())
