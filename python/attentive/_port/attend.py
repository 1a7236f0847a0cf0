"""Finds softmax(q k^T * scale + bias, masked), dropout, times v in a function's statements and makes one call of it.

`find` looks at the syntax tree and the recorded kinds alone, `nodes_to_watch`, `settle` and `verify` compare with numbers of a
run, and `apply` puts the call in the place of the product with v. Axes are letters: i queries, j keys, d features, b0, b1 ...
"""

import ast
import copy
import dataclasses
import math

import torch
from torch import nn

from . import kinds
from .record import number

HIDES = -1e3  # a fill value or a bias below this hides a pair
SHAPED = ("ones_like", "zeros_like", "full_like", "expand_as", "view_as", "reshape_as", "type_as", "to")  # read sizes or dtype alone
CASTS = ("float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone")


@dataclasses.dataclass
class Factor:
    """A factor of the scores, "mul" or "div"; `conditions` are tests of ifs and whether they must fail."""

    how: str
    node: ast.expr
    conditions: tuple = ()
    tensor: bool = False


@dataclasses.dataclass
class Mask:
    """`form` says what `node` is: "keep", "drop", "bias"; or the scores that a helper writes into ("call") or masks ("returned")."""

    node: ast.expr
    form: str
    conditions: tuple
    statement: ast.stmt
    factors: list  # of a bias
    sign: int = 1
    value: float | None = None  # what hidden scores become
    optional: bool = False  # may be None
    view: tuple = ()  # sizes before and after, where scores were reshaped for it
    origin: tuple = ()  # (alignment, node of a triangle, whether true or not 0 hides, definition): may become causal
    causal: str | None = None  # TopLeft or BottomRight, by `settle`
    call: ast.Call | None = None
    function: object = None
    rank: int | None = None
    text: str = ""

    @property
    def is_added(self):
        """Whether it is added to the scores, rather than hides some of them."""
        return self.form not in ("keep", "drop")


@dataclasses.dataclass
class Term:
    """q, k or v: axes[n] is the place of the call's axis n in the node's tensor, None where it has to be added."""

    node: ast.expr
    axes: list
    letters: list


@dataclasses.dataclass
class Dropout:
    """`node` is the module or the probability (None: 0.5)."""

    node: ast.expr | None
    module: bool
    training: ast.expr | None = None
    conditions: tuple = ()


@dataclasses.dataclass
class Plan:
    line: int
    function: ast.FunctionDef
    block: list  # the statements among which it stands
    use: ast.expr
    statement: ast.stmt  # that of `use`
    q: Term
    k: Term
    v: Term
    out: list  # axes of the call's output that make the use's
    layout: list = dataclasses.field(default_factory=list)  # axes of the call's weights that make the user's scores
    scale: list | None = dataclasses.field(default_factory=list)  # None: the default
    masks: list = dataclasses.field(default_factory=list)
    causal: ast.expr | None = None  # is_causal of a call
    dropout: Dropout | None = None
    wanted: tuple = ()  # (Clean or Dropped, the expression they replace, axes, its statement, whether it moves to the use's)
    consumed: list = dataclasses.field(default_factory=list)
    reads: list = dataclasses.field(default_factory=list)  # (statement, node, letters, names): sizes of the scores read
    separate: bool = False  # masks are gathered where they stand
    names: dict = dataclasses.field(default_factory=dict)
    fills_hidden: bool = False  # rows without a key are 0 in Python, too
    notes: list = dataclasses.field(default_factory=list)
    hidden_rows_seen: bool = False

    @property
    def summary(self):
        masks = sorted({"causal" if mask.causal else "bias" if mask.form == "bias" else "mask" for mask in self.masks})
        masks += ["causal"] if self.causal is not None and getattr(self.causal, "value", True) else []
        parts = [*masks, *(["dropout"] if self.dropout else []), *(["weights returned"] if self.wanted else [])]
        return "attention()" + (" with " + ", ".join(parts) if parts else "")

    @property
    def hides_rows(self):
        return not self.fills_hidden and any(mask.value is not None and not mask.causal for mask in self.masks)

    @property
    def hides_rows_note(self):
        fills = {mask.value for mask in self.masks if mask.value is not None and not mask.causal}
        python = "NaN" if fills == {-math.inf} else "the mean of v" if -math.inf not in fills else "the mean of v or NaN"
        return f"line {self.line}: a query whose every key is hidden gives {python} in Python and 0 in attention()"


@dataclasses.dataclass
class Declined:
    line: int
    why: str


@dataclasses.dataclass
class Emitted:
    """Stands in a statement list: `write(f)` makes the substitutions of what follows and returns lines of C++."""

    write: object

    def emit(self, f):
        for line in self.write(f):
            f.out(line)


class Plans(list):
    """The plans of a function's statements, in order."""

    def __init__(self, statements):
        super().__init__()
        self.statements = statements


class _No(Exception):
    """Why a softmax stays composed."""


def _key(node):
    """The text of a name or of a member of self."""
    if isinstance(node, ast.Name):
        return node.id
    is_member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return f"self.{node.attr}" if is_member else None


