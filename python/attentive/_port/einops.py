"""C++ text for einops with a constant pattern: unflatten, squeeze, permute, expand, flatten."""

import re

from .kinds import Operand, Refusal, Tensor

_REDUCED = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin", "prod": "prod"}


def _side(text, pattern):
    """The groups of one side: lists of names; a 1 is an empty list, `...` a name, which in parentheses is `…`."""
    tokens = re.findall(r"\([^()]*\)|\.\.\.|\w+", text)
    if "".join(tokens).replace(" ", "") != re.sub(r"\s", "", text):
        raise Refusal(f"the einops pattern '{pattern}' cannot be read")
    groups = [token[1:-1].replace("...", " … ").split() if token[0] == "(" else [token] for token in tokens]
    return [[name for name in group if name != "1"] for group in groups]


def _sides(x, pattern):
    """Both sides, with the axes of `...` named."""
    parts = pattern.split("->")
    if len(parts) != 2:
        raise Refusal(f"the einops pattern '{pattern}' has no '->'")
    left, right = (_side(part, pattern) for part in parts)
    if ["..."] in left:
        rank = getattr(x.kind, "rank", None)
        if rank is None:
            raise Refusal(f"the einops pattern '{pattern}' with '...' needs a tensor whose number of dimensions does not vary")
        hidden = [f"…{i}" for i in range(rank - len(left) + 1)]
        left = [group for old in left for group in ([[name] for name in hidden] if old == ["..."] else [old])]
        joined = [[other for name in group for other in (hidden if name == "…" else [name])] for group in right]
        right = [group for old in joined for group in ([[name] for name in hidden] if old == ["..."] else [old])]
    if any({"…", "..."} & set(group) for group in [*left, *right]):
        raise Refusal(f"the einops pattern '{pattern}' has '...' where this tool cannot follow; name the dimensions")
    names = [name for group in left for name in group]
    if len(set(names)) < len(names) or any(name.isdigit() for name in names):
        raise Refusal(f"the einops pattern '{pattern}' repeats a name or has a number other than 1 on its left side")
    return left, right


def _split(code, left, sizes, pattern):
    """Takes the left side's groups apart and drops its ones; from the last to the first, so that positions stay."""
    names = [name for group in left for name in group]
    for at in reversed(range(len(left))):
        group = left[at]
        if not group:
            code += f".squeeze({at})"
        elif len(group) > 1:
            unknown = [name for name in group if name not in sizes]
            if len(unknown) > 1:
                raise Refusal(f"the einops pattern '{pattern}' needs the size of {unknown[0]} or of {unknown[1]}")
            code += f".unflatten({at}, {{{', '.join(sizes.get(name, '-1') for name in group)}}})"
    return code, names


def _permuted(code, names, wanted):
    order = [names.index(name) for name in wanted]
    moved = [i for i, other in enumerate(order) if i != other]
    if not moved:
        return code
    return f"{code}.transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"{code}.permute({{{', '.join(map(str, order))}}})"


def _joined(code, right):
    """Puts the right side's groups together and adds its ones."""
    for at, group in enumerate(right):
        code += f".unsqueeze({at})" if not group else f".flatten({at}, {at + len(group) - 1})" if len(group) > 1 else ""
    return code


def _check(names, wanted, pattern):
    if sorted(names) != sorted(wanted):
        raise Refusal(f"the einops pattern '{pattern}' does not have the same names on both sides")


def _trailing(x, pattern, sizes):
    """A pattern whose sides begin with `...`, for any number of dimensions: positions count from the end."""
    left, right = (_side(part, pattern)[1:] for part in pattern.split("->"))
    code, names, behind = x.primary, [name for group in left for name in group], 0
    for group in reversed(left):
        if not group:
            code += f".squeeze({-behind - 1})"
        elif len(group) > 1:
            code += f".unflatten({-behind - 1}, {{{', '.join(sizes.get(name, '-1') for name in group)}}})"
        behind += len(group)
    wanted = [name for group in right for name in group]
    _check(names, wanted, pattern)
    moved = [i for i, name in enumerate(wanted) if names[i] != name]
    if len(moved) > 2:
        raise Refusal(f"the einops pattern '{pattern}' needs a tensor whose number of dimensions does not vary")
    code += f".transpose({moved[0] - len(names)}, {moved[1] - len(names)})" if moved else ""
    behind = len(wanted)
    for group in right:
        behind -= len(group)
        code += f".unsqueeze({-behind - 1})" if not group else f".flatten({-behind - len(group)}, {-behind - 1})" if len(group) > 1 else ""
    return code


