"""Runs Python code so that every expression's kind is known: the source is compiled with each expression wrapped."""

import ast
import collections
import copy
import itertools

import torch
from torch import nn

from .kinds import NONE, Entries, keyed, kind_of, merge

HOOK = "_attentive_port"
_uids = itertools.count(1)


def number(tree):
    """Gives each node of a tree a `uid`, under which its kind is recorded."""
    for node in ast.walk(tree):
        node.uid = next(_uids)
        if isinstance(node, ast.ClassDef):
            _mangle(node)
    return tree


def _mangle(cls):
    """Writes names such as __x as Python stores them."""
    prefix = f"_{cls.name.lstrip('_')}"
    for node in ast.walk(cls):
        for field in ("attr", "id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__") and node is not cls:
                setattr(node, field, prefix + name)


class Recorder:
    """What was seen, by node. `owners`, where given, are ids of modules: only what their methods saw counts."""

    def __init__(self):
        self._kinds = collections.defaultdict(dict)  # uid -> {(owner, kind): modules seen}
        self._values = collections.defaultdict(dict)  # uid -> {(owner, value): None}
        self._branches = set()
        self.parameters = set()  # uids of expressions that were an nn.Parameter
        self._arguments = collections.defaultdict(lambda: collections.defaultdict(dict))
        self._returns = collections.defaultdict(dict)
        self._calls, self._keywords = collections.Counter(), collections.defaultdict(dict)
        self._stack = [None]
        self._alive = {}  # modules by id, so that no id is used twice
        self.paused = False
        self.captured = {}  # function's uid -> the watched values of each call
        self._watched, self._frames = frozenset(), []

    def watch(self, uids):
        """From now on keeps the values of these nodes, by function and call."""
        self._watched, self.captured = frozenset(uids), self.captured if not uids else {}

    # What the wrapped code calls.

    def see(self, uid, value):
        """Notes an expression's value and returns it."""
        if uid in self._watched and self._frames:
            self._frames[-1][1][uid] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        if self.paused:
            return value
        kind, owner = kind_of(value), self._stack[-1]
        modules = self._kinds[uid].setdefault((owner, kind), {})
        if isinstance(value, nn.Parameter):
            self.parameters.add(uid)
        if isinstance(value, nn.Module):
            modules[id(value)] = self._alive[id(value)] = value
        elif value is None or isinstance(value, bool | int | float | str):
            values = self._values[uid]
            if len(values) < 64:
                values[(owner, type(value), value)] = None
        return value

    def keyed(self, uid, value):
        """Notes the value of an expression that, if it is a dict, is read by keys which the source does not write, and returns it."""
        return self.see(uid, keyed(value))

    def entries(self, uid, value):
        """Notes the dict of a comprehension and returns it."""
        return self.see(uid, Entries(value))

    def enter(self, uid, names):
        """A function begins; `names` are its arguments."""
        self._frames.append((uid, {}))
        owner = names.get("self")
        if isinstance(owner, nn.Module) and not self.paused:
            self._alive[id(owner)] = owner
            self._stack.append(id(owner))
        else:
            self._stack.append(None)
        if not self.paused:
            self._calls[uid] += 1
            for name, value in names.items():
                if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
                    self._note_keywords(uid, name, value)
                if name != "self" or not isinstance(owner, nn.Module):
                    seen = self._arguments[uid][name].setdefault((self._stack[-1], kind_of(value)), {})
                    if isinstance(value, nn.Module):
                        seen[id(value)] = self._alive[id(value)] = value

    def _note_keywords(self, uid, name, value):
        for key, item in value.items():
            seen = self._keywords[uid, name].setdefault(key, [0, {}, []])
            seen[0] += 1
            seen[1][self._stack[-1], kind_of(item)] = None
            if isinstance(item, nn.Module):
                seen[2].append(item)

    def keywords(self, function, name):
        """Kinds of the entries of **name by key, and whether every call had them."""
        found = self._keywords.get((function.uid, name), {})
        return {key: (merge([k[1] for k in seen]), count == self._calls[function.uid]) for key, (count, seen, _) in found.items()}

    def no_keywords(self, function, name):
        """Whether nothing but None was given by **name."""
        return all(merge([k[1] for k in seen]) == NONE for _, seen, _ in self._keywords.get((function.uid, name), {}).values())

    def leave(self):
        self._stack.pop()
        uid, values = self._frames.pop()
        if values and len(self.captured.setdefault(uid, [])) < 64:
            self.captured[uid].append(values)

    def branch(self, uid, name):
        self._branches.add((uid, name))

    def returned(self, uid, value):
        if not self.paused:
            self._returns[uid].setdefault((self._stack[-1], kind_of(value)), {})
        return value

    # What the translation asks.

    @staticmethod
    def _pick(seen, owners):
        return [key[1:] for key in seen if owners is None or key[0] in owners]

    def kind(self, node, owners=None):
        """The kind of an expression, None if it never ran."""
        return merge([key[0] for key in self._pick(self._kinds.get(getattr(node, "uid", None), ()), owners)])

    def values(self, node, owners=None):
        """The numbers, words and Nones that an expression was, in order."""
        return [key[1] for key in self._pick(self._values.get(getattr(node, "uid", None), ()), owners)]

    def modules(self, node, owners=None):
        """The modules that an expression was."""
        seen = self._kinds.get(getattr(node, "uid", None), {})
        return [m for key, found in seen.items() if owners is None or key[0] in owners for m in found.values()]

    def ran(self, node, branch):
        """Whether a branch of an `if` ran: "body" or "orelse"."""
        return (node.uid, branch) in self._branches

    def called(self, function):
        return function.uid in self._arguments or function.uid in self._returns

    def argument(self, function, name, owners=None):
        """The kind of a function's argument, None if it was never called."""
        return merge([key[0] for key in self._pick(self._arguments[function.uid].get(name, ()), owners)])

    def argument_modules(self, function, name, owners=None):
        seen = self._arguments[function.uid].get(name, {})
        return [m for key, found in seen.items() if owners is None or key[0] in owners for m in found.values()]

    def returns(self, function, owners=None):
        return merge([key[0] for key in self._pick(self._returns.get(function.uid, ()), owners)])