def _targets(statement):
    """The keys that a statement binds or changes in place."""
    for node in ast.walk(statement):
        if _stored(node):
            yield _key(node.value if isinstance(node, ast.Subscript) else node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            yield _key(_storage(node.func.value))


def _storage(node):
    """What `x.data` changes with."""
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" and _key(node) is None else node


def _spread(arguments):
    """Arguments that may also be given as one tuple or list."""
    one = arguments[0] if len(arguments) == 1 else None
    return one.elts if isinstance(one, ast.Tuple | ast.List) else arguments


def _names(*nodes):
    return {_key(part) for node in nodes if node is not None for part in ast.walk(node)} - {None}


def _bound(statement):
    """The keys that a statement itself binds or writes into."""
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    parts = [part for target in targets if target is not None for part in ast.walk(target)]
    return {_key(part.value if isinstance(part, ast.Subscript) else part) for part in parts if _stored(part)} - {None}


class _Finder:
    def __init__(self, view, function, statements):
        self.view, self.function, self.block = view, function, statements
        self.parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        self.taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        self.gone = set()

    # What expressions are.

    def rank(self, node):
        kind = self.view.kind(node)
        return kind.rank if isinstance(kind, kinds.Tensor) else None

    def is_number(self, node):
        return self.view.kind(node) in kinds.NUMBERS

    def value(self, node):
        """The one value that an expression had, or UNKNOWN."""
        values = self.view.values(node) if node is not None else []
        constant = self.view.constant(node) if node is not None else kinds.UNKNOWN
        return constant if constant is not kinds.UNKNOWN else values[0] if len(set(values)) == 1 else kinds.UNKNOWN

    def called(self, node):
        """Name and arguments of a call of PyTorch's or einops' function or method; a method's tensor is the first."""
        if not isinstance(node, ast.Call):
            return None, []
        static = self.view.static(node.func)
        if static is not None:
            root = (getattr(static, "__module__", None) or ("" if hasattr(static, "__code__") else "torch")).split(".")[0]
            return (getattr(static, "__name__", None), node.args) if root in ("torch", "einops") else (None, [])
        if isinstance(node.func, ast.Attribute) and isinstance(self.view.kind(node.func.value), kinds.Tensor):
            return node.func.attr, [node.func.value, *node.args]
        return None, []

    def argument(self, call, place, *names):
        """An argument by its place, counted with a method's tensor, or by its name."""
        arguments = self.called(call)[1]
        if place is not None and place < len(arguments):
            return arguments[place]
        return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)

    def inlined(self, node):
        while not isinstance(node, ast.stmt | ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.Lambda):
            node = self.parents[id(node)]
        return not isinstance(node, ast.stmt)

    def modules(self, node, *classes):
        found = self.view.modules(node)
        return found if found and all(type(module) in classes for module in found) else []

    def softmax(self, node):
        """The scores and the dimension of a softmax, counted from the front where the rank is known."""
        if not isinstance(node, ast.Call):
            return None
        members = self.modules(node.func, nn.Softmax)
        if members:
            scores, dims = node.args[0], {member.dim for member in members}
        elif self.called(node)[0] in ("softmax", "_softmax"):
            scores, given = self.argument(node, 0, "input"), self.argument(node, 1, "dim", "axis")
            dims = {self.value(given) if given is not None else None}
        else:
            return None
        rank, dim = self.rank(scores), dims.pop() if len(dims) == 1 else kinds.UNKNOWN
        dim = (0 if rank in (0, 1, 3) else 1) if dim is None else dim
        return scores, (dim % rank if isinstance(dim, int) and rank else dim)

    def product(self, node):
        """Both operands of a product, their axes and those of the result."""
        name, arguments = self.called(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            a, b = node.left, node.right
        elif name in ("matmul", "bmm", "mm"):
            a, b = self.argument(node, 0, "input"), self.argument(node, 1, "other", "mat2")
        elif name == "baddbmm":
            a, b = self.argument(node, 1, "batch1"), self.argument(node, 2, "batch2")
        elif name == "einsum":
            return self.einsum(node, arguments)
        else:
            return None
        ranks = self.rank(a), self.rank(b)
        if None in ranks or min(ranks) < 2:
            return None
        lead = [f"b{n}" for n in range(max(ranks) - 2)]
        first, second = (lead[len(lead) - rank + 2 :] for rank in ranks)
        return a, b, [*first, "r", "c"], [*second, "c", "s"], [*lead, "r", "s"]

    def einsum(self, node, arguments):
        texts = [self.value(argument) for argument in arguments]
        at = next((n for n, text in enumerate(texts) if isinstance(text, str)), None)
        operands = _spread([argument for n, argument in enumerate(arguments) if n != at])
        if at is None or len(operands) != 2 or "->" not in texts[at]:
            return None
        inputs, result = texts[at].replace("...", "…").split("->")
        split = str.split if at else lambda part: list(part.replace(" ", ""))
        parts = [split(part) for part in (*inputs.split(","), result)]
        ranks = [self.rank(operand) for operand in operands]
        if len(parts) != 3 or None in ranks:
            return None
        many = max(rank - len(part) + 1 for rank, part in zip(ranks, parts, strict=False))
        letters = [[x for y in part for x in ([f"…{n}" for n in range(many)] if y == "…" else [y])] for part in parts]
        return (*operands, *letters) if [len(x) for x in letters[:2]] == ranks else None

    def transposed(self, node):
        """The tensor whose axes an expression reorders, and the new order."""
        if isinstance(node, ast.Attribute) and node.attr in ("mT", "T") and (self.rank(node) or 0) >= 2:
            return node.value, [*range(self.rank(node) - 2), self.rank(node) - 1, self.rank(node) - 2]
        name, arguments = self.called(node)
        rank = self.rank(node)
        if name not in ("transpose", "permute", "t", "rearrange", "swapaxes") or rank is None or not arguments:
            return None
        order = list(range(rank))
        if name == "rearrange":
            text = self.value(arguments[1]) if len(arguments) == 2 else None
            before, after = (side.split() for side in (text.split("->") if isinstance(text, str) else ("", "")))
            if len(node.keywords) or sorted(before) != sorted(after) or len(before) != rank or any("(" in x for x in before):
                return None
            return arguments[0], [before.index(x) for x in after]
        given = [0, 1] if name == "t" else [self.value(argument) for argument in _spread(arguments[1:])]
        if not all(isinstance(x, int) for x in given):
            return None
        given = [x % rank for x in given]
        if name == "permute":
            return (arguments[0], given) if sorted(given) == order else None
        if len(given) != 2:
            return None
        order[given[0]], order[given[1]] = order[given[1]], order[given[0]]
        return arguments[0], order

    def negative(self, node, depth=0):
        """The number by which a fill value hides a score, None if it does not."""
        values = self.view.values(node)
        if values and all(isinstance(x, int | float) and x <= HIDES for x in values):
            return min(values)
        if isinstance(self.view.kind(node), kinds.Tensor) and depth < 3:
            if isinstance(node, ast.Name):
                binders = (s for s in ast.walk(self.function) if isinstance(s, ast.Assign) and node.id in _bound(s))
                found = (self.negative(s.value, depth + 1) for s in binders)
            else:
                found = (self.negative(part, 3) for part in ast.walk(node) if part is not node and self.is_number(part))
            return next((x for x in found if x is not None), None)
        return None

    def definition(self, name):
        """The one statement that binds a name in the function."""
        found = [s for s in ast.walk(self.function) if isinstance(s, ast.stmt) and name in _bound(s)]
        simple = len(found) == 1 and isinstance(found[0], ast.Assign) and _key(found[0].targets[0]) == name
        return found[0] if simple else None

    def alive(self, node, gone=None):
        """The nodes of a statement but those of branches that never ran and of statements that are gone, by default the consumed ones."""
        gone = self.gone if gone is None else gone
        if id(node) in gone:
            return
        yield node
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.If) and name in ("body", "orelse") and not self.view.ran(node, name):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.alive(child, gone)

    def touches(self, statement, key):
        return any(key in _bound(part) or (isinstance(part, ast.Expr) and key in _targets(part)) or self.writes(part, key)
                   for part in self.alive(statement, ()) if isinstance(part, ast.stmt))

    def writes(self, statement, key):
        """Whether a statement calls a user's function that, by its name, writes into these scores."""
        call = statement.value if isinstance(statement, ast.Expr) else None
        given = isinstance(call, ast.Call) and any(_key(argument) == key for argument in call.args)
        name = getattr(self.view.static(call.func), "__name__", "") if given else ""
        return self.called(call)[0] is None and ("mask" in name or name.endswith("_"))

    # From the softmax back to the product.

    def back(self, node, block, at, conditions, until=None):
        """Follows scores from an expression of statement `at` to a product, or to a name that is bound before the block."""
        while True:
            key = node if isinstance(node, str) else _key(node)
            if key is not None:
                at = next((n for n in range(at - 1, -1, -1) if self.touches(block[n], key)), None)
                if at is None:
                    return key
                self.chain.add(key)
                node = self.before(block, at, key, conditions)
                self.first = at if block is self.block else self.first
                continue
            statement = block[at] if at < len(block) else None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                return self.sum(node, block, at, conditions, until)
            inner = self.step(node, statement, conditions)
            if inner is None:
                return node
            node = inner

    def before(self, block, at, key, conditions):
        """What the scores were before statement `at` of a block, which changes them."""
        statement = block[at]
        if isinstance(statement, ast.If):
            for name, branch in (("body", statement.body), ("orelse", statement.orelse)):
                if branch and self.view.ran(statement, name) and any(self.touches(part, key) for part in branch):
                    test = (statement.test, name == "orelse")
                    end = self.back(key, branch, len(branch), (*conditions, test), until=key)
                    if end != key:
                        other = self.view.ran(statement, "orelse" if name == "body" else "body")
                        if other or isinstance(end, str) or not self.product(end) or _names(end) & set(_targets(statement)) - {key}:
                            raise _No("the scores are computed in a branch")
                        return end
            return key
        if isinstance(statement, ast.Try):
            return self.back(key, statement.body, len(statement.body), conditions, until=key)
        self.consumed.append(statement)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if _key(target) == key:
                return statement.value
            value = self.negative(statement.value) if isinstance(target, ast.Subscript) else None
            if value is not None and self.rank(target.slice):
                self.mask(target.slice, "drop", conditions, statement, value)
                return key
        if isinstance(statement, ast.AugAssign):
            if isinstance(statement.op, ast.Add | ast.Sub):
                self.bias(statement.value, 1 if isinstance(statement.op, ast.Add) else -1, statement, conditions)
                return key
            if isinstance(statement.op, ast.Mult | ast.Div):
                self.factor("mul" if isinstance(statement.op, ast.Mult) else "div", statement.value, conditions)
                return key
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if self.writes(statement, key):
                node = next(argument for argument in call.args if _key(argument) == key)
                self.mask(node, "call", conditions, statement, None)
                self.masks[-1].value = -math.inf
                self.masks[-1].call, self.masks[-1].function = call, self.view.static(call.func)
                return key
            if isinstance(call.func, ast.Attribute) and _key(_storage(call.func.value)) == key:
                inner = self.step(call, statement, conditions)
                if inner is not None:
                    return key
        raise _No(f"line {statement.lineno} changes the scores in a way that is not known")

    def sum(self, node, block, at, conditions, until):
        sign = 1 if isinstance(node.op, ast.Add) else -1
        if sign < 0 and any(self.called(part)[0] in ("amax", "max") for part in ast.walk(node.right)):
            return self.back(node.left, block, at, conditions, until)  # a softmax does not depend on it
        error = _No("no product before the softmax")
        for scores, other, factor in ((node.left, node.right, sign), (node.right, node.left, 1)):
            if scores is node.right and sign < 0:
                continue
            fields = ("factors", "masks", "consumed", "chain", "view_at", "first")
            saved = {name: copy.copy(getattr(self, name)) for name in fields}
            try:
                kept = self.kept(scores, other)
                if kept:  # s * m + c * (1 - m)
                    scores, keep, value = kept
                    self.mask(keep, "keep", conditions, block[at], value)
                else:
                    self.bias(other, factor, block[at], conditions)
                end = self.back(scores, block, at, conditions, until)
                if end == until or (not isinstance(end, str) and self.product(end)):
                    return end
            except _No as no:
                error = no
            self.__dict__.update(saved)
        raise error

    def kept(self, product, fill):
        """The scores, the mask and the hidden value where scores are multiplied by a mask and something large is added where it is 0."""
        if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
            return None
        large = [x for part in ast.walk(fill) if self.is_number(part) for x in self.view.values(part) if abs(x) >= -HIDES]
        for scores, keep in ((product.left, product.right), (product.right, product.left)):
            if large and isinstance(self.view.kind(keep), kinds.Tensor) and _names(keep) & _names(fill) and not _names(scores) & _names(fill):
                return scores, keep, -max(map(abs, large))
        return None

    def step(self, node, statement, conditions):
        """What the scores were before the outermost operation of an expression, None if it is a product."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            left, right = node.left, node.right
            if isinstance(node.op, ast.Mult) and (self.is_number(left) or (self.rank(left) or 0) < (self.rank(right) or 0)):
                left, right = right, left
            return self.factor("mul" if isinstance(node.op, ast.Mult) else "div", right, conditions) or left
        name, arguments = self.called(node)
        scores = arguments[0] if arguments else None
        name = name.rstrip("_") if name else None
        if name in ("mul", "div", "multiply", "divide", "true_divide") and len(arguments) == 2:
            return self.factor("mul" if name.startswith("mul") else "div", arguments[1], conditions) or scores
        if name in ("add", "sub") and len(arguments) == 2 and not node.keywords:
            self.bias(arguments[1], 1 if name == "add" else -1, statement, conditions)
            return scores
        if name == "masked_fill":
            hidden, fill = self.argument(node, 1, "mask"), self.argument(node, 2, "value")
            value = self.negative(fill)
            if value is None:
                raise _No("masked_fill does not hide: its value is not a large negative number")
            self.mask(hidden, "drop", conditions, statement, value)
            return scores
        if name == "where" and len(arguments) == 3:
            test, yes, no = arguments if self.view.static(node.func) is not None else (arguments[1], arguments[0], arguments[2])
            for form, inner, fill in (("keep", yes, no), ("drop", no, yes)):
                value = self.negative(fill)
                if value is not None:
                    self.mask(test, form, conditions, statement, value)
                    return inner
            raise _No("where does not hide: neither value is a large negative number")
        if name in CASTS:
            return scores
        if name in ("view", "reshape"):
            sizes = _spread(arguments[1:])
            if self.view_at is None:
                self.view_at = (sizes, len(self.masks))
            else:
                outer, start = self.view_at
                if any(self.value(size) == -1 for size in sizes) or len(sizes) < 2 or len(outer) < 2:
                    raise _No("the scores are reshaped")
                for mask in self.masks[start:]:
                    mask.view = (sizes, outer)
                self.view_at = None
            return scores
        if name == "baddbmm":
            beta, alpha = (self.argument(node, None, word) for word in ("beta", "alpha"))
            if self.value(beta) != 0:
                self.bias(scores, 1, statement, conditions)
                self.masks[-1].factors += [Factor("mul", beta)] if beta is not None else []
            if alpha is not None:
                self.factor("mul", alpha, conditions)
        if isinstance(node, ast.Attribute) and _storage(node) is not node and self.rank(node) is not None:
            return node.value
        function = self.view.static(node.func) if isinstance(node, ast.Call) and name is None else None
        if hasattr(function, "__code__"):
            scores = next((x for x in node.args if self.rank(x) == self.rank(node) and self.view.kind(x) == self.view.kind(node)), None)
            if scores is not None:
                self.mask(scores, "returned", conditions, statement, None)
                self.masks[-1].call, self.masks[-1].function = node, function
                return scores
        return None

    def factor(self, how, node, conditions):
        tensor = isinstance(self.view.kind(node), kinds.Tensor)
        if not tensor and not self.is_number(node):
            raise _No("the scores are multiplied by something that is neither a number nor a tensor")
        self.factors.append(Factor(how, node, conditions, tensor))

    def bias(self, node, sign, statement, conditions):
        if self.is_number(node):
            return  # a softmax does not depend on it
        if self.view.kind(node) not in (kinds.Tensor("f", rank) for rank in (None, *range(7))):
            raise _No("what is added to the scores is not a floating-point tensor")
        if any(kind in kinds.NUMBERS for kind in self.view.raw_kinds(node)):
            raise _No("what is added to the scores is a number at times")
        self.mask(node, "bias", conditions, statement, None)
        self.masks[-1].sign = sign

    def mask(self, node, form, conditions, statement, value):
        origin, text = self.origin(node, form == "drop") if form in ("keep", "drop") else (), ast.unparse(node)
        while form in ("keep", "drop"):
            flipped = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)
            zero = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and self.value(node.comparators[0]) == 0
            if self.called(node)[0] == "logical_not":
                node = self.called(node)[1][0]
            elif flipped or (zero and isinstance(self.view.kind(node.left), kinds.Tensor)):
                node = node.operand if flipped else node.left
            else:
                break
            form = "keep" if form == "drop" else "drop"
        optional = None in self.view.values(node)
        self.masks.append(Mask(node, form, conditions, statement, list(self.factors), 1, value, optional, (), origin,
                               rank=self.rank(node), text=text))

    def origin(self, node, hides, definition=None):
        """Where a mask is a slice of a member, or a triangle of ones: see Mask.origin."""
        while True:
            name, arguments = self.called(node)
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                node, hides = node.operand, not hides
            elif isinstance(node, ast.Compare) and self.value(node.comparators[0]) in (0, 1):
                equal = isinstance(node.ops[0], ast.Eq)
                if not equal and not isinstance(node.ops[0], ast.NotEq):
                    return ()
                hides ^= equal == (self.value(node.comparators[0]) == 0)
                node = node.left
            elif name in ("bool", "to", "type", "unsqueeze", "view", "byte", "logical_not", "float", "type_as"):
                node, hides = arguments[0], hides ^ (name == "logical_not")
            elif isinstance(node, ast.Name) and definition is None and self.definition(node.id) is not None:
                definition = self.definition(node.id)
                node = definition.value
            else:
                break
        if name in ("tril", "triu"):
            ones, diagonal = arguments[0], self.argument(node, 1, "diagonal")
            sizes = _spread(self.called(ones)[1])
            like = self.called(ones)[0] == "ones_like"
            if not like and (self.called(ones)[0] != "ones" or len(sizes) < 2) or hides != (name == "triu"):
                return ()
            offset = self.value(diagonal) if isinstance(diagonal, ast.Constant) or diagonal is None else ast.unparse(diagonal)
            rows, columns = (ast.unparse(size) for size in sizes[-2:]) if not like else ("", "")
            if (offset if diagonal is not None else 0) == (1 if name == "triu" else 0):
                return "TopLeft", None, hides, definition
            aligned = offset == f"{columns} - {rows}" + (" + 1" if name == "triu" else "")
            return ("BottomRight", None, hides, definition) if aligned else ()
        base, rows, columns = node, None, None
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            given = [part for part in parts if not isinstance(part, ast.Constant) or part.value not in (None, ...)]
            slices = len(parts) > 1 and all(isinstance(part, ast.Slice) and part.step is None for part in (*given, *parts[-2:]))
            if not slices or len(given) != self.rank(node.value) and not any(getattr(part, "value", None) is ... for part in parts):
                return ()
            base, rows, columns = node.value, *parts[-2:]
        while self.called(base)[0] in CASTS or self.called(base)[0] == "bool":
            base = self.called(base)[1][0]
        if _key(base) is None or not _key(base).startswith("self.") or (self.rank(base) or 0) < 2:
            return ()
        if rows is None or (rows.lower is None and columns.lower is None):
            return "TopLeft", base, hides, definition
        same = rows.upper is not None and columns.upper is not None and ast.unparse(rows.upper) == ast.unparse(columns.upper)
        return ("BottomRight", base, hides, definition) if same and columns.lower is None else ()

    # From the softmax on to the product with v.

    def is_it(self, node, inner):
        return _key(node) == inner if isinstance(inner, str) else node is inner

    def unwrap(self, node, inner):
        """What is done to the weights within an expression, first things first; None if it is no chain."""
        effects = []
        while not self.is_it(node, inner):
            name, arguments = self.called(node)
            turned = self.transposed(node)
            if isinstance(node, ast.Call) and node.args and self.modules(node.func, nn.Dropout, nn.Identity):
                if not self.modules(node.func, nn.Identity):
                    if not self.modules(node.func, nn.Dropout):
                        return None
                    effects.append(Dropout(node.func, True))
                node = node.args[0]
            elif name == "dropout":
                p, training = self.argument(node, 1, "p"), self.argument(node, 2, "training")
                never = isinstance(training, ast.Constant) and training.value is False
                effects += [] if never else [Dropout(p, False, training)]
                node = arguments[0]
            elif turned:
                effects.append(turned[1])
                node = turned[0]
            elif name in CASTS or name == "nan_to_num":
                effects += [True] if name == "nan_to_num" else []
                node = arguments[0]
            elif name in ("masked_fill", "masked_fill_") and self.value(self.argument(node, 2, "value")) == 0:
                hidden = self.argument(node, 1, "mask")
                if ast.unparse(hidden) not in {mask.text for mask in self.masks} and self.called(hidden)[0] != "isnan":
                    return None
                effects.append(True)
                node = arguments[0]
            elif name in ("view", "reshape") and self.flat:
                effects.append("view")
                node = arguments[0]
            else:
                return None
        return effects[::-1]

    def happen(self, effects, letters, conditions=()):
        """The weights' axes after what is done to them; dropout is noted."""
        for effect in effects:
            if isinstance(effect, Dropout):
                if self.dropout is not None:
                    raise _No("there are two dropouts between softmax and v")
                self.dropout = dataclasses.replace(effect, conditions=conditions)
            elif isinstance(effect, list):
                letters = [letters[place] for place in effect]
            elif effect == "view":
                self.flat = False
            else:
                self.fills_hidden = True
        return letters

    def uses(self, statement, inner):
        """The products in a statement that have the weights as an operand."""
        for part in self.alive(statement):
            product = self.product(part)
            for side in (0, 1) if product else ():
                effects = self.unwrap(product[side], inner)
                if effects is not None:
                    yield part, product, side, effects

    def forward(self, node, at, letters):
        """Follows the weights to a product: its place, the product, the weights' side and axes, and who else reads them."""
        inner, flow, others = node, {}, []
        for n in range(at, len(self.block)):
            statement = self.block[n]
            if n > at and id(statement) in {id(part) for part in self.consumed}:
                continue
            found = [part for part in self.alive(statement) if self.is_it(part, inner) and not _stored(part)]
            others += [flow[key] for key in flow if key != inner and self.reads_of(statement, key)]
            if found:
                uses = list(self.uses(statement, inner))
                if uses:
                    part, product, side, effects = uses[0]
                    if isinstance(statement, ast.If | ast.For | ast.While | ast.With) or len(uses) > 1:
                        raise _No("the weights are used in a branch or twice")
                    if len(found) > 1:
                        others.append(flow[inner])
                    letters = self.happen(effects, letters)
                    return n, part, product, side, letters, flow, others
                single = isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse
                body = statement.body[0] if single else statement
                key = _key(body.targets[0]) if isinstance(body, ast.Assign) and len(body.targets) == 1 else None
                effects = self.unwrap(body.value, inner) if key and _key(body.value) is None else None
                if effects is not None and (body is statement or (key == inner and all(isinstance(x, Dropout) for x in effects))):
                    tests = ((statement.test, False),) if body is not statement else ()
                    letters = self.happen(effects, letters, tests)
                    state = "Reshaped" if self.flat else "Dropped" if self.dropout else "Clean"
                    flow[key] = key, body if body is statement else flow[key][1], state, letters
                    self.consumed.append(body)
                    inner = key
                elif isinstance(inner, str) and inner in flow and not self.touches(statement, inner):
                    others.append(flow[inner])
                else:
                    break
            elif isinstance(inner, str) and self.touches(statement, inner):
                break
        raise _No("no product with v after the softmax")

    def reads_of(self, statement, key):
        return [part for part in self.alive(statement) if _key(part) == key and not _stored(part)]

    def attention(self, node, at):
        """The plan of a softmax in statement `at`."""
        self.start(at)
        scores, dim = self.softmax(node)
        return self.finish(node, at, dim, self.back(scores, self.block, at, ()))

    def start(self, at):
        self.factors, self.masks, self.consumed, self.chain, self.view_at, self.first = [], [], [], set(), None, at
        self.dropout, self.fills_hidden, self.flat = None, False, False

    def branches(self, statement, at):
        """The plan of an if whose branches end with a softmax of one name."""
        self.start(at)
        ends, node, dim = set(), None, None
        for name, branch in (("body", statement.body), ("orelse", statement.orelse)):
            last = branch[-1] if branch else None
            if last is None or not isinstance(last, ast.Assign) or self.softmax(last.value) is None:
                if self.view.ran(statement, name) or last is None:
                    return None
                continue
            scores, dim = self.softmax(last.value)
            test, node = (statement.test, name == "orelse"), last.value
            while self.called(scores)[0] in CASTS:
                scores = self.called(scores)[1][0]
            if _key(scores) is None:
                raise _No("the scores are computed in a branch")
            end = self.back(scores, branch, len(branch) - 1, (test,), until=_key(scores))
            ends.add((end if isinstance(end, str) else None, _key(last.targets[0])))
            self.consumed.append(last)
        if not ends:
            return None
        if len(ends) != 1 or None in (end := ends.pop()):
            raise _No("the scores are computed in a branch")
        return self.finish(end[1], at, dim, self.back(end[0], self.block, at, ()), node)

    def finish(self, weights, at, dim, end, node=None):
        """Joins what was found behind the softmax with what comes after it."""
        product = None if isinstance(end, str) else self.product(end)
        if product is None:
            raise _No("no product before the softmax")
        a, b, x, y, scores = product
        if self.view_at is not None and len(self.view_at[0]) == 2 and dim == 1 and not self.view_at[1] and len(scores) > 2:
            self.flat, dim, self.view_at = True, len(scores) - 1, None
        if self.view_at is not None or not isinstance(dim, int):
            raise _No("the scores are reshaped")
        j, inner = scores[dim], [letter for letter in x if letter in y and letter not in scores]
        if j in x:
            a, b, x, y = b, a, y, x
        rows = [letter for letter in scores if letter in x and letter not in y]
        if j in x or len(inner) != 1 or not rows:
            raise _No("the softmax is not over the keys of a product")
        i, batch = rows[-1], [letter for letter in scores if letter not in (rows[-1], j)]
        q, k = self.term(a, x, [*batch, i, *inner]), self.term(b, y, [*batch, j, *inner])
        place, use, product, side, letters, flow, others = self.forward(weights, at + isinstance(weights, str), scores)
        if self.flat:
            raise _No("the scores are reshaped")
        known = dict(zip(product[2 + side], letters, strict=True))
        w, v, out = ([known.get(x, f"v {x}") for x in product[n]] for n in (2 + side, 3 - side, 4))
        if [x for x in w if x in v and x not in out] != [j]:
            raise _No("heads are mixed between softmax and v" if j in out else "no product over the keys follows the softmax")
        new = [x for x in v if x not in w]
        order = [*batch, i, *new]
        if len(new) != 1 or sorted(out) != sorted(order):
            raise _No("the product with v keeps other axes than batch, heads and queries")
        v = self.term(product[1 - side], v, [*batch, j, *new])
        layout = [[*batch, i, j].index(x) for x in scores]
        out = [order.index(x) for x in out]
        plan = Plan((node or use).lineno, self.function, self.block, use, self.block[place], q, k, v, out, layout, self.factors,
                    self.masks[::-1], None, self.dropout, consumed=self.consumed, fills_hidden=self.fills_hidden)
        self.check(plan, at, place, flow, others, scores, [*batch, i, j])
        return plan

    def term(self, node, letters, order):
        turned = self.transposed(node) if letters != order else None
        if turned:
            inner = [letters[turned[1].index(n)] for n in range(len(letters))]
            node, letters = (turned[0], inner) if inner == order else (node, letters)
        is_v = order[-1].startswith("v ")
        while not is_v and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div) and self.is_number(node.right):
            self.factors.append(Factor("mul" if isinstance(node.op, ast.Mult) else "div", node.right))
            node = node.left
        lacks = [x for x in order if x not in letters]
        if (lacks and (lacks != [order[-3]] or len(order) < 4)) or not set(letters) <= set(order):
            raise _No("the scores are not q k^T for each batch item and head (do talking heads mix them?)")
        return Term(node, [letters.index(x) if x in letters else None for x in order], letters)

    def check(self, plan, at, place, flow, others, scores, order):
        """What else reads or changes the names that the call stands for."""
        for mask in plan.masks:
            ranks = {kind.rank for kind in self.view.raw_kinds(mask.node) if isinstance(kind, kinds.Tensor)}
            if mask.rank is None and ranks <= {2, len(scores)}:
                mask.rank = len(scores)  # as it stands, a mask of two dimensions is that of every item and head
            if not mask.view and (mask.rank is None or mask.rank > len(scores)):
                raise _No("a mask's rank varies or is above that of the scores")
        if plan.dropout and plan.layout != sorted(plan.layout):
            modules = self.view.modules(plan.dropout.node) if plan.dropout.module else []
            if not modules or any(module.p > 0 for module in modules):
                raise _No("dropout draws for the scores' axes in another order than attention()")
            plan.dropout = None
        before, self.gone = self.gone, self.gone | {id(part) for part in self.consumed}
        try:
            self.check_scores(plan, at, flow, scores)
            start = self.check_weights(plan, place, flow, others, order)
            self.ungroup(plan)
            self.check_changes(plan, at, start, place)
        except _No:
            self.gone = before
            raise
        for word in ("attended", "visible", "written"):
            name = word
            while name in self.taken:
                name += "_"
            plan.names[word] = name
            self.taken.add(name)

    def later(self, key):
        """Whether a name is read after the block."""
        end = self.block[-1].end_lineno
        return any(_key(part) == key and not _stored(part) and part.lineno > end for part in ast.walk(self.function))

    def check_scores(self, plan, at, flow, scores):
        inside = {id(part) for part in ast.walk(plan.use)}
        for key in self.chain:
            for n in range(self.first, len(self.block)):
                statement = self.block[n]
                if n > at and (key in flow or self.touches(statement, key) and id(statement) not in self.gone):
                    break
                for load in self.reads_of(statement, key):
                    if id(load) not in inside:
                        self.read_again(plan, load, scores)
            for load in self.emitted(key):
                self.read_again(plan, load, scores)
            if key not in flow and self.later(key):
                raise _No("the scores are read again after the block")

    def check_weights(self, plan, place, flow, others, order):
        """Notes the weights that something else reads; returns the statement number where the call stands."""
        for key in flow:
            for n in range(place + 1, len(self.block)):
                if self.reads_of(self.block[n], key):
                    others.append(flow[key])
                if self.touches(self.block[n], key):
                    break
        others += [flow[key] for key in flow if key.startswith("self.") or self.later(key)]
        wanted = [item for n, item in enumerate(others) if item not in others[:n]]
        if len(wanted) > 1 or any(state == "Reshaped" for _, _, state, _ in wanted):
            raise _No("weights are read before and after dropout" if len(wanted) > 1 else "the weights are read in another shape")
        for key, statement, state, letters in wanted:
            start = next((n for n, part in enumerate(self.block) if part is statement), None)
            if start is None:
                raise _No("the weights are read and the softmax is in a branch")
            moved = not any(self.reads_of(part, key) for part in self.block[start + 1 : place])
            plan.wanted = (state, statement.value, [order.index(x) for x in letters], statement, moved)
            if not moved:
                plan.consumed.remove(statement)
                self.gone.discard(id(statement))
                return start
        return place

    def check_changes(self, plan, at, start, place):
        """Names of the arguments must not change before the call, except those of masks, which can be gathered earlier."""
        fixed = _names(plan.q.node, plan.k.node)
        factors = [(_names(factor.node) - self.chain, factor.node.lineno) for factor in self.factors]
        for factor in self.factors:
            tests = {id(test) for test, _ in factor.conditions}
            held = {x for s in ast.walk(self.function) if isinstance(s, ast.If) and id(s.test) in tests for part in s.body + s.orelse for x in _targets(part)}
            if _names(factor.node) & held:
                raise _No(f"line {factor.node.lineno}: a factor is computed in a branch")
        late = _names(plan.v.node, plan.dropout and plan.dropout.node)
        kept = plan.wanted[3] if plan.wanted else None
        for n in range(self.first, place):
            parts = list(self.alive(self.block[n]))
            changed = {key for part in parts if isinstance(part, ast.stmt) for key in _targets(part)}
            after = any(changed & keys and self.block[n].lineno > line for keys, line in factors)  # a factor may be computed after the product
            if n > self.first and (changed & fixed or after) or n > start and changed & late:
                raise _No(f"line {self.block[n].lineno} changes an operand before the product with v")
            draws = any(self.called(part)[0] == "dropout" or self.modules(part.func, nn.Dropout)
                        for part in parts if isinstance(part, ast.Call))
            if plan.dropout and n > at and draws and self.block[n] is not kept:
                raise _No("another dropout draws between softmax and v")
            for mask in plan.masks:
                read = _names(mask.call) - self.chain if mask.call else _names(mask.node)
                plan.separate |= mask.statement.lineno < self.block[n].lineno and bool(changed & read)
        held = {id(s.test) for s in ast.walk(self.function) if isinstance(s, ast.If)
                and any(isinstance(part, ast.stmt) and part is not s for part in self.alive(s))}
        plan.separate |= any(id(test) in held for mask in plan.masks for test, _ in mask.conditions)
        plan.separate |= any(mask.form == "call" for mask in plan.masks)

    def read_again(self, plan, load, scores):
        """The scores' sizes, dtype or device may be read: they are those of q and k. Where nothing changes, the statement goes."""
        parent = self.parents[id(load)]
        if isinstance(parent, ast.Attribute) and _storage(parent) is load:
            load, parent = parent, self.parents[id(parent)]
        above = self.parents[id(parent)]
        owner = parent
        while not isinstance(owner, ast.stmt):
            owner = self.parents[id(owner)]
        idle = isinstance(owner, ast.Expr) and getattr(owner.value, "func", None) is parent and not parent.attr.endswith("_")
        if isinstance(owner, ast.Assert) or idle:
            plan.consumed.append(owner)
            return
        if self.rank(load) not in (len(scores), None):
            raise _No(f"the scores are read again (line {load.lineno})")
        if isinstance(parent, ast.Attribute) and parent.attr in ("dtype", "device", "type"):
            plan.reads.append((owner, load, None, None))
            return
        sizes = list(scores)
        if isinstance(parent, ast.Attribute) and parent.attr in ("shape", "size"):
            node = above if parent.attr == "size" else parent
            if parent.attr == "size" and above.args:
                index = self.value(above.args[0])
            else:
                above = self.parents[id(node)]
                index = None
                if isinstance(above, ast.Subscript):
                    part = above.slice
                    tail = isinstance(part, ast.Slice) and part.upper is None and isinstance(self.value(part.lower), int)
                    sizes = scores[self.value(part.lower) :] if tail else sizes
                    index = None if tail else self.value(part)
                    node = above
            if isinstance(index, int):
                plan.reads.append((owner, node, [sizes[index]], None))
                return
            target = owner.targets[0] if isinstance(owner, ast.Assign) and owner.value is node else None
            if index is None and isinstance(target, ast.Tuple) and len(target.elts) == len(sizes):
                plan.reads.append((owner, node, sizes, target.elts))
                return
            if index is None and node is not above:
                plan.reads.append((owner, load, "like", None))
                return
        if isinstance(parent, ast.Call) and self.called(parent)[0] in SHAPED:
            plan.reads.append((owner, load, "like", None))
            return
        raise _No(f"the scores are read again (line {load.lineno})")

    def emitted(self, key):
        """Where the call's own arguments read a name."""
        nodes = [factor.node for factor in self.factors] + [mask.node for mask in self.masks if not mask.call]
        return [part for node in nodes for part in ast.walk(node) if _key(part) == key and not _stored(part)]

    def ungroup(self, plan):
        """Takes k and v before heads were repeated: attention() reads a key head for each group of query heads."""
        found = []
        for term in (plan.k, plan.v):
            node, statement, key = term.node, None, _key(term.node)
            if key is not None:
                statement = next((s for s in reversed(self.block[: self.first]) if self.touches(s, key)), None)
                node = statement.value if isinstance(statement, ast.Assign) and _key(statement.targets[0]) == key else node
            dim = self.value(self.argument(node, 2, "dim")) if self.called(node)[0] == "repeat_interleave" else None
            if not isinstance(dim, int) or len(term.axes) < 4 or dim % len(term.axes) != term.axes[-3]:
                return
            inner = self.called(node)[1][0]
            after = self.block[self.block.index(statement) + 1 :] if statement else []
            if any(_names(inner) - {key} & set(_targets(part)) for part in after[: self.block.index(plan.statement)]):
                return
            loads = [(part, load) for part in after for load in self.reads_of(part, key) if load is not term.node]
            loads += [(plan.statement, load) for load in (self.emitted(key) if key else [])]
            for _, load in loads:
                parent = self.parents[id(load)]
                above = self.parents[id(parent)]
                places = [above.slice] if isinstance(above, ast.Subscript) else getattr(above, "args", [])
                index = self.value(places[0]) if places and getattr(parent, "attr", "") in ("shape", "size") else None
                if not isinstance(index, int) or index % len(term.axes) == term.axes[-3]:
                    return
            found.append((term, inner, statement, loads))
        for term, inner, statement, loads in found:
            term.node = inner
            if statement is not None:
                plan.consumed.append(statement)
                plan.reads += [(part, load, inner, None) for part, load in loads]
                self.gone.add(id(statement))

    # F.scaled_dot_product_attention.

    def fused(self, node, statement):
        self.start(self.block.index(statement))
        q, k, v, given, p, causal, scale = (
            self.argument(node, place, word)
            for place, word in enumerate(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")))
        scale = next((keyword.value for keyword in node.keywords if keyword.arg == "scale"), None)
        rank = self.rank(q)
        if rank is None or self.rank(k) != rank or self.rank(v) != rank:
            raise _No("the ranks of q, k and v differ")
        terms = [Term(part, list(range(rank)), []) for part in (q, k, v)]
        plan = Plan(node.lineno, self.function, self.block, node, statement, *terms, list(range(rank)), list(range(rank)), None)
        kind = self.view.kind(given) if given is not None else kinds.NONE
        if kind != kinds.NONE:
            if not isinstance(kind, kinds.Tensor) or kind.dtype not in "bf":
                raise _No("attn_mask is neither always bool nor always floating-point")
            self.mask(given, "keep" if kind.dtype == "b" else "bias", (), statement, -math.inf if kind.dtype == "b" else None)
            self.masks[-1].origin = ()
        if scale is not None and self.view.kind(scale) != kinds.NONE:
            if not self.is_number(scale):
                raise _No("scale is not always a number")
            self.factors.append(Factor("mul", scale))
            plan.scale = self.factors
        plan.masks, plan.causal = self.masks, causal
        plan.dropout = Dropout(p, False) if p is not None and self.view.constant(p) != 0 else None
        return plan


def _stored(node):
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def find(view, function, statements):
    """The plans of a function's statements, nested ones too, and the softmaxes that stay composed."""
    plans, declined = Plans(statements), []
    for block in _blocks(statements):
        finder = _Finder(view, function, block)
        for at, statement in enumerate(block):
            nested = {id(x) for inner in _inner(statement) for part in inner for x in ast.walk(part)}
            for node in ast.walk(statement):
                try:
                    if isinstance(node, ast.If) and node is statement:
                        plan = finder.branches(node, at)
                        plans += [plan] if plan else []
                        continue
                    if id(node) in nested or view.kind(node) is None or not isinstance(node, ast.Call):
                        continue
                    fused = finder.called(node)[0] == "scaled_dot_product_attention"
                    if not fused and not finder.softmax(node):
                        continue
                    if finder.inlined(node):
                        raise _No("it is inside of a comprehension or a lambda")
                    plans.append(finder.fused(node, statement) if fused else finder.attention(node, at))
                except _No as no:
                    declined.append(Declined(node.lineno, str(no)))
    used = {id(part) for plan in plans for part in plan.consumed}
    spans = [(part.lineno, part.end_lineno) for plan in plans for part in plan.consumed]
    return plans, [item for item in declined if not used or not any(a <= item.line <= b for a, b in spans)]


def _inner(statement):
    return [block for name in ("body", "orelse", "finalbody") if (block := getattr(statement, name, None))]


def _blocks(statements):
    yield statements
    for statement in statements:
        for block in _inner(statement):
            yield from _blocks(block)


# Numbers: the plan's definition in float64 against what the class computed.


def nodes_to_watch(plan):
    """The expressions whose values `settle` and `verify` need, of one call of the function."""
    nodes = [plan.q.node, plan.k.node, plan.v.node, plan.use, plan.causal]
    nodes += [factor.node for factors in (plan.scale or [], *(mask.factors for mask in plan.masks)) for factor in factors]
    for mask in plan.masks:
        nodes += [mask.node, mask.origin[1] if mask.origin else None, *(size for sizes in mask.view for size in sizes)]
        nodes += mask.call.args + [keyword.value for keyword in mask.call.keywords] if mask.call else []
    nodes += [test for item in (*(plan.scale or []), *plan.masks) for test, _ in item.conditions]
    return list({id(node): node for node in nodes if node is not None}.values())


def _arranged(x, axes):
    present = [axis for axis in axes if axis is not None]
    x = x.permute(present)
    for place, axis in enumerate(axes):
        x = x if axis is not None else x.unsqueeze(place)
    return x


def _holds(item, values):
    return all(bool(values.get(test.uid, negated)) != negated for test, negated in item.conditions)


def _scaled(x, factors, values):
    for factor in factors:
        if _holds(factor, values):
            y = values[factor.node.uid]
            x = x * y if factor.how == "mul" else x / y
    return x


def _term(mask, plan, shape, values):
    """A mask as the call gets it: a tensor of the scores' rank."""
    if mask.call:
        x = torch.zeros([shape[plan.layout[n]] for n in range(len(shape))])
        arguments = [x if node is mask.node else values[node.uid] for node in mask.call.args]
        masked = mask.function(*arguments, **{keyword.arg: values[keyword.value.uid] for keyword in mask.call.keywords})
        x = masked if mask.form == "returned" else x
    else:
        x = values[mask.node.uid]
    if mask.is_added:
        x = _scaled(torch.as_tensor(x).double() * mask.sign, mask.factors, values)
    if mask.view:
        x = x.expand([values[size.uid] for size in mask.view[0]]).reshape([values[size.uid] for size in mask.view[1]])
    x = x.reshape([1] * (len(shape) - x.dim()) + list(x.shape))
    return x.permute([plan.layout.index(n) for n in range(len(shape))])


def _triangle(x, hides):
    """Whether every matrix of a tensor hides just the keys after the query."""
    x = (x != 0) if not x.is_floating_point() or not x.isinf().any() else (x == 0) ^ hides
    later = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return bool(((x if hides else ~x) == later).all())


def settle(plan, runs):
    """Makes one mask Causal where every run shows a triangle; `runs` are the watched values by uid, one per call."""
    for mask in plan.masks:
        if any(other.causal for other in plan.masks):
            continue
        if mask.form == "call":
            shows = [_triangle(_term(mask, plan, _shape(plan, values), values), True) for values in runs if _holds(mask, values)]
            lead = _shape(plan, runs[0])[:-2] if runs else ()
            small = [_term(mask, plan, (*lead, *size), runs[0]) for size in ((3, 5), (5, 3)) if runs]
            alignment = "TopLeft" if small and all(_triangle(x, True) for x in small) else None
        elif mask.origin and mask.form != "bias":
            alignment, base, hides, _ = mask.origin
            node, hides = (base, hides) if base is not None else (mask.node, mask.form == "drop")
            shows = [_triangle(values[node.uid], hides) for values in runs if _holds(mask, values)]
            shows = [True] if shows and base is None and alignment == "BottomRight" else shows
        else:
            seen = [values.get(mask.node.uid) for values in runs]
            if mask.form == "bias" and any(isinstance(x, torch.Tensor) and x.isinf().any() for x in seen):
                mask.value = -math.inf
            continue
        if alignment and shows and all(shows):
            mask.causal = alignment
            definition = mask.origin[3] if mask.origin else None
            name = _key(definition.targets[0]) if definition is not None else None
            if name and sum(_key(node) == name and not _stored(node) for node in ast.walk(plan.function)) == 1:
                plan.consumed.append(definition)
    plan.notes += [plan.hides_rows_note] if plan.hides_rows else []


def _shape(plan, values):
    q, k = values[plan.q.node.uid], values[plan.k.node.uid]
    return *(q.shape[axis] for axis in plan.q.axes[:-1]), k.shape[plan.k.axes[-2]]


def verify(plan, values):
    """The largest difference of the call's definition from the value of `use` in an eval run, of the largest number."""
    try:
        return _difference(plan, values)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return math.inf


def _difference(plan, values):
    q, k, v = (_arranged(values[term.node.uid].double(), term.axes) for term in (plan.q, plan.k, plan.v))
    if q.dim() < 4 and q.shape[:-2] != k.shape[:-2] or q.shape[:-3] != k.shape[:-3] or k.shape[:-1] != v.shape[:-1]:
        return math.inf
    factors = plan.scale if plan.scale is not None else []
    for factor in (factor for factor in factors if factor.tensor):
        y = values[factor.node.uid]
        if y.numel() > 1 and (y.shape[-1] != 1 or y.dim() > q.dim()):
            return math.inf
    if q.dim() > 3 and q.shape[-3] != k.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-2, -1)
    scores = scores / math.sqrt(q.shape[-1]) if plan.scale is None else _scaled(scores, factors, values)
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    for mask in plan.masks:
        if not _holds(mask, values) or (mask.optional and values[mask.node.uid] is None):
            continue
        if mask.causal:
            offset = 1 + (scores.shape[-1] - scores.shape[-2] if mask.causal == "BottomRight" else 0)
            hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).triu(offset)
            continue
        x = _term(mask, plan, scores.shape, values)
        if any(size not in (1, full) for size, full in zip(x.shape, scores.shape, strict=True)):
            return math.inf
        if mask.is_added:
            scores = (scores + x).float().double()  # beside a large number the scores lose digits in Python and in attention(), too
        else:
            hidden = hidden | ((x != 0) if mask.form == "drop" else (x == 0))
    if plan.causal is not None and values[plan.causal.uid]:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, -math.inf)
    dead = (scores == -math.inf).all(-1, keepdim=True)
    plan.hidden_rows_seen |= bool(dead.any())
    out = scores.softmax(-1).masked_fill(dead, 0) @ v
    there, out, dead = values[plan.use.uid].double(), out.permute(plan.out), dead.expand(out.shape).permute(plan.out)
    if there.shape != out.shape:
        return math.inf
    difference = (there - out).abs().masked_fill(dead & (not plan.fills_hidden), 0).max()
    return float(difference / there.masked_fill(dead, 0).abs().max().clamp_min(1e-30)) if not difference.isnan() else math.inf


