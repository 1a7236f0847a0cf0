"""The command `attentive-port`."""

import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import sys

from .options import Options, checked, name_of
from .run import PARTS, run

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
    out = pathlib.Path(arguments.out or options.name)
    work = {"record": arguments.record} if arguments.record else {"options": dataclasses.asdict(options)}
    error, result = run(work, out, force=arguments.force, check=arguments.check, limit=arguments.time_limit)
    if error:
        return _fail(error)
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
    add("--limit", type=int, default=Options.limit, metavar="MIB", help="the largest case.safetensors, %(default)s MiB by default")
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
    settings = dict(_pair(parser, "--set", text) for text in arguments.settings)
    sizes = [dict(_pair(parser, "--size", part) for part in text.split(",")) for text in arguments.sizes]
    if not all(text.isdecimal() for size in sizes for text in size.values()):
        parser.error("--size takes numbers: --size B=2,T=6")
    folder = os.path.basename(os.path.abspath(arguments.out)) if arguments.out else _snake(arguments.class_name)
    options = Options(
        file=os.path.abspath(arguments.file),
        class_name=arguments.class_name,
        name=name_of(folder),
        args=arguments.args,
        inputs=arguments.inputs,
        settings=settings,
        dtypes=[name for name in arguments.dtypes.split(",") if name],
        composed=arguments.composed,
        train=arguments.train,
        loss=arguments.loss,
        clip=arguments.clip,
        limit=arguments.limit,
        command=shlex.join(["attentive-port", *argv]),
    )
    if sizes:
        options.sizes = [{key: int(text) for key, text in size.items()} for size in sizes]
    if problem := checked(options):
        parser.error(problem)
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


def _summary(result, out):
    print(f"wrote {out}: {', '.join(result['files'])}" if out else f"would write {', '.join(result['files'])}")
    for key, title in PARTS.items():
        for item in result.get(key, ()):
            print(f"  {title}: {item}")


if __name__ == "__main__":
    sys.exit(main())