def rearrange(x, pattern, sizes):
    """einops.rearrange; `sizes` are the texts of its named sizes."""
    if getattr(x.kind, "rank", None) is None and all(part.split()[:1] == ["..."] and part.count("...") == 1 for part in pattern.split("->")):
        return _trailing(x, pattern, sizes)
    left, right = _sides(x, pattern)
    code, names = _split(x.primary, left, sizes, pattern)
    wanted = [name for group in right for name in group]
    _check(names, wanted, pattern)
    return _joined(_permuted(code, names, wanted), right)


def repeat(x, pattern, sizes):
    """einops.repeat: new names are expanded before groups are put together."""
    left, right = _sides(x, pattern)
    code, names = _split(x.primary, left, sizes, pattern)
    right = [[f"{name}#{at}.{i}" if name.isdigit() else name for i, name in enumerate(group)] for at, group in enumerate(right)]
    wanted = [name for group in right for name in group]
    new = [name for name in wanted if name not in names]
    _check(names + new, wanted, pattern)
    sizes = {name: name.split("#")[0] for name in new if "#" in name} | sizes
    for name in new:
        if name not in sizes:
            raise Refusal(f"the einops pattern '{pattern}' needs the size of {name}")
    code = _permuted(code, names, [name for name in wanted if name not in new])
    for at, name in enumerate(wanted):
        code += f".unsqueeze({at})" if name in new else ""
    if new:
        code += f".expand({{{', '.join(sizes[name] if name in new else '-1' for name in wanted)}}})"
    return _joined(code, right)


def reduce(x, pattern, how, sizes):
    """einops.reduce with a word: mean, sum, max, min or prod."""
    left, right = _sides(x, pattern)
    if how not in _REDUCED:
        raise Refusal(f"einops.reduce by {how if isinstance(how, str) else 'a function'} is not translated; use one of {', '.join(_REDUCED)}")
    code, names = _split(x.primary, left, sizes, pattern)
    wanted = [name for group in right for name in group]
    gone = [at for at, name in enumerate(names) if name not in wanted]
    kept = [name for name in names if name in wanted]
    _check(kept, wanted, pattern)
    if how == "prod":
        for at in reversed(gone):
            code += f".prod({at})"
    elif gone:
        dims = str(gone[0]) if len(gone) == 1 else f"std::vector<int64_t>{{{', '.join(map(str, gone))}}}" if gone[0] == 0 else f"{{{', '.join(map(str, gone))}}}"
        code += f".{_REDUCED[how]}({dims})"
    return _joined(_permuted(code, kept, wanted), right)


def einsum(operands, pattern):
    """einops.einsum(*operands, pattern), whose names may be words."""
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern))
    if re.search(r"[()]|\b\d", pattern) or len(names) > 52:
        raise Refusal(f"the einops.einsum pattern '{pattern}' is not translated; use names, ',' and '->' only")
    taken = {name for name in names if len(name) == 1}
    free = (letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in taken)
    letters = {name: name if name in taken and name != "_" else next(free) for name in names}
    equation = re.sub(r"\s", "", re.sub(r"[A-Za-z_]\w*", lambda name: letters[name[0]], pattern))
    return f'torch::einsum("{equation}", {{{", ".join(operand.code for operand in operands)}}})'


def layer(pattern, sizes, rank=None, how=None):
    """einops.layers.torch.Rearrange, or Reduce by `how`, of tensors of that many dimensions."""
    x = Operand("x", Tensor("?", rank))
    code = rearrange(x, pattern, sizes) if how is None else reduce(x, pattern, how, sizes)
    capture = "=" if any(not size.isdigit() for size in sizes.values()) else ""
    return f"torch::nn::Functional([{capture}](const torch::Tensor& x) {{ return {code}; }})"