# The text of the call.


def _reordered(code, axes):
    """The code of a tensor whose axes are put in order; None stands for an axis to add."""
    present = [axis for axis in axes if axis is not None]
    code = kinds.primary(code) if axes != sorted(present) else code
    if present != sorted(present):
        swap = present[:-2] == sorted(present)[:-2]
        code += ".transpose(-2, -1)" if swap else f".permute({{{', '.join(map(str, present))}}})"
    return code + "".join(f".unsqueeze({place})" for place, axis in enumerate(axes) if axis is None)


def _condition(f, item):
    tests = [(f.condition(test), negated) for test, negated in item.conditions]
    if len(tests) == 1 and not tests[0][1]:
        return tests[0][0]
    return " && ".join(f"{'!' if negated else ''}{kinds.primary(test)}" for test, negated in tests)


def _times(f, code, factors):
    for factor in factors:
        one = f.primary(factor.node)
        one = f"({_condition(f, factor)} ? {one} : 1.0)" if factor.conditions else one
        whole = code is None and factor.how == "mul" and f.kind(factor.node) == kinds.FLOAT
        code = one if whole else f"{code or '1.0'} {'*' if factor.how == 'mul' else '/'} {one}"
    return code


def _mask(f, plan, mask, code=None):
    """The code of one mask, whether or not its conditions hold."""
    rank, full = mask.rank, len(plan.layout)
    if mask.form == "returned":
        f.substitute(mask.node, _zeros(f, plan), f.kind(mask.node))
    code = code or f.code(mask.call if mask.form == "returned" else mask.node)
    if mask.is_added:
        code = _times(f, kinds.primary(code), mask.factors) if mask.factors else code
        code = f"-{kinds.primary(code)}" if mask.sign < 0 else code
    elif f.kind(mask.node).dtype not in "bi":
        code = f"{kinds.primary(code)} != 0"
    if mask.view:
        before, after = ("{" + ", ".join(f.code(size) for size in sizes) + "}" for sizes in mask.view)
        code, rank = f"{kinds.primary(code)}.expand({before}).reshape({after})", len(mask.view[1])
    straight = plan.layout == sorted(plan.layout)
    if not straight or rank < 2 or 2 < rank < full and (rank, full) != (3, 4):
        code = kinds.primary(code) + ".unsqueeze(0)" * ((2 - rank if straight and rank < 2 else full - rank))
        rank = max(2, rank) if straight and rank < 2 else full
    code = code if straight else _reordered(code, [plan.layout.index(n) for n in range(full)])
    word = {"keep": "keep", "drop": "hide"}.get(mask.form, "bias")
    code = f"attentive::Mask::{word}({code})"
    return f"attentive::Mask::per_head({code})" if (rank, full) == (3, 4) else code


