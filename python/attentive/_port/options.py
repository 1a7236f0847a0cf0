"""What a user asked for."""

import ast
import dataclasses
import re


@dataclasses.dataclass
class Options:
    """The command line; `inputs` holds one text for each --inputs, `train` the text of --train."""

    file: str
    class_name: str
    name: str  # of the files and the CMake targets
    args: str = ""
    inputs: list = dataclasses.field(default_factory=list)
    sizes: list = dataclasses.field(default_factory=lambda: [{"B": 2, "T": 6}, {"B": 3, "T": 9}])
    settings: dict = dataclasses.field(default_factory=dict)
    dtypes: list = dataclasses.field(default_factory=list)  # of float64, bfloat16, autocast
    composed: bool = False
    train: str | None = None
    loss: str | None = None
    clip: float | None = None
    limit: int = 64  # of the case, in MiB
    command: str = ""  # as typed, for the README


def checked(options):
    """What is wrong with the texts and the choices, or an empty text."""
    texts = [("--args", f"f({options.args}\n)"), *(("--inputs", f"f({text}\n)") for text in options.inputs)]
    texts += [(f"--set {name}", text) for name, text in options.settings.items()]
    for what, text in [*texts, ("--loss", options.loss or "0")]:
        try:
            ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            return f"{what}: {error.msg}: {text.removeprefix('f(').removesuffix(chr(10) + ')')}"
    if not set(options.dtypes) <= {"float64", "bfloat16", "autocast"}:
        return "--dtypes takes float64, bfloat16 and autocast"
    if (options.loss or options.clip is not None) and not options.train:
        return "--loss and --clip belong to --train"
    if options.train:
        from .case import optimizer
        from .kinds import Refusal

        try:
            optimizer(options.train)
        except Refusal as error:
            return f"--train: {error}"
    return ""


def name_of(folder):
    """The name of the files and CMake targets in a folder."""
    name = re.sub(r"\W", "_", folder)
    return name if name[:1].isalpha() else f"port_{name}"
