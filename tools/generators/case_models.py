"""Functions that the generators of whole models share: this package's names, weights, writing a case."""

import json
import re

import torch
import transformers

from case_support import normal, save_safetensors


def renamed(name, table):
    """The name after the first rule that matches: (pattern, replacement) of re.fullmatch and Match.expand."""
    for pattern, replacement in table:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(replacement)
    raise ValueError(f"no rule for {name}")


def as_ours(tensors, table):
    """Renames tensors to this package's names; joins "name:q", "name:k" and "name:v"; flattens a patch's pixels."""
    result, parts = {}, {}
    for name, tensor in tensors.items():
        key = renamed(name, table)
        if ":" in key:
            parts.setdefault(key[:-2], {})[key[-1]] = tensor
        elif key in result:
            raise ValueError(f"two tensors are called {key}")
        else:
            result[key] = tensor.flatten(1) if tensor.dim() == 4 else tensor
    for key, weights in parts.items():
        result[key] = torch.cat([weights[part] for part in "qkv"])
    return result


def randomize(model, scale, norm_of=lambda name, values: values / 4 + 1):
    """Draws weights, biases and norms that differ from the defaults: matrices of scale(name), norms of norm_of(name, values)."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(model.named_parameters()):
            values = normal(1000 + index, *parameter.shape)
            if parameter.dim() > 1:
                values = values * scale(name)
            elif "norm" in name.lower() and name.endswith("weight"):
                values = norm_of(name, values)
            else:
                values = values / 2
            parameter.copy_(values)


def write_model_case(path, name, options, model, table, inputs, output, seed, dtype, call=None, **metadata):
    """Writes one case: `inputs` are the tensors that the C++ class takes, `output` is what the model computed of them.

    With a seed of the output's shape, the gradients of sum(output * seed) are written too. Half types are compared with
    what float64 makes of their numbers, kept in float32.
    """
    kept = torch.promote_types(dtype, torch.float32)
    parameters = dict(model.named_parameters())
    contents = {f"state.{key}": value.to(dtype) for key, value in as_ours(parameters, table).items()}
    contents.update({f"input.{key}": value for key, value in inputs.items()})
    contents["expected.output"] = output.to(kept)
    if seed is not None:
        contents["input.grad_output"] = seed.to(dtype)
        found = torch.autograd.grad((output * seed).sum(), list(parameters.values()), allow_unused=True)
        gradients = {key: value for key, value in zip(parameters, found) if value is not None}
        contents.update({f"grad.state.{key}": value.to(kept) for key, value in as_ours(gradients, table).items()})
    described = {
        "module": name,
        "options": json.dumps(options, sort_keys=True),
        "call": json.dumps(call or {}, sort_keys=True),
        "train": "false",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    save_safetensors(path, contents, {**described, **metadata})