def _write(f, plan):
    """Puts the call in the place of the product with v; returns the lines before it."""
    q, k, v = (_reordered(f.code(term.node), term.axes) for term in (plan.q, plan.k, plan.v))
    options, factors = [], plan.scale
    if factors is not None:
        for factor in (factor for factor in factors if factor.tensor):
            q = f"{kinds.primary(q)} {'*' if factor.how == 'mul' else '/'} {f.primary(factor.node)}"
        options.append(f".scale = {_times(f, None, [factor for factor in factors if not factor.tensor]) or '1.0'}")
    for mask in plan.masks:
        if mask.causal:
            test, value = _condition(f, mask), f"attentive::Causal::{mask.causal}"
            options.append(f".causal = {f'{test} ? {value} : attentive::Causal::None' if test else value}")
    if plan.causal is not None and f.constant(plan.causal) is not False:
        value, always = "attentive::Causal::TopLeft", f.constant(plan.causal) is True
        options.append(f".causal = {value if always else f'{f.condition(plan.causal)} ? {value} : attentive::Causal::None'}")
    if plan.dropout:
        options += [f".dropout_p = {_probability(f, plan.dropout)}", ".dropout_stream = kDraws"]
    masks = []
    for mask in plan.masks:
        if not mask.causal and not plan.separate:
            tests = [x for x in (_condition(f, mask), f"{f.primary(mask.node)}.defined()" if mask.optional else "") if x]
            code = _mask(f, plan, mask)
            masks.append(f"{' && '.join(tests)} ? {code} : attentive::Mask()" if tests else code)
    if len(masks) > 1:
        masks = [" & ".join(f"({mask})" if " ? " in mask else mask for mask in masks)]
    masks = [plan.names["visible"]] if plan.separate and any(not mask.causal for mask in plan.masks) else masks
    call = f"attentive::attention({q}, {k}, {v}, {{{', '.join(options)}}}"
    kind = f.kind(plan.use)
    if not plan.wanted:
        call, lines, drawn = f"{call}{''.join(f', {mask}' for mask in masks)})", [], plan.dropout and f.draws(plan.statement)
        if drawn and f.draws(plan.use):  # dropout is within the product
            f.drawing.add(plan.use.uid)
        elif drawn:  # it draws before anything that the product's statement draws
            lines, call = [f"const auto {plan.names['attended']} = {call};"], plan.names["attended"]
        f.substitute(plan.use, _reordered(call, plan.out) + (".contiguous()" if _drawn_from(f, plan) else ""), kind)
        return lines
    state, node, axes = plan.wanted[:3]
    extras = [f".mask = {mask}" for mask in masks] + [f".weights = attentive::Weights::{state}"]
    name = plan.names["attended"]
    f.substitute(plan.use, _reordered(f"{name}.output", plan.out), kind)
    f.substitute(node, _reordered(f"{name}.weights", axes), f.kind(node))
    return [f"const auto {name} = {call}, {{{', '.join(extras)}}});"]


