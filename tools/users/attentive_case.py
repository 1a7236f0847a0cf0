"""Writes one parity case: a module's state, one call of it, its results and its gradients, in one safetensors file.

    from attentive_case import write_case
    module = MultiHeadAttention(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
    write_case("mha.safetensors", module, torch.rand(2, 6, 3))

`attentive-parity mha.safetensors` then runs the C++ class of the same name on the same numbers and compares.
This file needs PyTorch and the standard library only, so it can be copied next to any notebook.
The format is described in tests/parity/README.md.
"""

import contextlib
import ctypes
import inspect
import json
import os
import re
import struct
import sys
import tempfile

import torch
import torch.nn.functional as F

__all__ = [
    "DECODER_NAME",
    "ENCODER_NAME",
    "MHA_NAME",
    "SDPA_NAME",
    "RandomForward",
    "dropout_path",
    "options_of",
    "save_safetensors",
    "write_case",
]

SDPA = F.scaled_dot_product_attention
SDPA_NAME = "torch.nn.functional.scaled_dot_product_attention"
MHA_NAME = "torch.nn.MultiheadAttention"
ENCODER_NAME = "torch.nn.TransformerEncoderLayer"
DECODER_NAME = "torch.nn.TransformerDecoderLayer"

# The built-in function has no Python signature to inspect.
SDPA_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class RandomForward(ValueError):
    """Raised if the forward drew random numbers without a forward_seed, so that it could not be repeated."""


def write_case(
    path,
    module,
    *inputs,
    name=None,
    options=None,
    call=None,
    train=None,
    init_seed=None,
    forward_seed=None,
    grads=True,
    grad_output="random",
    expected_dtype=None,
    metadata=None,
    **named_inputs,
):
    """Runs `module(*inputs, **named_inputs)` once and writes everything a second implementation needs to repeat it.

    module          an nn.Module or a function; left exactly as it was (state, .grad, mode, random stream).
    inputs          as in the call. Tensors become input.<argument>; other values join `call`.
    name            the case's `module`; default: the class or function name, `torch.` names in full.
    options         the constructor's keyword arguments; default: read from the module, see options_of.
    call            further non-tensor keyword arguments of the call.
    train           True/False to set the mode for this call; default: the mode the module is in.
    init_seed       states that the weights are those drawn right after torch.manual_seed(init_seed); checked here.
    forward_seed    torch.manual_seed right before the forward; needed where dropout is active.
    grads           also write gradients of sum(output * grad_output). False: the call runs without autograd, here and
                    where the case is repeated.
    grad_output     "random" (fixed values from a private generator), a tensor, or None for plain sum(output).
    expected_dtype  compute results in this wider dtype from the same numbers (an oracle for half precision).
    metadata        further strings for the file's metadata.

    Under torch.autocast the call runs, and will be repeated, under autocast of the same dtype.

    Returns the path. Raises ValueError or TypeError if the call cannot be written as a case, before any file appears.
    """
    if not (isinstance(grad_output, torch.Tensor) or grad_output in ("random", None)):
        raise ValueError(f'write_case: expected grad_output "random", a tensor or None, got {grad_output!r}')
    is_module = isinstance(module, torch.nn.Module)
    name = name or _name_of(module)
    arguments = _bind(module, inputs, named_inputs)
    call = dict(call or {})
    call.update({key: value for key, value in arguments.items() if not isinstance(value, torch.Tensor)})
    call = {key: value for key, value in call.items() if value is not None}
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    if options is None:
        options = options_of(module, name) if is_module else {}

    meta = {"module": name, "options": _json(options, "options"), "call": _json(call, "call")}
    contents = {}
    if is_module:
        state = module.state_dict()
        if init_seed is not None:
            _check_init_seed(module, options, state, init_seed)
            meta["init_seed"] = str(init_seed)
        meta["train"] = "true" if (module.training if train is None else train) else "false"
        contents.update({f"state.{key}": value for key, value in state.items()})
    if forward_seed is not None:
        meta["forward_seed"] = str(forward_seed)
    if not grads:
        meta["grads"] = "false"
    autocast = None if expected_dtype else _autocast_dtype(tensors)
    if autocast is not None:
        meta["autocast"] = str(autocast).removeprefix("torch.")

    absent = _shared_with_query(name, tensors)
    contents.update({f"input.{key}": value for key, value in tensors.items() if key not in absent})
    run = _Run(module, tensors, absent, call, train, forward_seed, expected_dtype, grads, autocast)
    contents["expected.output"] = run.output
    if run.weights is not None:
        contents["expected.weights"] = run.weights
    if run.drew:
        meta["dropout_path"] = dropout_path()
    if grads and run.output.isnan().any():
        meta["gradients"] = "left out: the output holds NaN"
    elif grads:
        gradients, seed_tensor = run.gradients(grad_output)
        if seed_tensor is not None:
            contents["input.grad_output"] = seed_tensor
        contents.update(gradients)
    meta["torch"] = torch.__version__
    meta["writer"] = "attentive_case 1"
    meta.update(metadata or {})
    save_safetensors(path, contents, meta)
    return path


