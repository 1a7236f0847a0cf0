"""Computes in Python what the C++ test compares, and writes it to one safetensors file."""

import ast
import collections
import contextlib
import dataclasses
import math

import torch

from .attentive_case import save_safetensors
from .kinds import Refusal, Tuple, promoted

SEED, RUN_SEED, STEPS = 123, 7, 20
OPTIMIZERS = {
    "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "amsgrad": False},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False},
    "SGD": {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
}


@dataclasses.dataclass
class Training:
    """`loss(module, *inputs)` is a scalar; `spec` an optimizer such as "AdamW(lr=1e-3, weight_decay=0.01)"."""

    loss: object
    inputs: list
    spec: str
    clip: float | None = None


def optimizer(spec):
    """Name and options of an optimizer that C++ has too."""
    try:
        node = ast.parse(spec.strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        name = ast.unparse(call.func).split(".")[-1]
        options = {key.arg: ast.literal_eval(key.value) for key in call.keywords}
        if call.args or not set(options) <= set(OPTIMIZERS[name]):
            raise KeyError(name)
    except (SyntaxError, ValueError, KeyError) as error:
        known = "; ".join(f"{name}({', '.join(defaults)})" for name, defaults in OPTIMIZERS.items())
        raise Refusal(f"the optimizer {spec!r} is not known; options have names and numbers: {known}") from error
    return name, {**OPTIMIZERS[name], **options}


def write(path, make, calls, runs, unseeded, training, limit):
    """Writes the case of a module: `make()` builds it, `calls[run.call](module, *run.inputs)` is one run.

    Names of tensors: parameter.N and buffer.N are the first state, state.N a second name of a shared one; for each run
    R/input.I, R/output.I, R/grad.I of an input, R/grad.N of a parameter, and R/buffer.N where a call changed it.
    `limit` is in MiB.
    """
    contents = {}
    first = _first_state(make, unseeded)
    module = _made(make, first)
    hidden = not_persistent(module)
    parameters, buffers = dict(module.named_parameters()), {n: b for n, b in module.named_buffers() if n not in hidden}
    for kind, tensors in (("parameter", parameters), ("buffer", buffers)):
        for name in tensors:
            _put(contents, f"{kind}.{name}", first[name])
    state = module.state_dict()
    for name in state:
        if name not in parameters and name not in buffers:
            _put(contents, f"state.{name}", first[name])
    for run in runs:
        contents.update(_run(run, make, calls[run.call], first))
    if training:
        contents["train/losses"] = torch.tensor(losses(make, first, training), dtype=torch.float64)
        for at, tensor in enumerate(training.inputs):
            _put(contents, f"train/input.{at}", tensor)
    _check_size(contents, limit)
    lists = {"parameters": parameters, "buffers": buffers, "state": state}
    metadata = {key: "\n".join(names) for key, names in lists.items()}
    metadata.update(torch=torch.__version__, writer="attentive-port 1")
    save_safetensors(str(path), contents, metadata)


def not_persistent(module):
    """Names of the buffers that the state dict leaves out."""
    return [name for name, _ in module.named_buffers() if name not in module.state_dict()]


def losses(make, first, training):
    """The losses of the first steps in train mode, on one batch."""
    module = _made(make, first)
    module.train()
    name, options = optimizer(training.spec)
    optimize = getattr(torch.optim, name)(module.parameters(), **options)
    values = []
    torch.manual_seed(RUN_SEED)
    for _ in range(STEPS):
        loss = training.loss(module, *(tensor.clone() for tensor in training.inputs))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise Refusal("the loss is not one number; give --loss an expression that is, such as 'y.square().mean()'")
        optimize.zero_grad()
        loss.backward()
        if training.clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), training.clip)
        optimize.step()
        values.append(loss.item())
    if not all(math.isfinite(value) for value in values):
        raise Refusal("the loss is not finite in twenty steps; choose a smaller learning rate or other --inputs")
    return values


def flatten(value):
    """The tensors of a result in order; Nones and numbers are skipped."""
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, dict):
        value = vars(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in flatten(item)]


def held(call, kind):
    """A call whose numbers are tensors where other calls return tensors, as in C++."""

    def whole(value, kind):
        if isinstance(kind, Tuple) and isinstance(value, tuple):
            return tuple(map(whole, value, kind.items))
        return torch.tensor(value) if promoted(kind) != kind and isinstance(value, bool | int | float) else value

    return lambda *arguments: whole(call(*arguments), kind)