def _probability(f, dropout):
    p, tests = f.code(dropout.node) if dropout.node is not None else "0.5", [_condition(f, dropout)] if dropout.conditions else []
    if dropout.module:
        member = f.primary(dropout.node)
        p, tests = f"{member}->options.p()", [*tests, f"{member}->is_training()"]
    elif dropout.training is not None and f.constant(dropout.training) is not True:
        tests.append(f.condition(dropout.training))
    tests = tests if len(tests) < 2 else [kinds.primary(test) for test in tests]
    return f"{' && '.join(tests)} ? {kinds.primary(p)} : 0.0" if tests else p


def apply(f, plans):
    """The statements without what the plans consume, with an `Emitted` before each that needs substitutions or lines."""
    before, instead, statements = {}, {}, plans.statements
    for plan in plans:
        instead.update({id(statement): [] for statement in plan.consumed})
        for statement, node, letters, names in plan.reads:
            _sizes(before, instead, plan, statement, node, letters, names)
        masks = [mask for mask in plan.masks if not mask.causal] if plan.separate else []
        for mask in masks:
            _gather(before, instead, plan, mask)
        if masks:
            top = next(s for s in plan.block if any(part is mask.statement for mask in masks for part in ast.walk(s)))
            declare = Emitted(lambda f, name=plan.names["visible"]: [f"attentive::Mask {name};"])
            (instead if id(top) in instead else before).setdefault(id(top), []).insert(0, declare)
        moved = bool(plan.wanted) and plan.wanted[4]
        target = plan.wanted[3] if plan.wanted and not moved else plan.statement
        before.setdefault(id(target), []).append(Emitted(lambda f, plan=plan: _write(f, plan)))
        before[id(target)] += [plan.wanted[3]] if moved else []
    return _rebuilt(statements, before, instead)