def dropout_path():
    """Which of the two CPU dropout streams this PyTorch draws: "default", "intel_mkl" or "unknown".

    PyTorch hands Bernoulli draws to MKL where the build has it and the processor is an Intel one, so the same
    seed gives two different masks. One known mask tells them apart.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        first_row = torch.nn.functional.dropout(torch.ones(6, 6), 0.5, training=True)[0].tolist()
    rows = {(2, 2, 0, 2, 2, 0): "default", (2, 2, 2, 2, 2, 2): "intel_mkl"}
    return rows.get(tuple(int(value) for value in first_row), "unknown")


def options_of(module, name=None):
    """The constructor's keyword arguments of an attention module, recovered from its parameters and attributes."""
    name = name or _name_of(module)
    reader = _READERS.get(_kind(module, name))
    if reader is None:
        raise ValueError(f"options_of: cannot read the constructor arguments of {name}; pass options={{...}}")
    try:
        return reader(module)
    except AttributeError as error:
        raise ValueError(f"options_of: this {name} is not the class known by that name: {error}") from None


def save_safetensors(path, tensors, metadata):
    """Writes a safetensors file through a temporary file next to it, so that no reader sees an incomplete file."""
    if sys.byteorder != "little":
        raise RuntimeError("save_safetensors: expected a little-endian machine, got a big-endian one")
    # Widest elements first keeps every tensor aligned to its element size without padding between tensors.
    entries = [(key, value.detach().cpu().contiguous()) for key, value in tensors.items()]
    entries.sort(key=lambda entry: (-entry[1].element_size(), entry[0]))
    header = {"__metadata__": dict(sorted(metadata.items()))}
    body = []
    offset = 0
    for key, value in entries:
        if value.dtype not in DTYPES:
            raise TypeError(f"save_safetensors: expected a dtype a case can hold for {key}, got {value.dtype}")
        size = value.numel() * value.element_size()
        header[key] = {
            "dtype": DTYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + size],
        }
        body.append(ctypes.string_at(value.data_ptr(), size) if size else b"")
        offset += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(body))
        os.chmod(temporary, 0o644)  # mkstemp creates it with 0600
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class _Run:
    """One forward on leaf copies of inputs, parameters and buffers, and the gradients of its output."""

    def __init__(self, module, tensors, absent, call, train, forward_seed, dtype, grads, autocast):
        is_module = isinstance(module, torch.nn.Module)
        devices = sorted({value.device.index for value in tensors.values() if value.device.type == "cuda"})
        modes = {part: part.training for part in module.modules()} if is_module else {}
        with torch.inference_mode(False), torch.set_grad_enabled(grads), torch.random.fork_rng(devices=devices):
            self.leaves = {}
            for key, value in tensors.items():
                if key not in absent:
                    # A mask only selects; it gets a gradient only if the caller's own tensor requires one.
                    wants_grad = value.requires_grad or not key.endswith("mask")
                    self.leaves[key] = _leaf(value, dtype, grads and wants_grad)
            arguments = {key: self.leaves[absent.get(key, key)] for key in tensors}
            self.parameters, function = {}, module
            if is_module:
                self.parameters, function = _detached(module, dtype)
            try:
                if is_module and train is not None:
                    module.train(train)
                with _as_autocast(tensors, autocast):
                    if forward_seed is not None:
                        torch.manual_seed(forward_seed)
                    before = _generator_states(devices)
                    result = function(**arguments, **call)
                self.drew = any(not torch.equal(a, b) for a, b in zip(before, _generator_states(devices)))
            finally:
                for part, training in modes.items():
                    part.training = training
        if self.drew and forward_seed is None:
            raise RandomForward("write_case: the forward draws random numbers (dropout); pass forward_seed=")
        if self.drew and devices:
            raise ValueError("write_case: dropout on CUDA cannot be repeated elsewhere; move the module to the CPU")
        self.output, self.weights = _output_and_weights(result)

    def gradients(self, grad_output):
        """The gradients by tensor name, and the grad_output tensor that was used (None for a plain sum)."""
        sources = {f"grad.input.{key}": leaf for key, leaf in self.leaves.items() if leaf.requires_grad}
        sources.update({f"grad.state.{key}": p for key, p in self.parameters.items()})
        if not sources or not self.output.requires_grad:
            return {}, None
        seed_tensor = None
        if isinstance(grad_output, torch.Tensor):
            seed_tensor = grad_output.to(self.output)
        elif grad_output == "random":
            seed_tensor = _fixed_normal(self.output.shape).to(self.output)
        with torch.inference_mode(False), torch.enable_grad():
            loss = self.output.sum() if seed_tensor is None else (self.output * seed_tensor).sum()
            found = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
        return {key: grad for key, grad in zip(sources, found) if grad is not None}, seed_tensor