class _Wrap(ast.NodeTransformer):
    def __init__(self, keyed):
        self.functions, self.keyed = [], keyed
        self.classes = 0

    @staticmethod
    def _hook(method, *arguments, at):
        call = ast.Call(ast.Attribute(ast.Name(HOOK, ast.Load()), method, ast.Load()), list(arguments), [])
        return ast.copy_location(call, at)

    def _wrapped(self, node, uid):
        return self._hook("keyed" if uid in self.keyed else "see", ast.Constant(uid), node, at=node)

    def _expression(self, node):
        uid = node.uid
        self.generic_visit(node)
        return self._wrapped(node, uid) if isinstance(getattr(node, "ctx", None) or ast.Load(), ast.Load) else node

    visit_Attribute = visit_Name = visit_BinOp = visit_Compare = visit_BoolOp = visit_UnaryOp = visit_IfExp = _expression
    visit_Tuple = visit_List = visit_Dict = visit_ListComp = visit_Set = visit_SetComp = _expression
    visit_Lambda = visit_Constant = _expression

    def visit_DictComp(self, node):
        self.generic_visit(node)
        return self._hook("entries", ast.Constant(node.uid), node, at=node)

    def visit_GeneratorExp(self, node):
        self.generic_visit(node)
        return node

    def visit_JoinedStr(self, node):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
        return node

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals"):
            return node
        uid = node.uid
        function = node.func
        is_super = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and getattr(function.value.func, "id", "") == "super"
        if not is_super:
            node.func = self.visit(function)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [ast.copy_location(ast.keyword(k.arg, self.visit(k.value)), k) for k in node.keywords]
        return self._wrapped(node, uid)

    def visit_Starred(self, node):
        node.value = self.visit(node.value)
        return node

    def visit_AnnAssign(self, node):
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Slice(self, node):
        return ast.copy_location(ast.Slice(*(part and self.visit(part) for part in (node.lower, node.upper, node.step))), node)

    def visit_Subscript(self, node):
        uid = node.uid
        node.value = self.visit(node.value)
        index = node.slice
        if isinstance(index, ast.Tuple):
            index.elts = [self.visit(part) for part in index.elts]
        else:
            node.slice = self.visit(index)
        return self._wrapped(node, uid) if isinstance(node.ctx, ast.Load) else node

    def _block(self, body, uid, name):
        begin = ast.Expr(self._hook("branch", ast.Constant(uid), ast.Constant(name), at=body[0]))
        return [ast.copy_location(begin, body[0]), *(self.visit(statement) for statement in body)]

    def visit_If(self, node):
        node.test = self.visit(node.test)
        node.body = self._block(node.body, node.uid, "body")
        if node.orelse:
            node.orelse = self._block(node.orelse, node.uid, "orelse")
        return node

    def visit_Try(self, node):
        for part in ("body", "orelse", "finalbody"):
            setattr(node, part, [self.visit(statement) for statement in getattr(node, part)])
        for handler in node.handlers:
            handler.body = self._block(handler.body, node.uid, "handler")
        return node

    def visit_match_case(self, node):
        node.guard = node.guard and self.visit(node.guard)
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_Return(self, node):
        if node.value is not None:
            value = self.visit(node.value)
            node.value = self._hook("returned", ast.Constant(self.functions[-1].uid), value, at=node)
        return node

    def visit_FunctionDef(self, node):
        self.functions.append(node)
        document = [node.body[0]] if ast.get_docstring(node) is not None else []
        body = [self.visit(statement) for statement in node.body[len(document) :]]
        self.functions.pop()
        names = ast.Call(ast.Name("dict", ast.Load()), [ast.Call(ast.Name("locals", ast.Load()), [], [])], [])
        enter = ast.Expr(self._hook("enter", ast.Constant(node.uid), names, at=node))
        leave = ast.Expr(self._hook("leave", at=node))
        guarded = ast.Try(body or [ast.Pass()], [], [], [leave])
        node.body = [*document, ast.copy_location(enter, node), ast.copy_location(guarded, node)]
        return node

    def visit_ClassDef(self, node):
        node.body = [self.visit(item) if isinstance(item, ast.FunctionDef) else item for item in node.body]
        return node