def _drawn_from(f, plan):
    """Whether dropout is drawn over the call's output: it draws in the order of memory, so that order must be Python's."""
    target = plan.statement.targets[0] if isinstance(plan.statement, ast.Assign) else None
    for call in ast.walk(f.function):
        if isinstance(call, ast.Call) and call.args and f.call_draws(call):
            held = isinstance(target, ast.Name) and plan.statement.value is plan.use and isinstance(call.args[0], ast.Name) and call.args[0].id == target.id
            if call.args[0] is plan.use or held:
                return True
    return _makes_image(f, plan, target)


def _makes_image(f, plan, target):
    """Whether the output becomes an image of a network with dropout: convolutions keep the order in memory of what they get."""
    held = getattr(target, "id", "") if plan.statement is not None and getattr(plan.statement, "value", None) is plan.use else ""
    classes = [cls for cls in f.unit.instances if issubclass(cls, nn.Conv2d | nn.modules.dropout._DropoutNd)]
    if not {issubclass(cls, nn.Conv2d) for cls in classes} == {True, False}:
        return False
    views = [n for n in ast.walk(f.function) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "view" and getattr(f.kind(n), "rank", 0) == 4]
    return any(part is plan.use or held and getattr(part, "id", "") == held for view in views for part in ast.walk(view.func.value))