def _detached(module, dtype):
    """Copies the parameters that need a gradient, and returns them with a function that runs the module on copies
    only.

    The program's own tensors, its hooks on them and its hooks on the module's parts take no part: a hook may count or
    collect, and the call is repeated only for the case.
    """
    copies = {}
    for key, value in (*module.named_parameters(), *module.named_buffers()):
        copies[key] = _leaf(value, dtype, value.requires_grad)
    parameters = {key: copies[key] for key, value in module.named_parameters() if value.requires_grad}

    def function(**arguments):
        with _without_hooks(module):
            return torch.func.functional_call(module, copies, kwargs=arguments)

    return parameters, function


@contextlib.contextmanager
def _without_hooks(module):
    parts = [vars(part) for part in module.modules()] + [vars(torch.nn.modules.module)]
    hooks = [
        (part, name, value)
        for part in parts
        for name, value in part.items()
        if re.fullmatch(r"_(global_)?(forward|backward)\w*_hooks\w*", name) and isinstance(value, dict) and value
    ]
    try:
        for part, name, value in hooks:
            part[name] = type(value)()
        yield
    finally:
        for part, name, value in hooks:
            part[name] = value


def _autocast_dtype(tensors):
    """The dtype to which autocast casts products on the device of the call's tensors; None if it is disabled."""
    device = _autocast_device(tensors)
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _as_autocast(tensors, dtype):
    # Disables the cache of cast weights, which belongs to the program.
    return torch.autocast(_autocast_device(tensors), dtype=dtype, enabled=dtype is not None, cache_enabled=False)


def _autocast_device(tensors):
    device = next((value.device.type for value in tensors.values()), "cpu")
    return device if torch.amp.is_autocast_available(device) else "cpu"


def _leaf(value, dtype, wants_grad):
    leaf = value.detach().clone(memory_format=torch.contiguous_format)
    if not leaf.is_floating_point():
        return leaf
    if dtype is not None:
        leaf = leaf.to(dtype)
    return leaf.requires_grad_(wants_grad)


def _fixed_normal(shape):
    # A separate generator, because the caller's random stream must not change, and two runs must give the
    # same bytes. Steps of 1/32 below 4 are exact in every dtype, so a half-precision case has the same loss.
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (drawn * 32).round().clamp(-127, 127) / 32


def _generator_states(devices):
    return [torch.get_rng_state()] + [torch.cuda.get_rng_state(index) for index in devices]


def _output_and_weights(result):
    if isinstance(result, torch.Tensor):
        return result, None
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.Tensor):
        if result[1] is None or isinstance(result[1], torch.Tensor):
            return result
    raise TypeError(f"write_case: expected a tensor or (output, weights) from the call, got {type(result).__name__}")


def _shared_with_query(name, tensors):
    # In torch.nn.MultiheadAttention self-attention is one leaf given three times; its gradients add up.
    if name != MHA_NAME:
        return {}
    return {key: "query" for key in ("key", "value") if tensors.get(key) is tensors["query"]}


def _name_of(module):
    if module is SDPA:
        return SDPA_NAME
    if not isinstance(module, torch.nn.Module):
        return module.__name__
    kind = type(module)
    return f"torch.nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__