def _keyed_nodes(tree):
    """The uids of what, if it is a dict, a tree loops over, or reads or changes by keys that it does not write; of no **kwargs."""
    keywords = {n.args.kwarg.arg for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.args.kwarg}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = node.func.attr in ("get", "pop") and node.args and not isinstance(node.args[0], ast.Constant)
            found += [node.func.value] * bool(asked or node.func.attr in ("items", "keys", "values") and not node.args)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("list", "tuple", "set", "sorted", "enumerate", "zip"):
            found += node.args
        elif isinstance(node, ast.For | ast.comprehension):
            found.append(node.iter)
        elif isinstance(node, ast.Dict):
            found += [item for key, item in zip(node.keys, node.values, strict=True) if key is None]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn) and not isinstance(node.left, ast.Constant):
            found.append(node.comparators[0])
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Constant):
            found.append(node.value)
    of_modules = ("_parameters", "_buffers", "_modules", "__dict__")
    return (n.uid for n in found if hasattr(n, "uid") and getattr(n, "id", None) not in keywords and getattr(n, "attr", None) not in of_modules)


def instrumented(node):
    """A definition's copy that tells `HOOK`, a Recorder in its module's namespace, what it computes. The node has uids."""
    wrapped = _Wrap(set(_keyed_nodes(node))).visit(copy.deepcopy(node))
    return ast.fix_missing_locations(wrapped)