def _shape_code(f, plan):
    """The code of q and the sizes of the scores."""
    q = kinds.primary(f.code(plan.q.node))
    sizes = ["1" if axis is None else f"{q}.size({axis})" for axis in plan.q.axes[:-1]]
    sizes.append(f"{kinds.primary(f.code(plan.k.node))}.size({plan.k.axes[-2]})")
    return q, ", ".join(sizes[axis] for axis in plan.layout)


def _zeros(f, plan):
    q, sizes = _shape_code(f, plan)
    return f"torch::zeros({{{sizes}}}, {q}.options())"


def _gather(before, instead, plan, mask):
    name, place = plan.names["visible"], mask.statement

    def write(f):
        return [f"{name} &= {_mask(f, plan, mask)};"]

    def begin(f):
        f.substitute(mask.node, plan.names["written"], f.kind(mask.node))
        return [f"auto {plan.names['written']} = {_zeros(f, plan)};"]

    if mask.form == "call":
        end = Emitted(lambda f: [f"{name} &= {_mask(f, plan, mask, plan.names['written'])};"])
        instead[id(place)] = [Emitted(begin), place, end]
    elif id(place) in instead:
        instead[id(place)].append(Emitted(write))
    else:
        before.setdefault(id(place), []).append(Emitted(write))