def _bind(module, inputs, named_inputs):
    if module is SDPA:
        if len(inputs) > len(SDPA_ARGUMENTS):
            raise TypeError(f"write_case: expected at most {len(SDPA_ARGUMENTS)} arguments, got {len(inputs)}")
        return {**dict(zip(SDPA_ARGUMENTS, inputs)), **named_inputs}
    function = module.forward if isinstance(module, torch.nn.Module) else module
    signature = inspect.signature(function)
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        raise TypeError("write_case: expected a forward with named arguments, got one that takes *args")
    bound = dict(signature.bind(*inputs, **named_inputs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.update(bound.pop(parameter.name, {}))
    return bound


def _json(values, what):
    try:
        return json.dumps(values, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"write_case: expected numbers, booleans, strings and None in {what}: {error}") from None


def _check_init_seed(module, options, state, init_seed):
    arguments = {key: value for key, value in options.items() if value is not None}
    arguments.pop("activation", None)  # it draws nothing, and the case may use another name for it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        fresh = type(module)(**arguments).state_dict()
    for key, value in state.items():
        if key not in fresh or not torch.equal(fresh[key].to(value.dtype), value.cpu()):
            raise ValueError(f"write_case: {key} is not what {type(module).__name__} draws after seed {init_seed}")


# --- Reading constructor arguments back from a module -------------------------------------------------------------


def _kind(module, name):
    # Two names are used by more than one class each; the parameters distinguish the classes.
    if name == "MultiHeadAttention":
        return "MultiHeadAttention.shared" if hasattr(module, "fc_out") else name
    if name == "SelfAttention":
        return "SelfAttention.fused" if hasattr(module, "qkv") else "SelfAttention.matrix"
    return name


def _drop(module):
    return float(getattr(module, "p", 0.0))  # nn.Identity stands in for a dropout of zero


def _parameter_widths(module):
    return {"d_in": module.W_query.shape[0], "d_out": module.W_query.shape[1]}


def _linear_options(module):
    query = module.W_query
    return {"d_in": query.in_features, "d_out": query.out_features, "qkv_bias": query.bias is not None}


def _causal_options(module):
    return {**_linear_options(module), "context_length": module.mask.shape[-1], "dropout": _drop(module.dropout)}


def _one(values, what):
    if len(set(values)) != 1:
        raise ValueError(f"options_of: expected one {what} in all parts of the layer, got {sorted(set(values))}")
    return values[0]


def _activation_name(activation):
    functions = {F.relu: "relu", torch.relu: "relu", F.gelu: "gelu", F.silu: "silu", torch.tanh: "tanh", F.tanh: "tanh"}
    modules = {torch.nn.ReLU: "relu", torch.nn.GELU: "gelu", torch.nn.SiLU: "silu", torch.nn.Tanh: "tanh"}
    known = modules.get(type(activation)) or functions.get(activation)
    if known is None or getattr(activation, "approximate", "none") != "none":
        raise ValueError(f"options_of: expected an activation of {sorted(set(functions.values()))}, got {activation}")
    return known


def _layer_options(module):
    attentions = [part for part in module.children() if isinstance(part, torch.nn.MultiheadAttention)]
    norms = [part for part in module.children() if isinstance(part, torch.nn.LayerNorm)]
    drops = [float(part.p) for part in module.children() if isinstance(part, torch.nn.Dropout)]
    return {
        "d_model": module.self_attn.embed_dim,
        "nhead": module.self_attn.num_heads,
        "dim_feedforward": module.linear1.out_features,
        "dropout": _one(drops + [float(part.dropout) for part in attentions], "dropout"),
        "activation": _activation_name(module.activation),
        "layer_norm_eps": _one([part.eps for part in norms], "layer_norm_eps"),
        "batch_first": bool(module.self_attn.batch_first),
        "norm_first": bool(module.norm_first),
        "bias": module.linear1.bias is not None,
    }


def _torch_mha_options(module):
    return {
        "embed_dim": module.embed_dim,
        "num_heads": module.num_heads,
        "dropout": float(module.dropout),
        "bias": module.in_proj_bias is not None,
        "add_bias_kv": module.bias_k is not None,
        "add_zero_attn": bool(module.add_zero_attn),
        "kdim": None if module.kdim == module.embed_dim else module.kdim,
        "vdim": None if module.vdim == module.embed_dim else module.vdim,
        "batch_first": bool(module.batch_first),
    }


_READERS = {
    "SelfAttention_v1": _parameter_widths,
    "SelfAttention_v2": _linear_options,
    "SelfAttention.matrix": lambda m: {"d_model": m.W_Q.shape[0], "d_k": m.W_Q.shape[1]},
    "SelfAttention.fused": lambda m: {"embed_dim": m.qkv.in_features, "num_heads": m.num_heads},
    "CausalAttention": _causal_options,
    "MultiHeadAttentionWrapper": lambda m: {**_causal_options(m.heads[0]), "num_heads": len(m.heads)},
    "MultiHeadAttention": lambda m: {**_causal_options(m), "num_heads": m.num_heads},
    "MultiHeadAttention.shared": lambda m: {
        "embed_size": m.fc_out.out_features,
        "heads": m.fc_out.in_features // m.values.in_features,
    },
    "ScaledDotProductAttention": lambda m: {"dropout": _drop(m.dropout)},
    "MultiHeadSelfAttention": lambda m: {
        "d_model": m.W_q.in_features,
        "num_heads": m.num_heads,
        "dropout": _drop(m.dropout),
    },
    MHA_NAME: _torch_mha_options,
    ENCODER_NAME: _layer_options,
    DECODER_NAME: _layer_options,
}