def _all_names(module):
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _first_state(make, unseeded):
    """The weights after the seed, by every name; those that no seed gives are small numbers."""
    torch.manual_seed(SEED)
    first = {name: tensor.detach().clone() for name, tensor in _all_names(make())}
    generator = torch.Generator().manual_seed(SEED)
    for name in unseeded:
        if first[name].is_floating_point():
            first[name] = (0.1 * torch.randn(first[name].shape, generator=generator)).to(first[name].dtype)
    return first


def _made(make, first):
    torch.manual_seed(SEED)
    module = make()
    with torch.no_grad():
        for name, tensor in _all_names(module):
            tensor.copy_(first[name])
    return module


def _run(run, make, call, first):
    """One run's tensors; it is computed twice, to see that it can be repeated."""
    try:
        found, again = (_once(run, make, call, first, True) for _ in range(2))
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        found, again = (_once(run, make, call, first, False) for _ in range(2))  # forward changes an input in place
    for name, tensor in found.items():
        other = again.get(name, tensor.new_empty(0))
        if not _same(tensor, other):
            raise Refusal(f"forward is not repeatable: {name} differs between two runs from the same seed")
    return found


def _same(one, other):
    """Whether two tensors differ by no more than the rounding of sums in another order, relative to the largest number.

    A matrix product of the same numbers may round differently in another place of memory."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    largest = one[one.isfinite()].abs().max().item() if one.isfinite().any() else 0.0
    bound = max(1e-5, 2 * torch.finfo(one.dtype).eps) * largest + 1e-6
    return torch.allclose(one.double(), other.double(), 0.0, bound, equal_nan=True)


def _once(run, make, call, first, input_gradients):
    dtype, contents = getattr(torch, run.dtype), {}
    module = _made(make, first)
    module.train(run.train)  # an own train() may return nothing
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point() and dtype != torch.float32:
            tensor.data = tensor.data.to(dtype)
    inputs = []
    for at, tensor in enumerate(run.inputs):
        leaf = tensor.detach().clone(memory_format=torch.contiguous_format)
        leaf = leaf.to(dtype) if leaf.is_floating_point() and dtype != torch.float32 else leaf
        _put(contents, f"{run.name}/input.{at}", leaf.clone())
        inputs.append(leaf.requires_grad_(input_gradients and leaf.is_floating_point()))
    autocast = torch.autocast("cpu", torch.bfloat16) if run.autocast else contextlib.nullcontext()
    with autocast:
        torch.manual_seed(RUN_SEED)
        outputs = flatten(call(module, *inputs))
    for at, tensor in enumerate(outputs):
        _put(contents, f"{run.name}/output.{at}", tensor)
    outputs = [torch.view_as_real(o) if o.is_complex() else o for o in outputs if o.requires_grad]
    if outputs:
        weights = (torch.arange(o.numel(), dtype=torch.float64).cos().view(o.shape).to(o.dtype) for o in outputs)
        sum((o * weight).sum() for o, weight in zip(outputs, weights, strict=True)).backward()
    leaves = [*((str(at), leaf) for at, leaf in enumerate(inputs)), *module.named_parameters()]
    for name, leaf in leaves:
        if leaf.grad is not None:
            _put(contents, f"{run.name}/grad.{name}", leaf.grad)
    for name, buffer in module.named_buffers():
        if name not in module.state_dict():
            continue
        before = first.get(name)
        if before is None or before.shape != buffer.shape or not torch.equal(before.to(buffer.dtype), buffer):
            _put(contents, f"{run.name}/buffer.{name}", buffer)
    return contents


def _put(contents, name, tensor):
    """Complex numbers are stored as pairs, under a longer name."""
    tensor = tensor.detach()
    if tensor.is_complex():
        name, tensor = f"{name}:complex", torch.view_as_real(tensor.resolve_conj())
    contents[name] = tensor.clone(memory_format=torch.contiguous_format)


def _check_size(contents, limit):
    sizes = collections.Counter()
    for name, tensor in contents.items():
        run, _, rest = name.rpartition("/")
        kind = {"input": "inputs", "output": "outputs", "grad": "gradients"}.get(rest.split(".")[0], "buffers")
        sizes[f"{kind} of the runs" if run else "weights"] += tensor.numel() * tensor.element_size()
    if sum(sizes.values()) > limit * 2**20:
        parts = ", ".join(f"{what} {size / 2**20:.0f} MiB" for what, size in sizes.most_common(3))
        raise Refusal(
            f"the case would hold {sum(sizes.values()) / 2**20:.0f} MiB, more than {limit} ({parts}); "
            "make the module smaller in --args, or B and T with --size B=2,T=4, or allow more with --limit"
        )
