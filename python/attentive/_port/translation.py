"""What the translation hands to the writer of the project: texts of C++, and how to run them."""

import dataclasses


@dataclasses.dataclass
class Run:
    """One recorded call: `inputs` are its distinct tensors in the order of `call`'s parameters, `call` the number of the
    C++ function that runs it (one for each --inputs)."""

    name: str
    call: int
    train: bool
    inputs: list
    sizes: dict
    dtype: str = "float32"  # of module and floating inputs: float32, float64 or bfloat16
    autocast: bool = False  # to bfloat16, on the CPU


@dataclasses.dataclass
class Translation:
    """`header` and `source` hold whole files; `source` may be empty. They define every class and function in namespace `space`.

    `driver` is a header for the programs beside them, which defines in that namespace

        Holder make();                                            // the constructor call of --args, after the seed is set
        std::vector<torch::Tensor> call_0(Holder& module, const std::vector<torch::Tensor>& inputs);   // one per --inputs
        torch::Tensor loss(Holder& module, const std::vector<torch::Tensor>& inputs);                  // with --train, for the first --inputs
    """

    space: str
    holder: str
    header: str
    source: str
    calls: int
    recognised: list  # texts: line and what became attention()
    composed: list  # texts: line and why a softmax stayed as written
    notes: list  # texts: what a reader has to know (arguments dropped, rows that hide every key, ...)
    never_ran: list  # texts: file:line
    unseeded: list  # names of parameters that no seed gives (torch.empty)
    components: list  # of attentive that the code links: attention, ...
    driver: str = ""
    computed: list = dataclasses.field(default_factory=list)  # names of parameters that are tables: numpy's numbers may end otherwise
    files: list = dataclasses.field(default_factory=list)  # that were written
    hidden_rows: bool = False  # whether a mask may hide every key of a row