def _sizes(before, instead, plan, statement, node, letters, names):
    """Reads of the scores' dtype, device or sizes are reads of q and k; `letters` may be another node that stands for it."""

    def size(f, letter):
        term = plan.q if letter in plan.q.letters else plan.k
        return f"{kinds.primary(f.code(term.node))}.size({term.letters.index(letter)})"

    def write(f):
        if letters == "like":
            q, sizes = _shape_code(f, plan)
            f.substitute(node, f"{q}.new_empty({{1}}).expand({{{sizes}}})", f.kind(node))
        elif isinstance(letters, ast.AST) or letters is None:
            f.substitute(node, f.code(plan.q.node if letters is None else letters), f.kind(node))
        else:
            for target, letter in zip(parts, letters, strict=True):
                f.substitute(target, size(f, letter), kinds.INT)
        return []

    parts = [node] if not names else [number(ast.copy_location(ast.Constant(0), node)) for _ in names]
    if names:
        assigns = [ast.copy_location(ast.Assign([name], part), statement) for name, part in zip(names, parts, strict=True)]
        instead[id(statement)] = [Emitted(write), *map(number, assigns)]
    else:
        (instead if id(statement) in instead else before).setdefault(id(statement), []).append(Emitted(write))


def _rebuilt(statements, before, instead):
    result = []
    for statement in statements:
        result += before.get(id(statement), [])
        if id(statement) in instead:
            result += instead[id(statement)]
            continue
        changes = any(id(part) in before or id(part) in instead for part in ast.walk(statement) if part is not statement)
        if _inner(statement) and changes:
            statement = copy.copy(statement)
            for name in ("body", "orelse", "finalbody"):
                if hasattr(statement, name):
                    setattr(statement, name, _rebuilt(getattr(statement, name), before, instead))
            if isinstance(statement, ast.If) and not statement.body and not statement.orelse:
                continue
            statement.body = statement.body or [number(ast.copy_location(ast.Pass(), statement))]
        result.append(statement)
    return result
