"""What a user asked for."""

import dataclasses


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
    command: str = ""  # as typed, for the README
