"""Statements of Python as statements of C++."""

import ast
import collections
import copy
import functools
import inspect
import re

import torch
from torch import nn

from . import kinds, modules, names, schema
from .expressions import is_none, list_of, recalled, super_call
from .kinds import Class, Config, Function, List, Many, Map, Module, Optional, Refusal, Size, Tensor, Tuple, is_own, merge, primary
from .names import cpp_type, identifier

_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_TELLING = set(
    "print format sum len str int float round max min numel size dim parameters named_parameters children named_children "
    "modules named_modules".split()
)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With)


def tells(node):
    """Whether it is a call that only tells what happens: prints, logs or warns."""
    text = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return text == "print" or text.startswith(("logger.", "logging.", "warnings."))


def stored_names(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def changed_names(*trees):
    """Names of lists and tensors that are changed in place, by a method of lists or by an entry."""
    nodes = [n for tree in trees for n in ast.walk(tree)]
    called = [n.func.value for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
              and n.func.attr in ("append", "extend", "insert", "pop", "reverse", "clear", "sort", "update")]
    return {n.id for n in [*called, *(n.value for n in nodes if isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load))] if isinstance(n, ast.Name)}


def member_of(node):
    """The name of an attribute of self, None for any other node."""
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self" else None


def _is_empty(kind):
    """Whether it is a list or tuple without entries, which may get some."""
    return isinstance(kind, List) and kind.item is None or kind == Tuple()


class _Apart(ast.NodeTransformer):
    """Puts a local in the place of a member."""

    def __init__(self, member, name):
        self.member, self.name = member, name

    def visit_Attribute(self, node):
        if member_of(node) != self.member:
            return self.generic_visit(node)
        local = ast.copy_location(ast.Name(self.name, node.ctx), node)
        local.uid = node.uid
        return local


class Statements:
    """The part of a function's translation that knows statements. See emit.Translator for the fields."""

    def named_apart(self, function):
        """The function with locals for what members hold before they become modules, where statements of one block show it."""
        stored = collections.Counter(member_of(n) for n in ast.walk(function) if isinstance(getattr(n, "ctx", None), ast.Store))
        if self.cls is None or not any(count > 1 for name, count in stored.items() if name):
            return function
        function = copy.deepcopy(function)
        blocks = [block for part in ast.walk(function) for block in (getattr(part, "body", ()), getattr(part, "orelse", ()))]
        for block in (block for block in blocks if isinstance(block, list)):
            alone = [(at, s) for at, s in enumerate(block) if isinstance(s, ast.Assign) and len(s.targets) == 1]
            for member, at in {member_of(s.targets[0]): at for at, s in alone}.items():
                first = next((n for n, s in enumerate(block[:at]) if any(member_of(part) == member for part in ast.walk(s))), at)
                if member and first < at and self.is_apart(member, block[first:at], block[at].value):
                    name, used = f"{member}_before", {getattr(n, "id", getattr(n, "arg", None)) for n in ast.walk(function)}
                    name += "_" * (name in used)
                    block[first:at] = [_Apart(member, name).visit(s) for s in block[first:at]]
                    block[at].value = _Apart(member, name).visit(block[at].value)
                    if isinstance(self.kind(block[first].value), Module):  # an nn.ModuleList that only gathers layers
                        items = List(Many((Module(nn.Linear), Module(nn.ReLU))))  # of any class
                        block[first].value = self.stand_for("std::vector<torch::nn::AnyModule>()", items, block[first].value)
        return function

    def is_apart(self, member, before, value):
        """Whether a member is given what is no module, and nothing else sees that until `value`, a module, takes its place."""
        held, parts, recorder = before[0], [part for s in (*before, value) for part in ast.walk(s)], self.unit.recorder
        kind = recorder.kind(value, self.owners)
        sets = isinstance(held, ast.Assign) and len(held.targets) == 1 and member_of(held.targets[0]) == member
        if not sets or not all(isinstance(k, Module) for k in getattr(kind, "kinds", (kind,))):
            return False
        for part in parts:
            method = member_of(part.func) if isinstance(part, ast.Call) else None
            if method and self.mentions(method, member) or isinstance(part, ast.Lambda | ast.FunctionDef | ast.Return):
                return False
        whole = sum(isinstance(part, ast.Name) and part.id == "self" for part in parts) - sum(map(bool, map(member_of, parts)))
        if whole or any(member_of(part) == member for part in ast.walk(held.value)):
            return False
        loads = [part for part in parts if member_of(part) == member and isinstance(part.ctx, ast.Load)]
        seen = [recorder.kind(part, self.owners) for part in (held.value, *loads)]
        if seen[0] == Module(nn.ModuleList) and kind == Module(nn.Sequential):
            return isinstance(held.value, ast.Call) and not held.value.args
        return seen[0] is not None and not any(k == kinds.NONE or isinstance(k, Module | Many) for k in seen)

    def mentions(self, method, member, seen=()):
        """Whether a method of the class, or one that it calls, mentions a member."""
        definition = self.unit.loaded.definition(getattr(self.cls.cls, method, None))
        text = ast.unparse(definition[1]) if definition else ""
        called = set(re.findall(r"self\.(\w+)\(", text)) - {method, *seen}
        return bool(re.search(rf"self\.{member}\b|'{member}'", text)) or any(
            self.mentions(other, member, (method, *seen)) for other in called)

    def statements(self, body):
        for at, statement in enumerate(body):
            left = isinstance(body[at - 1], ast.If) and at > 0 and any(isinstance(n, ast.Return) for n in ast.walk(body[at - 1]))
            if left and self.never_reached(statement):
                self.never(statement.lineno)
                self.commented = max(self.commented, body[-1].end_lineno)
                return
            self.statement(statement)
            if isinstance(statement, ast.Return | ast.Raise):
                self.commented = max(self.commented, getattr(body[-1], "end_lineno", 0))
                return

    def never_reached(self, node):
        """Whether no part of a statement ran, which follows an `if` that returns."""
        if self.blind or not isinstance(node, ast.stmt):
            return False
        node = node.value or ast.Pass() if isinstance(node, ast.AnnAssign) else node  # annotations never run
        parts = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute | ast.Call | ast.Compare | ast.Constant) and isinstance(getattr(n, "ctx", None) or ast.Load(), ast.Load)]
        return bool(parts) and all(self.unit.recorder.kind(n) is None and getattr(n, "uid", None) not in self.substituted for n in parts)

    def statement(self, node):
        if not isinstance(node, ast.stmt):  # attend.Emitted, in the place of recognised attention
            for line in node.write(self):
                self.out(line)
            self.locals.update(getattr(node, "defines", {}))
            return
        self.comment_before(node)
        for name, kind in self.hoisted.pop(node.uid, {}).items():
            self.out(f"{cpp_type(kind, node)} {identifier(name)}{self.initial(kind)};", declares=identifier(name))
            self.locals[name] = kind
            self.outside.add(name)
        method = getattr(self, "statement_" + type(node).__name__, None)
        saved = self.ordered
        try:
            if method is None:
                raise Refusal(f"{type(node).__name__.lower()} statements have no translation", node)
            self.ordered = set(saved) | self.draw_order(node)
            method(node)
        except Refusal as refusal:
            refusal.path = refusal.path or self.path
            refusal.line = refusal.line or node.lineno
            raise
        self.ordered = saved
        self.comment_behind(node)

    @staticmethod
    def initial(kind):
        return {kinds.INT: " = 0", kinds.FLOAT: " = 0", kinds.BOOL: " = false", kinds.DEVICE: " = torch::kCPU",
                kinds.PACKED: "(torch::empty({0}), torch::empty({0}, torch::kLong))"}.get(kind, "{nullptr}" if isinstance(kind, Module) else "")

    # Comments.

    def comment_before(self, node):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for line in range(self.commented + 1, first):
            text, whole = self.comments.get(line, ("", False))
            if whole:
                self.out(f"// {text.lstrip('#! ').rstrip(names.COMMENT_END)}".rstrip())
        self.commented = max(self.commented, first - 1)

    def comment_behind(self, node):
        if isinstance(node, _BLOCKS):
            return
        for line in range(node.lineno, node.end_lineno + 1):
            text, whole = self.comments.get(line, ("", False))
            if text and not whole and line > self.commented and self.lines:
                depth, code = self.lines[-1]
                self.lines[-1] = (depth, f"{code}  // {text.lstrip('#! ').rstrip(names.COMMENT_END)}")
        self.commented = max(self.commented, node.end_lineno)

    # Declarations that C++ wants in an outer block.

    def plan_hoists(self, body):
        """Finds names that are bound in a block and read outside of it; they are declared before the block."""
        uses, hidden, loops = {}, set(), set()

        def expression(node, path, chain):
            for part in ast.walk(node):
                if isinstance(part, ast.ListComp | ast.GeneratorExp | ast.Lambda):
                    bound = {a.arg for a in part.args.args} if isinstance(part, ast.Lambda) else set().union(*(stored_names(g.target) for g in part.generators))
                    hidden.update(id(n) for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in bound)
            for part in sorted(ast.walk(node), key=lambda part: isinstance(getattr(part, "ctx", None), ast.Store)):  # what is read first
                if isinstance(part, ast.Name) and part.id != "_" and id(part) not in hidden and not isinstance(part.ctx, ast.Del):
                    uses.setdefault(part.id, []).append((path, isinstance(part.ctx, ast.Store), chain))

        def block(statements, path, chain):
            for node in statements:
                if not isinstance(node, ast.stmt):
                    continue
                here = (*chain, node)
                if isinstance(node, ast.If):
                    expression(node.test, path, here)
                    for branch in ("body", "orelse"):
                        if self.ran(node, branch):
                            known = ast.unparse(node.test).partition(" is None")
                            always = branch == "body" and known[1:] == (" is None", "") and known[0] in self.inline  # it loses its braces
                            block(getattr(node, branch), path if always else (*path, (id(node), branch)), here)
                elif isinstance(node, ast.For):
                    loops.add(id(node))
                    inner = (*path, (id(node), "body"))
                    expression(node.iter, path, here)
                    expression(node.target, inner, here)
                    block(node.body, inner, here)
                elif isinstance(node, ast.While | ast.With):
                    loops.update([id(node)] if isinstance(node, ast.While) else [])
                    for part in [node.test] if isinstance(node, ast.While) else [item.context_expr for item in node.items]:
                        expression(part, path, here)
                    block(node.body, (*path, (id(node), "body")), here)
                elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    expression(node.value, path, here)
                    uses.setdefault(node.target.id, []).append((path, False, here))
                elif not isinstance(node, ast.FunctionDef):
                    expression(node, path, here)

        block(body, (), ())
        for name, found in uses.items():
            stores = [use for use in found if use[1]]
            if name in self.locals or not stores or name in self.inline and self.inline[name][1] != kinds.NONE:
                continue
            counters = all(isinstance(chain[-1], ast.For) and path[-1:] == ((id(chain[-1]), "body"),) for path, _, chain in stores)
            if counters and all(any(path[: len(s)] == s for s, _, _ in stores) for path, _, _ in found):
                continue  # each loop has its own
            common = found[0][0]
            for path, _, _ in found:
                length = next((n for n, (a, b) in enumerate(zip(common, path, strict=False)) if a != b), min(len(common), len(path)))
                common = common[:length]
            for at, (path, stored, _) in enumerate(found):
                for depth, (block_id, _) in enumerate(path):
                    inside = [(n, p) for n, (p, is_store, _) in enumerate(found) if is_store and p[: depth + 1] == path[: depth + 1]]
                    before = [p for n, p in inside if n < at]
                    both = {p[:-1] for p in before for q in before if p[:-1] == q[:-1] and p[-1:] != q[-1:] and p[-1][0] == q[-1][0]}
                    if block_id in loops and not stored and inside and not any(path[: len(p)] == p for p in (*before, *both)):
                        common = common[:depth]  # the value of the round before
                        break
            if stores[0][0] != common:
                kind = kinds.STR if self.maker_sites(name) else self.assigned_kind(name)
                static = isinstance(kind, Class | Function) or isinstance(kind, Many) and any(isinstance(k, Class | Function) for k in kind.kinds)
                if kind is not None and not static and kind != kinds.NONE:
                    self.hoisted.setdefault(stores[0][2][len(common)].uid, {})[name] = kind

    def assigned_kind(self, name):
        """The kind that holds everything assigned to a local."""
        found = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    found += self.target_kinds(target, node.value, name)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                kind = self.kind(node.value)
                found.append(kinds.FLOAT if kind in kinds.NUMBERS and isinstance(node.op, ast.Div) else kind)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
                found.append(self.item_kind(node.iter))
            elif isinstance(node, ast.For) and name in stored_names(node.target):
                found += [self.unit.recorder.kind(n, self.owners) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name]
        if any(isinstance(kind, Tensor) for kind in found) and any(kind in kinds.NUMBERS for kind in found):
            found = [kind for kind in found if kind not in kinds.NUMBERS]  # numbers become tensors of no dimension
        inner = [kind.kind if isinstance(kind, Optional) else kind for kind in found]
        if any(_is_empty(kind) or isinstance(kind, List) and isinstance(kind.item, Module) for kind in inner):
            found = [self.unit.recorder.kind(n, self.owners) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name] + found
        whole = merge(found)
        if isinstance(whole, Optional) and not self.blind:  # None until it is set, and never read before
            read = [self.unit.recorder.kind(n, self.owners) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
            if not any(kind == kinds.NONE or isinstance(kind, Optional) for kind in read):
                return whole.kind
        return whole

    def target_kinds(self, target, value, name):
        if isinstance(target, ast.Name):
            if target.id != name:
                return []
            kind = self.kind(value)
            if isinstance(kind, Tuple) and (self.is_vector(value) or isinstance(value, ast.Tuple)) and kinds.is_tensors(kind):
                return [List(merge(list(kind.items)), len(kind.items))]
            return [self.vector_kind(value) or kind]
        if isinstance(target, ast.Tuple | ast.List):
            kind = self.kind(value)
            found = []
            for at, part in enumerate(target.elts):
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in value.elts):
                    found += self.target_kinds(part, value.elts[at], name)
                elif isinstance(part, ast.Name) and part.id == name:
                    found.append(self.element_kind(kind, at))
                elif isinstance(part, ast.Tuple):
                    inner = self.element_kind(kind, at)
                    found += [self.element_kind(inner, n) for n, p in enumerate(part.elts) if isinstance(p, ast.Name) and p.id == name]
            return found
        return []

    @staticmethod
    def element_kind(kind, at):
        if isinstance(kind, Tuple):
            return kind.items[at] if at < len(kind.items) else None
        if isinstance(kind, Config):
            return kind.field_kind(kind.value._fields[at]) if hasattr(kind.value, "_fields") else None
        if isinstance(kind, Size) or kind == kinds.RANGE:
            return kinds.INT
        if isinstance(kind, List | Map):
            return kind.item if isinstance(kind, List) else kind.key
        if kind == kinds.STR:
            return kind
        return Tensor(kind.dtype, kind.rank - 1 if kind.rank else None) if isinstance(kind, Tensor) else None

    def item_kind(self, node):
        if isinstance(node, ast.Call) and getattr(self.static(node.func), "__name__", "") == "range":
            return kinds.INT
        return self.element_kind(self.kind(node), 0)

    # Simple statements.

    def statement_Pass(self, node):
        pass

    def statement_Delete(self, node):
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and isinstance(
            self.locals.get(target.value.id), List) and self.kind(target.slice) == kinds.INT:
            name = identifier(target.value.id)
            at = self.local_copy(target.slice, "at")
            self.out(f"{name}.erase({name}.begin() + ({at} < 0 ? {at} + static_cast<int64_t>({name}.size()) : {at}));")
            return
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(self.kind(target.value), Map):
            self.out(f"{self.primary(target.value)}.erase({self.code(target.slice)});")
            return
        for target in node.targets:
            if isinstance(target, ast.Name):
                continue
            if self.constructor and isinstance(target, ast.Attribute) and self.is_self(target.value) and isinstance(self.cls.members.get(target.attr), Module):
                self.out(f'unregister_module("{target.attr}");')
                self.out(f"{self.member(target.attr)} = nullptr;")
                continue
            if isinstance(target, ast.Attribute) and self.is_self(target.value) and isinstance(self.cls.members.get(target.attr), Tensor):
                self.out(f"{self.member(target.attr)} = torch::Tensor();")
                continue
            entry = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute) and target.value.attr == "_parameters"
            if entry and isinstance(self.kind(target.value.value), Module):
                self.unit.helper("parameters_of")
                self.out(f"parameters_of({self.referred(target.value.value)}).erase({self.code(target.slice)});")
                continue
            raise Refusal(f"`{ast.unparse(node)}` has no translation; build the list without it", node)

    def statement_Try(self, node):
        """A try whose handlers only tell what failed, or never ran, is its body: what fails in it ends in an error."""
        fails = lambda part: isinstance(part, ast.Raise) or isinstance(part, ast.Assert) and getattr(part.test, "value", True) is False
        told = lambda part: isinstance(part, ast.Expr) and isinstance(part.value, ast.Call) and ast.unparse(part.value.func).startswith(("print", "log", "warn"))
        if node.finalbody:
            raise Refusal("a try with a finally has no translation", node)
        if not all(fails(handler.body[-1]) and all(map(told, handler.body[:-1])) for handler in node.handlers):
            entries = [n for part in node.body if isinstance(part, ast.stmt) for n in ast.walk(part) if isinstance(n, ast.Subscript) and not isinstance(self.kind(n.value), Tensor)]
            if self.ran(node, "handler") or self.blind or entries:  # C++ may read an entry that is not there
                raise Refusal("a try has no translation unless its handlers only tell what failed, or never ran; write an if", node)
            self.unit.never(self.path, node.handlers[0].body[0].lineno)
        self.statements([*node.body, *node.orelse])
        self.commented = node.end_lineno

    def statement_Global(self, node):
        raise Refusal(f"{', '.join(node.names)} is changed by a call; keep it in the module", node)

    statement_Nonlocal = statement_Global

    def statement_Import(self, node):
        space = {}
        try:
            exec(compile(ast.Module([node], []), "<import>", "exec"), dict(self.globals), space)
        except ImportError as error:
            raise Refusal(f"{error}", node) from None
        self.statics.update(space)

    statement_ImportFrom = statement_Import

    def statement_FunctionDef(self, node):
        """A nested function becomes a lambda."""
        if not self.unit.recorder.called(node):
            return
        inner = self.unit.translator(node, self.path, self.cls, self.owners, nested=self)
        signature = inner.signature()
        inner.translate()
        self.locals[node.name], self.nested_signatures[node.name] = kinds.CALLABLE, signature
        result = "" if signature.result == "void" else f" -> {signature.result}"
        kept = any(self.escapes(n) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == node.name and isinstance(n.ctx, ast.Load))
        if kept and (self.changing(node) or any(self.is_self(n) for n in ast.walk(node))):
            raise Refusal(f"{node.name} is kept, and reads self, or {', '.join(self.changing(node)) or 'members'}, which may change; make it a module", node)
        self.out(f"const auto {identifier(node.name)} = [{'=' if kept else '&'}]({signature.text(inner.body_text())}){result} {{")
        self.lines += [(self.depth + 1 + depth, text) for depth, text in inner.lines]
        self.out("};")

    def statement_Expr(self, node):
        value = node.value
        if isinstance(value, ast.Tuple):  # a comma behind a call
            for part in value.elts:
                self.statement_Expr(ast.copy_location(ast.Expr(part), node))
            return
        if isinstance(value, ast.Constant):
            return
        if isinstance(value, ast.Call):
            function = value.func
            name = getattr(self.static(function), "__name__", "")
            if getattr(function, "attr", "") == "update" and self.is_rest(function.value) and self.rest_keys([value]):
                for k in value.keywords:
                    self.out(f"std::get<{self.rest_place(k.arg, value)}>({identifier(function.value.id)}) = {self.code(k.value)};")
                return
            if getattr(function, "attr", "") == "extend" and self.listed(function.value) == Module(nn.ModuleList):
                self.fill(nn.ModuleList, self.code(function.value), value)
                return
            part = value.args[0] if getattr(function, "attr", "") == "append" and self.listed(function.value) == Module(nn.ModuleList) else None
            if isinstance(part, ast.IfExp) and kinds.NONE in (self.kind(part.body), self.kind(part.orelse)):
                self.push(self.code(function.value), part, listed=True)
                return
            if getattr(function, "attr", "") == "append" and isinstance(self.kind(function.value), List) and (choice := self.chosen_call(value.args[0])):
                self.each_choice(choice, lambda part: self.out(f"{self.container_method(recalled(value, function, [part], []), self.kind(function.value))};"))
                return
            if isinstance(function, ast.Attribute) and getattr(function.value, "id", None) in self.displays:
                self.code(value)  # a dict that C++ does not hold
                return
            if getattr(function, "attr", "") == "pop" and len(value.args) == 2 and isinstance(self.kind(function.value), Map):
                owner, key = self.primary(function.value), self.key_of(value.args[0])
                self.out(f"if ({owner}.count({key}) > 0) {owner}.erase({key});")
                return
            if name == "setattr" and self.is_self(value.args[0]):
                self.set_named(value.args[1], value.args[2], node)
                return
            if name == "setattr" and isinstance(word := self.word(value.args[1]), str):
                self.set_attribute(ast.copy_location(ast.Attribute(value.args[0], word, ast.Store()), node), value.args[2], node)
                return
            if name == "_assert":
                self.statement_Assert(ast.copy_location(ast.Assert(value.args[0], value.args[1]), node))
                return
            if name in ("seed", "manual_seed_all", "seed_all") and "torch.manual_seed" not in ast.unparse(function):
                self.note_left_out(node, "which seeds generators that the translation does not use")
                return
            if self.kind(value) == kinds.NONE and self.only_asserts(value):
                return
            if self.only_tells(value):
                self.note_left_out(node, "which only prints")
                return
            if name in ("print", "_log_api_usage_once") or tells(value) or isinstance(function, ast.Attribute) and names.is_setting(self.kind(function.value)):
                return
            if super_call(value) is not None:
                if super_call(value) == "__init__":
                    self.base_constructor(value)
                    return
            elif self.is_self(getattr(function, "value", None)) and self.cls is not None and self.register(function.attr, value):
                return
            if self.kind(value) == kinds.NONE and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and isinstance(
                self.kind(function.value), Config) and function.value.id not in self.local_names:
                self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: `{ast.unparse(function)}(...)` was left out, which returns nothing")
                return
            if isinstance(function, ast.Attribute) and function.attr == "add_module" and isinstance(self.kind(function.value), Module):
                self.out(f"{self.code(function.value)}->push_back({', '.join(self.code(a) for a in value.args)});")
                return
        if self.kind(value) is None and not isinstance(value, ast.Call):
            return
        self.out(self.code(value) + ";")

    def set_named(self, word, value, node):
        """An attribute whose name may be put together."""
        name = self.constant(word)
        if isinstance(name, str):
            self.set_member(name, value, node)
            return
        value = self.chosen_call(value) or value
        if isinstance(value, ast.IfExp) and isinstance(merge([self.kind(value.body), self.kind(value.orelse)]), Module | Many):
            self.each_choice(value, lambda part: self.set_named(word, part, node))
        elif isinstance(self.kind(value), Module):
            self.register_named(word, value)
        elif isinstance(self.kind(value), Tensor) and value.uid in self.unit.recorder.parameters:
            self.register_tensor("parameter", word, value)
        else:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: the name is no constant", node)

    def register_tensor(self, what, word, value):
        """Registers a parameter or a buffer under a name that is put together, and sets the member that it names."""
        members, wants = self.named_members(value), self.wants_gradient(value)
        made = isinstance(value, ast.Call) and self.static(value.func) is nn.Parameter and value.args
        wants = wants or (f"{self.code(value)}.requires_grad()" if getattr(value, "id", None) in self.told_gradient else None)
        self.cls.named = True
        text = self.local_copy(word, "name") if members else self.code(word)
        call = f"register_{what}({text}, {self.code(value.args[0] if made else value)}{', ' + wants if wants else ''})"
        if members:
            held = self.fresh("tensor")
            self.out(f"const auto {held} = {call};")
        else:
            self.out(f"{call};")
        for name, kind in members.items():
            self.cls.set(name, kind)
            self.out(f"if ({text} == {self.literal(name)}) {self.member(name)} = {held};")

    def register_named(self, word, value):
        """Registers a module under a name that is put together, as an entry of the container that the class is, and sets the member that it names."""
        members, base, held = self.named_members(value), list_of(Module(self.cls.cls)).cls, self.argument(value, self.kind(value))
        self.cls.named |= base not in (nn.ModuleDict, nn.Sequential)
        text = self.code(word)
        if members and not (held.isidentifier() and text.isidentifier()):
            text, layer = self.local_copy(word, "name"), self.fresh("layer")
            self.out(f"auto {layer} = {held};")
            held = layer
        if base is nn.ModuleDict:
            self.update("this", [(text, held)])
        elif base is nn.Sequential and self.runs_layers():
            self.out(f"push_back({text}, {self.as_layer(held) if self.kind(value) == Module(nn.Sequential) else held});")
        else:
            self.out(f"register_module({text}, {held});")
        for name, kind in members.items():
            self.cls.set(name, kind)
            layer = held if isinstance(kind, Module) else f"{held}.ptr()" if names.holds_container(kind) else f"torch::nn::AnyModule({held})"
            self.out(f"if ({text} == {self.literal(name)}) {self.member(name)} = {layer};")

    def named_members(self, value):
        """Members that the source reads by their names and never sets by them, and that may be this module or tensor: their kinds."""
        tensor = isinstance(self.kind(value), Tensor)
        where = "_modules" if not tensor else "_parameters" if value.uid in self.unit.recorder.parameters else "_buffers"
        found = {name for m in self.unit.instances.get(self.cls.cls, {}).values() for name, child in getattr(m, where).items() if child is not None}
        nodes = [n for source in self.unit.loaded.sources.values() for n in ast.walk(source.tree) if isinstance(n, ast.Attribute)]
        read = {n.attr for n in nodes if isinstance(n.ctx, ast.Load)}
        typed = [n.target for n in ast.walk(self.cls.tree) if isinstance(n, ast.AnnAssign) and n.value is None]
        stored = {member_of(n) for n in ast.walk(self.cls.tree) if isinstance(getattr(n, "ctx", None), ast.Store) and n not in typed}
        whole = {name: self.unit.attribute_kind(self.cls, name) for name in sorted(found & read - stored)}
        return {name: kind for name, kind in whole.items() if tensor or self.kind(value) in getattr(kind, "kinds", (kind,))}

    def before_base(self, call):
        """Writes out what the base's constructor is given and was computed before: C++ constructs the base first."""
        values = {}

        def spell(tree):
            for part in ast.walk(tree):
                if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load) and ast.unparse(part) in values:
                    self.substitute(part, *values[ast.unparse(part)])

        saved = self.renamed, self.locals
        self.renamed, self.locals = {}, {p.name: p.kind for p in self.signature().live()}
        for statement in self.body_nodes:
            if any(part is call for part in ast.walk(statement)):
                break
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name | ast.Attribute) and not self.draws(statement.value):
                spell(statement.value)
                values[ast.unparse(statement.targets[0])] = self.primary(statement.value), self.kind(statement.value)
        for part in (*call.args, *call.keywords):
            spell(part)
        self.renamed, self.locals = saved

    def base_constructor(self, call):
        if self.cls is None:  # of a plain class
            if call.args or call.keywords:
                raise Refusal("super().__init__ with arguments of a class that is no module", call)
            return
        base, rest = self.cls.base, self.function.args.kwarg
        if rest is not None and self.unit.recorder.no_keywords(self.function, rest.arg):  # **kwargs that are empty
            keywords = [k for k in call.keywords if k.arg is not None or ast.unparse(k.value) != rest.arg]
            call = ast.copy_location(ast.Call(call.func, call.args, keywords), call)
        if base not in (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict) and (call.args or call.keywords):
            self.before_base(call)
        if base is nn.Module or not (call.args or call.keywords):
            if base is not nn.Module and is_own(base):
                self.base_call = f"{names.class_name(base)}Impl({', '.join(self.bind(base.__init__, call, constructor=base))})"
            return
        if is_own(base):
            if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None and getattr(k.value, "id", None) not in self.displays for k in call.keywords):
                given = {k.arg: k.value for k in call.keywords if k.arg}
                signature = self.unit.inherited_arguments(self.function, self.cls)[0] or self.signature()
                texts = [self.code(given[p.name]) if p.name in given else identifier(p.name) for p in signature.live()]
                self.base_call = f"{names.class_name(base)}Impl({', '.join(texts)})"
                return
            self.base_call = f"{names.class_name(base)}Impl({', '.join(self.bind(base.__init__, call, constructor=base))})"
            return
        if base in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
            self.fill(base, "this", call)
            return
        if self.unit.options_of(self.function, self.path, self.cls) is base:
            self.base_call = f"{modules.holder(base)}Impl({self.more_options(base, call)})"
            return
        text = modules.construct(base, [self.operand(a) for a in call.args], self.keywords(call))
        self.unit.includes.update(modules.includes(text))
        self.base_call = f"{modules.holder(base)}Impl{text[text.index('('):]}"

    def register(self, name, call):
        """register_buffer, register_parameter and add_module of this class."""
        given = dict(zip(("name", "tensor", "persistent"), call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
        if name == "register_buffer":
            attribute, value = self.constant(given["name"]), given.get("tensor")
            if not isinstance(attribute, str) and "persistent" not in given and isinstance(self.kind(given.get("tensor")), Tensor):
                self.register_tensor("buffer", given["name"], given["tensor"])
                return True
            if not isinstance(attribute, str):
                raise Refusal("register_buffer of None, or with persistent, and with a name that is no constant", call)
            self.cls.set(attribute, merge([self.unit.attribute_kind(self.cls, attribute), Tensor()]))
            persistent = "persistent" not in given or self.constant(given["persistent"]) is True
            if not persistent:
                self.cls.unsaved.add(attribute)
            if value is None or is_none(value) or self.kind(value) == kinds.NONE:
                return True
            if persistent:
                self.out(f'{self.member(attribute)} = register_buffer("{attribute}", {self.code(value)});')
            else:
                self.out(f"{self.member(attribute)} = {self.code(value)};  // a buffer that is not saved")
            return True
        if name == "register_parameter":
            attribute, value = self.constant(given["name"]), call.args[1] if len(call.args) > 1 else call.keywords[-1].value
            if not isinstance(attribute, str):
                self.set_named(given["name"], value, call)
                return True
            if is_none(value) or self.kind(value) == kinds.NONE:
                self.cls.set(attribute, Tensor())
                return True
            self.set_member(attribute, value, call)
            return True
        if name in ("add_module", "register_module"):
            self.set_named(call.args[0], call.args[1], call)
            return True
        return False

    def only_tells(self, call):
        """Whether a call is of an own function or method that prints, and does nothing else than to count."""
        own = self.cls is not None and self.is_self(getattr(call.func, "value", None))
        target = getattr(self.cls.cls, call.func.attr, None) if own else self.static(call.func)
        definition = self.unit.loaded.definition(target) if inspect.isfunction(target) else None
        if definition is None or not isinstance(definition[1], ast.FunctionDef):
            return False
        nodes = [n for statement in definition[1].body for n in ast.walk(statement)]
        calls = [getattr(n.func, "id", getattr(n.func, "attr", "")) for n in nodes if isinstance(n, ast.Call)]
        plain = ast.Expr | ast.Assign | ast.AugAssign | ast.For | ast.If | ast.Return | ast.Pass
        stored = [n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Store)]
        return "print" in calls and set(calls) <= _TELLING and all(isinstance(n, ast.Name | ast.Tuple) for n in stored) and all(
            isinstance(n, plain) for n in nodes if isinstance(n, ast.stmt))

    def only_asserts(self, call):
        """Whether a call is of an own function that does nothing but assert or tell."""
        target = self.static(call.func)
        definition = self.unit.loaded.definition(target) if inspect.isfunction(target) else None
        effect = lambda s: isinstance(s, ast.Assert) or isinstance(s, ast.Expr) and tells(s.value)
        body = definition[1].body if definition is not None and isinstance(definition[1], ast.FunctionDef) else []
        return any(map(effect, body)) and all(
            effect(s) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
            or isinstance(s, ast.Assign) and all(isinstance(t, ast.Name) for t in s.targets) for s in body)

    def statement_Assert(self, node):
        try:
            test = self.condition(node.test)
        except Refusal:
            return
        if test != "true":
            message = self.literal(node.msg.value) if isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str) else schema.literal(ast.unparse(node.test)[:90])
            self.out(f"TORCH_CHECK({primary(test) if ',' in test else test}, {message});")

    def statement_Raise(self, node):
        error = node.exc
        text = f"line {node.lineno}"
        if isinstance(error, ast.Call) and error.args:
            argument = error.args[0]
            if isinstance(argument, ast.Constant):
                text = str(argument.value)
            elif isinstance(argument, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "..." for part in argument.values)
        self.out(f"C10_THROW_ERROR(Error, {schema.literal(text)});")

    def statement_Return(self, node):
        result = self.signature().result_kind
        if self.function.name == "train" and self.cls is not None and (node.value is None or self.is_self(node.value)):
            self.out("return;")
            return
        if node.value is None or result == kinds.NONE or result is None:
            self.out("return;")
            return
        value = node.value
        if isinstance(value, ast.IfExp) and isinstance(self.kind(value), Many):
            self.out(f"if ({self.condition(value.test)}) {{")
            self.depth += 1
            self.statement_Return(ast.copy_location(ast.Return(value.body), node))
            self.depth -= 1
            self.out("}")
            self.statement_Return(ast.copy_location(ast.Return(value.orelse), node))
            return
        if isinstance(result, Tuple) and not kinds.is_numbers(result):
            if isinstance(value, ast.Tuple):
                items = self.starless(value.elts)
                texts = [self.returned_item(item, kind) for item, kind in zip(items, result.items, strict=True)]
                self.out(f"return {{{', '.join(texts)}}};")
                return
            if self.is_vector(value):
                name = self.local_copy(value)
                self.out(f"return {{{', '.join(f'{name}[{n}]' for n in range(len(result.items)))}}};")
                return
        if self.kind(value) == kinds.NONE or is_none(value):
            self.out(f"return {names.nothing(result, node)};")
            return
        if isinstance(result, Tuple) and isinstance(self.kind(value), Tensor):
            self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: a tuple in C++, whose further items are empty here")
            self.out(f"return {{{', '.join([self.code(value), *(names.nothing(item, node) for item in result.items[1:])])}}};")
            return
        if isinstance(result, Config) and isinstance(self.kind(value), Tensor):
            first, *rest = result.value._fields
            self.unit.left_out.update((result.name, name) for name in rest)
            self.out(f"return {result.name}{{.{identifier(first)} = {self.code(value)}}};")
            return
        self.out(f"return {self.held(self.code(value), self.kind(value), result)};")

    @staticmethod
    def held(code, kind, whole):
        """The text of a value where a number may be held as a tensor."""
        words = {kinds.INT: "torch::kLong", kinds.FLOAT: "torch::kFloat", kinds.BOOL: "torch::kBool"}
        return f"torch::scalar_tensor({code}, {words[kind]})" if isinstance(whole, Tensor) and kind in words else code

    def returned_item(self, node, kind):
        if isinstance(kind, Tuple) and not kinds.is_numbers(kind) and not isinstance(node, ast.Tuple) and self.is_vector(node):
            name = self.local_copy(node)
            return f"{cpp_type(kind, node)}{{{', '.join(f'{name}[{n}]' for n in range(len(kind.items)))}}}"
        code = self.held(self.code(node), self.kind(node), kind)
        if code == "{}":
            return f"{cpp_type(kind, node)}()"
        return self.typed(code, kind, node)

    @staticmethod
    def typed(code, kind, node):
        """A text, with its type before it if it is a list in braces."""
        return cpp_type(kind, node) + code if code.startswith("{") else code

    # Assignments.

    def statement_AnnAssign(self, node):
        if node.value is not None:
            self.assign(node.target, node.value, node)

    def statement_Assign(self, node):
        if len(node.targets) > 1 and not isinstance(node.value, ast.Constant):
            members = all(isinstance(target, ast.Attribute) for target in node.targets)  # registered in Python's order
            first, *rest = node.targets if members else reversed(node.targets)
            self.assign(first, node.value, node)
            for target in rest:
                self.store(target, self.target_text(first), self.kind(node.value), node)
            return
        for target in reversed(node.targets):
            self.assign(target, node.value, node)

    def target_text(self, target):
        return self.member(target.attr) if isinstance(target, ast.Attribute) else identifier(target.id)

    def assign(self, target, value, node):
        if isinstance(target, ast.Tuple | ast.List):
            self.unpack(target, value, node)
        elif isinstance(target, ast.Attribute) and self.is_self(target.value) and self.cls is not None:
            self.set_member(target.attr, value, node)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(target, value, node)
        elif isinstance(target, ast.Subscript):
            self.set_item(target, value, node)
        else:
            self.bind_name(target.id, value, node)

    def set_item(self, target, value, node):
        kind = self.kind(target.value)
        if self.is_rest(target.value) and (keys := self.rest_keys([target])):
            self.out(f"std::get<{self.rest_place(keys[0], node)}>({identifier(target.value.id)}) = {self.code(value)};")
            return
        if isinstance(target.value, ast.Attribute) and target.value.attr in ("_modules", "_parameters") and self.is_self(target.value.value) and self.cls is not None:
            self.set_named(target.slice, value, node)
        elif isinstance(target.value, ast.Name) and target.value.id in self.named_layers:
            layer = self.layer_pointer(value) if self.named_layers[target.value.id] is nn.ModuleDict else f"torch::nn::AnyModule({self.module_text(value)})"
            self.out(f"{identifier(target.value.id)}.insert({self.code(target.slice)}, {layer});")
        elif isinstance(kind, Tensor):
            self.out(f"{self.primary(target.value)}.index_put_({self.index(target.slice)}, {self.code(value)});")
        elif isinstance(kind, List) and (isinstance(target.slice, ast.Slice) or self.kind(target.slice) == kinds.SLICE):
            self.put_part(target, value, node)
        elif isinstance(kind, List | Size) or kinds.is_numbers(kind):
            self.out(f"{self.element(self.primary(target.value), target.slice)} = {self.code(value)};")
        elif isinstance(kind, Map):
            self.out(f"{self.primary(target.value)}[{self.code(target.slice)}] = {self.typed_branch(value, kind.item)};")
        elif isinstance(kind, Config) and isinstance(self.constant(target.slice), str):
            self.set_field(target.value, self.constant(target.slice), value, kind, node)
        elif isinstance(kind, Module) and kind.cls in (nn.ModuleDict, nn.ParameterDict):
            self.put_entry(self.code(target.value), kind, self.code(target.slice), value)
        else:
            raise Refusal(f"`{ast.unparse(node)[:60]}` changes {names.describe(kind)}", node)

    def put_part(self, target, value, node):
        part = target.slice
        if isinstance(part, ast.Slice) and part.step is not None:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: a slice with a step has no translation; write a loop", node)
        self.unit.helper("put_part")
        if isinstance(part, ast.Slice):
            bounds = "0" if part.lower is None else self.code(part.lower), "std::numeric_limits<int64_t>::max()" if part.upper is None else self.code(part.upper)
        else:
            bounds = [f"{self.primary(part)}.{end}().expect_int()" for end in ("start", "stop")]
        self.out(f"put_part({self.code(target.value)}, {', '.join(bounds)}, {self.as_vector(value)});")

    def bind_name(self, name, value, node):
        value = self.one_kind(value) if self.is_looped(name) else value
        kind = self.kind(value)
        if self.class_word(value) and isinstance(value, ast.Attribute):
            self.class_words[name] = self.class_word(value)
            return
        if value in self.maker_sites(name):
            self.out(f"{'' if name in self.locals else 'std::string '}{identifier(name)} = {schema.literal(ast.unparse(value))};")
            self.locals[name] = kinds.STR
            return
        if isinstance(value, ast.IfExp) and isinstance(kind, Many | Config) or kind == kinds.CALLABLE and isinstance(value, ast.IfExp):
            both = [self.static(part) for part in (value.body, value.orelse)]
            if all(inspect.isclass(part) or isinstance(part, functools.partial) for part in both):
                self.choices[name] = value
                return
        if isinstance(value, ast.Call) and self.static(value.func) is functools.partial and not self.rebound(name):
            called = {id(n.func) for n in ast.walk(self.function) if isinstance(n, ast.Call)}
            if all(id(n) in called for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)):
                self.partials[name] = value
                return
        classes = tuple(map(self.static, value.elts)) if isinstance(value, ast.Tuple | ast.List) else ()
        if classes and all(map(inspect.isclass, classes)) or kinds.classes(kind):
            self.statics[name] = kinds.classes(kind) or classes
            self.local_names.discard(name)
            return
        own = next((p for p in self.signature().parameters if p.name == name and p.changed), None)
        if kinds.makers(kind) or own is not None and kinds.makers(own.kind):
            new = name not in self.locals and own is None
            self.out(f"{'std::string ' if new else ''}{identifier(name)} = {self.maker_word(value)};")
            self.locals.setdefault(name, kind)
            return
        if isinstance(kind, Class | Function):
            self.statics[name] = kind.cls if isinstance(kind, Class) else kind.function
            self.local_names.discard(name)
            return
        if isinstance(value, ast.Call) and getattr(self.static(value.func), "__name__", "") in ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict") and name not in self.locals:
            cls = self.static(value.func)
            self.out(f"torch::nn::{cls.__name__} {identifier(name)};")
            self.locals[name] = kind
            self.fill(cls, identifier(name), value)
            return
        if isinstance(kind, Config) and (container := self.names_layers(name, value, kind)):
            self.named_layers[name] = container
            item = "std::shared_ptr<torch::nn::Module>" if container is nn.ModuleDict else "torch::nn::AnyModule"
            self.out(f"torch::OrderedDict<std::string, {item}> {identifier(name)};")
            return
        if isinstance(kind, Config | Map) and isinstance(value, ast.Dict | ast.Call) and self.is_display_only(name, value) and self.bind_display(name, value):
            return
        if isinstance(value, ast.Dict | ast.Call) and isinstance(kind, Config | Map) and self.is_empty_dict(value):
            kind = merge([kind, *(self.kind(n) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))])
        if isinstance(kind, Map) and isinstance(value, ast.Dict | ast.Call) and self.is_empty_dict(value):
            self.declare(identifier(name), "{}", kind, node, True) if name not in self.locals else self.out(f"{identifier(name)}.clear();")
            self.locals[name] = kind
            return
        if isinstance(kind, Config | Map) and isinstance(value, ast.Name | ast.Attribute | ast.Subscript) and name not in self.locals and not self.rebound(name):
            self.locals[name] = kind
            again = self.becomes_another(name, value, node)
            self.out(f"{'const auto' if again else 'auto&'} {identifier(name)} = {self.code(value)};")  # another name of one object
            return
        if isinstance(value, ast.IfExp) and isinstance(kind, Optional) and _is_empty(kind.kind) and isinstance(whole := self.assigned_kind(name), Optional | List):
            whole = whole if isinstance(whole, Optional) else Optional(whole)
            test = self.condition(value.test if is_none(value.orelse) else ast.copy_location(ast.UnaryOp(ast.Not(), value.test), value))
            text = f"{test} ? {cpp_type(whole, node)}(std::in_place) : std::nullopt"
            if name in self.locals:
                self.out(f"{identifier(name)} = {text};")
            else:
                self.declare(identifier(name), text, whole, node, True)
            self.locals[name] = whole
            return
        if _is_empty(kind) and not isinstance(value, ast.Name | ast.Attribute):
            kind = self.assigned_kind(name) or kind
            if isinstance(kind, Many):  # the list becomes something else later
                kind = merge([k for k in kind.kinds if isinstance(k, List | Tuple)]) or kind
            if isinstance(kind, Tuple):
                kind = List(merge(list(kind.items)))
            if isinstance(kind, List) and isinstance(kind.item, Module):
                kind = List(self.unit.resolve(kind.item, lambda: self.unit.instances.get(kind.item.cls, {}).values()))
            self.declare(identifier(name), "{}", kind, node, True) if name not in self.locals else self.out(f"{identifier(name)}.clear();")
            self.locals[name] = kind
            return
        if isinstance(value, ast.List | ast.ListComp) and isinstance(kind, List) and isinstance(kind.item, Module):
            later = [self.unit.recorder.kind(n, self.owners) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
            whole = merge([kind, *later])
            if isinstance(whole, List) and isinstance(whole.item, Many):  # modules of other classes follow
                self.out(f"{identifier(name)}.clear();" if name in self.locals else f"std::vector<torch::nn::AnyModule> {identifier(name)};")
                self.locals[name] = whole
                if isinstance(value, ast.List):
                    for item in value.elts:
                        self.out(f"{identifier(name)}.push_back({self.typed_branch(item, whole.item)});")
                    return
                if len(value.generators) == 1 and not value.generators[0].ifs:
                    loop = value.generators[0]
                    self.loop(loop.iter, loop.target, lambda: self.out(f"{identifier(name)}.push_back({self.typed_branch(value.elt, whole.item)});"), node)
                    return
                raise Refusal(f"`{ast.unparse(value)[:60]}`: write a loop that appends", node)
        if kind == kinds.NONE:
            self.bind_none(name, node)
            return
        if kind == List(kinds.NONE, getattr(kind, "length", None)) and isinstance(value, ast.BinOp) and value.op.__class__ is ast.Mult and len(getattr(value.left, "elts", ())) == 1:
            whole = getattr(held := self.locals.get(name) or self.assigned_kind(name), "kind", held)
            if isinstance(whole, List) and isinstance(whole.item, Optional):
                self.store_name(name, f"{cpp_type(whole, node)}({self.code(value.right)})", whole, node)
                return
        if self.is_named_entry(value) and names.is_any_module(kind):
            self.bind_module(ast.copy_location(ast.Name(name, ast.Store()), node), self.code(value), kind, node)
            return
        if isinstance(value, ast.IfExp) and isinstance(kind, Many) and isinstance(kind.kinds[0], Module):
            self.any_local(name, value, kind)
            return
        if kind is None:
            raise Refusal(f"`{ast.unparse(value)[:60]}` never ran, so its type is not known", node)
        if isinstance(kind, Tuple) and kinds.is_tensors(kind) and (self.is_vector(value) or isinstance(value, ast.Tuple)) and not isinstance(
            self.locals.get(name), Tuple):
            kind = List(merge(list(kind.items)), len(kind.items))
        held = self.locals.get(name)
        kind = self.vector_kind(value) or kind if not isinstance(held, Tuple) or kinds.is_numbers(held) else kind
        if kind == kinds.STR and isinstance(value, ast.Constant) and name not in self.locals and not self.rebound(name):
            self.words[name] = value.value
        inner = isinstance(value, ast.Subscript) and isinstance(self.kind(value.value), List) and not isinstance(value.slice, ast.Slice) and self.changes(name)
        if isinstance(kind, List) and (inner or isinstance(value, ast.Name | ast.Attribute)) and name not in self.locals and not self.rebound(name):
            self.locals[name] = kind
            self.out(f"auto& {identifier(name)} = {self.code(value)};")  # another name of one list
            return
        made = isinstance(value, ast.Call) and self.static(value.func) is nn.Parameter and value.args
        self.told_gradient |= {name} if made and self.wants_gradient(value) else set()
        self.store_name(name, self.parameter(value.args[0], value) if made else self.code(value), kind, node)

    def becomes_another(self, name, value, node):
        """Whether a name for whose object `name` is another one is given another object later."""
        later = [s for s in ast.walk(self.function) if isinstance(s, ast.stmt) and s.lineno > node.lineno]
        first = next((s for s in later if getattr(value, "id", None) in stored_names(s)), None)
        if first is not None and (self.changes(name) or first not in self.function.body or value.id in changed_names(*(s for s in later if s.lineno <= first.lineno))):
            raise Refusal(f"{name} and {value.id} are one dict, which changes, and {value.id} becomes another; give that a name of its own", node)
        return first is not None

    def is_empty_dict(self, value):
        """Whether an expression makes a dict without entries."""
        made = isinstance(value, ast.Call) and not value.args and not value.keywords and self.static(value.func)
        return isinstance(value, ast.Dict) and not value.keys or inspect.isclass(made) and issubclass(made, dict)

    def one_kind(self, value):
        """A display of numbers or tuples that one type holds, though they differ, as a list of that type; any other expression as it is."""
        kind = self.kind(value)
        whole = merge(list(kind.items)) if isinstance(value, ast.Tuple) and isinstance(kind, Tuple) else None
        if not (isinstance(whole, Tuple | Optional) or whole == kinds.FLOAT) or all(item == whole for item in kind.items):
            return value
        texts = [self.typed_branch(item, whole) if whole == kinds.FLOAT else self.returned_item(item, whole) for item in self.starless(value.elts)]
        return self.stand_for(f"{cpp_type(List(whole), value)}{{{', '.join(texts)}}}", List(whole, len(texts)), value)

    def is_looped(self, name):
        """Whether loops over it are all that reads a local, which is set once."""
        loops = [n.iter for n in ast.walk(self.function) if isinstance(n, ast.For | ast.comprehension)]
        return not self.rebound(name) and all(n in loops for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))

    def is_display_only(self, name, value):
        """Whether a local dict is only read by constant words and spread by `**`, becomes an nn.ModuleDict or nn.Sequential, or holds classes."""
        if isinstance(value, ast.Dict) and any(isinstance(self.kind(item), Class | Function) for item in value.values):
            return True
        parents = {id(child): node for node in ast.walk(self.function) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(self.function):
            if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)):
                continue
            parent = parents[id(node)]
            if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load) and self.kind(parent.slice) == kinds.STR:
                continue
            if not (isinstance(parent, ast.keyword) and parent.arg is None or isinstance(parent, ast.Call) and self.static(parent.func) in (nn.ModuleDict, nn.Sequential)):
                return False
        return True

    def names_layers(self, name, value, kind):
        """The container, nn.Sequential or nn.ModuleDict, for which alone a local dict, empty at first, gathers layers by their names; else None."""
        parents = [node for node in ast.walk(self.function) for child in ast.iter_child_nodes(node)
                   if isinstance(child, ast.Name) and child.id == name and isinstance(child.ctx, ast.Load)]
        made = lambda node: self.cls.base if self.cls is not None and super_call(node) == "__init__" else self.static(node.func)
        filled = [made(node) for node in parents if isinstance(node, ast.Call) and made(node) in (nn.Sequential, nn.ModuleDict)]
        entries = [node for node in parents if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
        only = filled and len(filled) + len(entries) == len(parents)
        modules = all(isinstance(layer, nn.Module) for layer in kind.fields().values())
        return filled[0] if self.is_empty_dict(value) and only and modules and len(set(filled)) == 1 else None

    def layer_pointer(self, node):
        """A module as a std::shared_ptr."""
        code = self.code(node)
        if self.is_reference(node):
            return f"{code}.shared_from_this()"
        return f"{code}->shared_from_this()" if code in self.pointers or code.endswith(">()") else f"{primary(code)}.ptr()"

    def bind_display(self, name, value):
        """A dict that is only handed on: modules for an nn.ModuleDict, or `**` arguments."""
        if isinstance(value, ast.Dict):
            pairs = [(self.constant(key), item) for key, item in zip(value.keys, value.values, strict=True)]
        elif getattr(self.static(value.func), "__name__", "") == "OrderedDict" and value.args and isinstance(value.args[0], ast.List):
            pairs = [(self.constant(pair.elts[0]), pair.elts[1]) for pair in value.args[0].elts]
        elif self.static(value.func) is dict and not value.args:
            pairs = [(keyword.arg, keyword.value) for keyword in value.keywords]
        else:
            return False
        if all(isinstance(self.kind(item), Module) for _, item in pairs) and pairs:
            self.dicts[name] = []
            for key, item in pairs:
                local = self.fresh(identifier(key) if str(key).isidentifier() else "layer")
                self.out(f"auto {local} = {self.code(item)};")
                self.dicts[name].append((key, local))
        else:
            self.displays[name] = pairs
        return True

    def any_local(self, name, value, kind):
        """A local that is a module of one class or another."""
        self.locals[name] = kind
        self.out(f"torch::nn::AnyModule {identifier(name)};")
        self.each_choice(value, lambda part: self.out(f"{identifier(name)} = torch::nn::AnyModule({self.code(part)});"))

    def bind_none(self, name, node):
        other = self.assigned_kind(name)
        if name in self.locals and self.locals[name] in (*kinds.NUMBERS, kinds.STR):
            return  # it is set before it is read
        if name in self.locals and self.locals[name] != kinds.NONE:
            self.out(f"{identifier(name)} = {names.nothing(self.locals[name], node)};")
        elif other is not None and other != kinds.NONE and not isinstance(other, Many):
            self.out(f"{cpp_type(other, node)} {identifier(name)}{self.initial(other)};")
            self.locals[name] = other
        else:
            self.locals[name] = kinds.NONE

    def store(self, target, code, kind, node):
        if isinstance(target, ast.Name):
            if target.id != "_":
                self.store_name(target.id, code, kind, node)
        elif isinstance(target, ast.Attribute) and self.is_self(target.value) and self.cls is not None:
            whole = self.unit.attribute_kind(self.cls, target.attr)
            if isinstance(kind, Module) and names.is_any_module(whole) and not names.holds_container(whole):
                self.cls.set(target.attr, whole)
                self.out(f"{self.member(target.attr)} = {code};")
                self.out(f'{self.registers(target.attr)}("{target.attr}", {self.member(target.attr)}.ptr());')
                return
            self.cls.set(target.attr, kind)
            if isinstance(kind, Module):
                code = f'{self.registers(target.attr)}("{target.attr}", {code})'
            elif self.unit.is_stored(self.cls, target.attr, "_parameters"):
                raise Refusal(f"self.{target.attr}: assign each parameter in a statement of its own", node)
            elif self.unit.is_stored(self.cls, target.attr, "_buffers") and target.attr not in self.cls.unsaved:
                self.unit.helper("set_buffer")
                code = f'set_buffer(*this, "{target.attr}", {code})'
            self.out(f"{self.member(target.attr)} = {code};")
        elif isinstance(target, ast.Subscript | ast.Attribute):
            self.assign(target, self.stand_for(code, kind, target), node)
        elif isinstance(target, ast.Tuple | ast.List):
            self.unpack(target, self.stand_for(code, kind, target), node)
        else:
            raise Refusal(f"an assignment to `{ast.unparse(target)[:60]}`", node)

    def in_one_block(self, name, statement):
        """Whether a name occurs only in the block of a statement."""
        blocks = [body for part in ast.walk(self.function) for body in (getattr(part, "body", ()), getattr(part, "orelse", ())) if isinstance(body, list)]
        inside = {id(n) for body in blocks if statement in body for part in body for n in ast.walk(part)}
        for part in ast.walk(self.function):  # or in the other branch of an if
            if isinstance(part, ast.If) and any(statement in body for body in (part.body, part.orelse)):
                inside |= {id(n) for n in ast.walk(part)}
        return all(id(n) in inside for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name)

    def store_name(self, name, code, kind, node):
        """`name = code`, with a declaration the first time."""
        if code == self.renamed.get(name, identifier(name)) and name in self.locals or names.is_mixed(self.locals.get(name)) and code == f"std::get<{cpp_type(kind, node)}>({identifier(name)})":
            return
        self.inline.pop(name, None)
        held = self.locals.get(name)
        if name in self.second and self.alike(kind, self.second[name][1]):
            self.out(f"{self.second[name][0]} = {code};")
            return
        if isinstance(node, ast.Assign) and (seen := self.unit.recorder.kind(node.value, self.owners)) != kinds.promoted(seen):
            self.promoted.add(name)
        if kind in kinds.NUMBERS and isinstance(whole := self.assigned_kind(name) if held is None else held, Tensor):
            code, kind = self.held(code, kind, whole), Tensor("?", 0)
            self.promoted.add(name)
        if names.is_any_module(held) and isinstance(kind, Module):
            code, kind = f"{code}.ptr()" if names.holds_container(held) else f"torch::nn::AnyModule({code})", held
        if held is not None and held != kinds.NONE:
            if names.is_mixed(held) and kind in held.kinds or cpp_type(held, node) == cpp_type(kind, node) or (held == kinds.FLOAT and kind == kinds.INT) or isinstance(held, Optional):
                if isinstance(held, Tuple) and not kinds.is_numbers(held) and isinstance(node, ast.Assign) and self.is_vector(node.value):
                    items = self.local_copy(self.stand_for(code, List(merge(list(held.items)), len(held.items)), node.value), "items")
                    code = f"{cpp_type(held, node)}{{{', '.join(f'{items}[{n}]' for n in range(len(held.items)))}}}"
                self.out(f"{self.renamed.get(name, identifier(name))} = {code};")
                return
            plain = ({held, kind} <= {*kinds.NUMBERS, kinds.STR} or isinstance(held, List) and isinstance(kind, Tensor)) and name not in self.second
            if self.depth > 0 and not self.in_one_block(name, node) and plain:
                self.second[name] = self.fresh(f"{name}_2"), kind
                self.out(f"{self.second[name][0]} = {code};")
                return
            if self.depth > 0 and not self.in_one_block(name, node):
                raise Refusal(f"{name} is {names.describe(held)} and becomes {names.describe(kind)}; give it two names", node)
            self.renamed[name] = self.fresh(f"{name}_2")
        self.locals[name] = kind
        self.declare(self.renamed.get(name, identifier(name)), code, self.declared_kind(name, kind), node, self.rebound(name))

    def declared_kind(self, name, kind):
        if kind in kinds.NUMBERS:
            merged = self.assigned_kind(name)
            if merged in kinds.NUMBERS or isinstance(merged, Optional):
                self.locals[name] = merged
                return merged
        return kind

    def declare(self, text, code, kind, node, rebound):
        if kind in kinds.NUMBERS:
            self.out(f"{cpp_type(kind) if rebound else 'const auto' if kind != kinds.FLOAT or '.' in code else 'const double'} {text} = {code};", declares=text)
        elif isinstance(kind, Optional) or kind == kinds.STR or kind == kinds.DEVICE or code.startswith("{") or isinstance(kind, Size):
            type_text = cpp_type(kind, node)
            self.out(f"{'' if rebound else 'const '}{type_text} {text}{'' if code == '{}' else f' = {code}'};", declares=text)
        elif isinstance(kind, Many) and not isinstance(kind.kinds[0], Module):
            raise Refusal(f"{text} is {names.describe(kind)}", node)
        else:
            self.out(f"{'const auto' if kind == kinds.CALLABLE else 'auto'} {text} = {code};", declares=text)

    def rebound(self, name):
        stores = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(self.function))
        inside = any(name in stored_names(n) for n in ast.walk(self.function) if isinstance(n, ast.AugAssign) or (isinstance(n, ast.For | ast.While)))
        return stores > 1 or (stores == 1 and inside and any(isinstance(n, ast.AugAssign) and name in stored_names(n) for n in ast.walk(self.function)))

    def unpack(self, target, value, node):
        items = target.elts
        if any(isinstance(item, ast.Starred) for item in items):
            self.unpack_star(items, value, node)
            return
        if isinstance(value, ast.Tuple | ast.List):
            self.unpack_display(items, self.starless(value.elts), node)
            return
        kind = self.kind(value)
        if isinstance(kind, Size):
            base = value
            if not (isinstance(value, ast.Attribute | ast.Call | ast.Subscript) and self.sized_name(value)):
                base = None
                name = self.local_copy(value, "sizes")
            for at, item in enumerate(items):
                self.store(item, self.size_at(value, at) if base is not None else f"{name}[{at}]", kinds.INT, node)
            return
        if isinstance(kind, Tuple) and not self.is_vector(value):
            self.unpack_tuple(items, kind, value, node)
            return
        if isinstance(kind, Config) and hasattr(kind.value, "_fields"):
            self.unit.struct(kind)
            held, fields = self.local_copy(value), self.unit.struct_fields(kind)
            parts = [self.stand_for(f"{held}.{identifier(f)}" if f in fields else "{}", fields.get(f, kinds.NONE), node) for f in kind.value._fields]
            self.unpack_display(items, parts, node)
            return
        if isinstance(kind, Config | Map | kinds.Set):
            raise Refusal(f"`{ast.unparse(node)[:60]}` takes {names.describe(kind)} apart; name its parts", node)
        code = self.code(value)
        if isinstance(kind, Tensor):
            code = f"{primary(code)}.unbind(0)"
        code = self.typed(code, kind, node)  # of an inlined function
        name = code if code.isidentifier() else self.fresh("parts")
        if name != code:
            self.out(f"const auto {name} = {code};")
        for at, item in enumerate(items):
            self.store(item, f"{name}[{at}]", self.element_kind(kind, at), node)

    def sized_name(self, value):
        """Whether a size is that of a plain name, so that it may be asked several times."""
        while isinstance(value, ast.Subscript):
            value = value.value
        base = value.value if isinstance(value, ast.Attribute) else value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
        return isinstance(base, ast.Name) or (isinstance(base, ast.Attribute) and self.is_self(base.value))

    def unpack_star(self, items, value, node):
        kind = self.kind(value)
        length = kind.length if isinstance(kind, Size | List) else len(kind.items) if isinstance(kind, Tuple) else None
        star = next(n for n, item in enumerate(items) if isinstance(item, ast.Starred))
        if isinstance(value, ast.Tuple | ast.List) and isinstance(items[star].value, ast.Name):
            values, rest = self.starless(value.elts), items[star].value
            end = len(values) - (len(items) - star - 1)
            middle = values[star:end]
            whole = List(merge(list(map(self.kind, middle))), len(middle))
            if rest.id == "_" or whole.item in (kinds.INT, kinds.FLOAT):
                held = [] if rest.id == "_" else [self.stand_for(f"{cpp_type(whole)}{{{', '.join(map(self.code, middle))}}}", whole, node)]
                self.unpack_display([*items[:star], *([rest] if held else []), *items[star + 1 :]], [*values[:star], *held, *values[end:]], node)
                return
        if isinstance(items[star].value, ast.Name) and (isinstance(kind, List) and length is None or kinds.is_numbers(kind) and self.is_vector(value)):
            name, behind, item = self.local_copy(value, "items"), len(items) - star - 1, self.element_kind(kind, 0)
            if length is None:
                self.out(f"TORCH_CHECK({name}.size() >= {len(items) - 1}, {self.literal(ast.unparse(node)[:90])});")
            for at, part in enumerate(items):
                if at != star:
                    self.store(part, f"{name}[{at}]" if at < star else f"{name}.end()[{at - len(items)}]", item, node)
                elif part.value.id != "_":
                    self.unit.helper("part_of")
                    self.store(part.value, f"part_of({name}, {star}{f', {-behind}' if behind else ''})", List(item, length and length - len(items) + 1), node)
            return
        if length is None or not isinstance(kind, Size | List) and (self.is_vector(value) or isinstance(items[star].value, ast.Tuple)):
            raise Refusal("a starred name takes a length that is not fixed", node)
        if isinstance(kind, Tuple):
            name = self.local_copy(value, "parts")
            behind = len(items) - star - 1
            for at, item in enumerate(items):
                if at == star:
                    span = range(star, length - behind)
                    self.store(item.value, f"std::make_tuple({', '.join(f'std::get<{n}>({name})' for n in span)})", Tuple(kind.items[star : length - behind]), node)
                else:
                    position = at if at < star else length - len(items) + at
                    self.store(item, f"std::get<{position}>({name})", kind.items[position], node)
            return
        name = self.local_copy(value, "sizes")
        behind = len(items) - star - 1
        for at, item in enumerate(items):
            if at == star:
                self.unit.helper("part_of")
                if item.value.id != "_":
                    part = Size(length - len(items) + 1) if isinstance(kind, Size) else List(kind.item, length - len(items) + 1)
                    self.store(item.value, f"part_of({name}, {star}, {length - behind})", part, node)
            else:
                position = at if at < star else length - len(items) + at
                self.store(item, self.size_at(value, position) if isinstance(kind, Size) else f"{name}[{position}]", self.element_kind(kind, position), node)

    def unpack_display(self, items, values, node):
        stored = {item.id for item in items if isinstance(item, ast.Name)} | {ast.unparse(item) for item in items if isinstance(item, ast.Attribute)}
        read = {n.id for value in values[1:] for n in ast.walk(value) if isinstance(n, ast.Name)} | {
            ast.unparse(n) for value in values[1:] for n in ast.walk(value) if isinstance(n, ast.Attribute)}
        if not stored & read or len(items) == 1:
            for item, value in zip(items, values, strict=True):
                self.assign(item, value, node)
            return
        held = []
        for value in values:
            name = self.fresh("next")
            self.out(f"auto {name} = {self.code(value)};")
            held.append((name, self.kind(value)))
        for item, (name, kind) in zip(items, held, strict=True):
            self.store(item, name, kind, node)

    def unpack_tuple(self, items, kind, value, node):
        code = self.code(value)
        if isinstance(value, ast.Name) and isinstance(self.locals.get(value.id), Optional) and not code.endswith(".value()"):
            code = f"*{code}"
        code = self.typed(code, kind, node)
        plain = all(isinstance(item, ast.Name) for item in items)
        kinds_ok = all(not isinstance(k, Many) and k is not None for k in kind.items)
        declared = [isinstance(item, ast.Name) and self.locals.get(item.id) not in (None, kinds.NONE) for item in items]
        if plain and kinds_ok and not any(declared) and len({i.id for i in items}) == len(items) and not self.has_lambda:
            wanted = [identifier(item.id) if item.id != "_" else self.fresh("unused") for item in items]
            self.out(f"{self.maybe_unused(items)}auto [{', '.join(wanted)}] = {code};")
            for item, item_kind in zip(items, kind.items, strict=True):
                if item.id != "_":
                    self.locals[item.id] = item_kind
                    self.inline.pop(item.id, None)
            return
        name = code if code.isidentifier() else self.fresh("parts")
        if name != code:
            self.out(f"auto {name} = {code};")
        for at, (item, item_kind) in enumerate(zip(items, kind.items, strict=True)):
            if isinstance(item, ast.Tuple):
                for inner, part in enumerate(item.elts):
                    self.store(part, f"std::get<{inner}>(std::get<{at}>({name}))", self.element_kind(item_kind, inner), node)
            elif item_kind == kinds.NONE and isinstance(item, ast.Name):
                self.locals[item.id] = kinds.NONE
            else:
                self.store(item, f"std::get<{at}>({name})", item_kind, node)

    def maybe_unused(self, items):
        read = {n.id for n in ast.walk(self.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return "" if any(item.id in read for item in items) else "[[maybe_unused]] "

    def set_member(self, name, value, node):
        """`self.name = value`."""
        if isinstance(value, ast.Lambda) and self.kind(value) == kinds.CALLABLE:
            self.keep_lambda(name, value, node)
        elif not names.is_setting(self.kind(value)):
            written = len(self.lines)
            try:
                self.store_member(name, value, node)
            except Refusal:
                if not self.constructor or isinstance(self.kind(value), Module | Tensor) or self.draws(value) or not self.unit.is_idle(name):
                    raise
                del self.lines[written:]
                self.note_left_out(node, "which nothing reads")
            if isinstance(value, ast.Name) and isinstance(self.kind(value), List) and value.id in self.locals and self.changes(value.id):
                self.renamed[value.id] = self.member(name)  # another name of the member's list

    def keep_lambda(self, name, value, node):
        """A lambda that is a member is written out where it is called; what it keeps has to be a member."""
        free = {n.id for n in ast.walk(value.body) if isinstance(n, ast.Name)} & self.local_names - {a.arg for a in value.args.args}
        kept = {}
        for statement in ast.walk(self.function):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id in free and not self.rebound(statement.targets[0].id):
                held = statement.value
                if isinstance(held, ast.Attribute) and self.is_self(held.value):
                    kept[statement.targets[0].id] = held
        several = sum(member_of(n) == name and isinstance(n.ctx, ast.Store) for n in ast.walk(self.cls.tree)) > 1
        if several or free - set(kept):
            self.cls.set(name, kinds.CALLABLE)
            self.out(f"{self.member(name)} = {self.code(value)};")
            return
        self.cls.lambdas[name] = (value, kept)

    def store_member(self, name, value, node):
        kind, recorder = self.kind(value), self.cls
        value = self.chosen_call(value) or self.and_or(value) or self.by_word(value) or value
        if isinstance(value, ast.IfExp) and isinstance(merge([kind, self.unit.attribute_kind(recorder, name)]), Module | Many):
            made = getattr(node.value, "func", node.value)
            if kinds.makers(self.kind(made)) or isinstance(made, ast.Name) and self.maker_sites(made.id):
                self.each_choice(value, lambda part: self.set_member(name, part, node))
            else:
                self.if_member(name, value, node)
            return
        if kind == kinds.NONE or is_none(value):
            known = self.unit.attribute_kind(recorder, name)
            if self.constructor or known in (None, kinds.NONE):
                recorder.set(name, known or kinds.NONE)
            else:
                self.out(f"{self.member(name)} = {cpp_type(known, node)}();")
            return
        if kind is None:
            raise Refusal(f"self.{name}: `{ast.unparse(value)[:60]}` never ran, so its type is not known", node)
        if self.unit.bound_method(recorder, name):
            self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: self.{name} is the method {self.unit.bound_method(recorder, name)}, as it always was")
            return
        if isinstance(kind, Config) and type(kind.value).__module__.startswith("torch.optim"):
            self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: self.{name} was left out, an optimizer")
            return
        if kinds.makers(known := merge([kind, self.unit.attribute_kind(recorder, name)])):
            recorder.set(name, known)
            self.out(f"{self.member(name)} = {self.maker_word(value)};")
            return
        if (isinstance(kind, Function) or kind == kinds.CALLABLE) and known == kinds.CALLABLE:
            recorder.set(name, known)
            self.out(f"{self.member(name)} = {self.kept_function(value)};")
            return
        if (isinstance(kind, Class | Function) or kinds.classes(kind)) and not isinstance(known, Many):
            recorder.statics[name] = kinds.classes(kind) or (kind.cls if isinstance(kind, Class) else kind.function)
            return
        if isinstance(kind, Config):
            self.unit.struct(kind)
        whole = kinds.promoted(merge([kind, self.unit.attribute_kind(recorder, name), *([recorder.members[name]] if recorder.members.get(name) else [])]))
        if isinstance(whole, Many) and all(isinstance(k, Class | Function) for k in whole.kinds):
            raise Refusal(f"self.{name} is {names.describe(whole)}; give it one value, or make it a module", node)
        if isinstance(whole, Many) and not isinstance(whole.kinds[0], Module) or isinstance(whole, kinds.Simple) and whole not in names.SIMPLE:
            raise Refusal(f"self.{name} is {names.describe(whole)}; no one C++ type holds that", node)
        recorder.set(name, whole)
        target = self.member(name)
        if isinstance(kind, Module) or (isinstance(kind, Many) and isinstance(kind.kinds[0], Module)):
            self.set_module(name, target, value, whole, node)
        elif self.unit.is_stored(recorder, name, "_parameters") and (value.uid in self.unit.recorder.parameters or not self.raw_kinds(value)):
            flat = value.args[0] if isinstance(value, ast.Call) and self.static(value.func) is nn.Parameter and value.args else value
            if name in recorder.registered or recorder.inherited(name):
                self.unit.helper("tie_parameter")
                self.out(f'{target} = tie_parameter(*this, "{name}", {self.parameter(value)});')
                return
            if self.constructor:
                recorder.registered.add(name)
            wants = self.wants_gradient(value) or (f"{self.code(value)}.requires_grad()" if getattr(value, "id", None) in self.told_gradient else None)
            self.out(f'{target} = register_parameter("{name}", {self.code(flat)}{", " + wants if wants else ""});')
        elif self.unit.is_stored(recorder, name, "_buffers") and name not in recorder.unsaved:
            self.unit.helper("set_buffer")
            self.out(f'{target} = set_buffer(*this, "{name}", {self.code(value)});')
        else:
            code = "{}" if isinstance(whole, Map) and self.is_empty_dict(value) else self.held(self.code(value), kind, whole)
            if isinstance(kind, Tuple) and self.is_vector(value) and kinds.is_tensors(kind):
                recorder.set(name, List(merge(list(kind.items)), len(kind.items)))
            elif listed := self.vector_kind(value):
                recorder.members[name] = listed
            self.out(f"{target} = {code};")

    def if_member(self, name, value, node):
        test = self.condition(value.test)
        if test in ("true", "false"):
            self.set_member(name, value.body if test == "true" else value.orelse, node)
            return
        branches = []
        for part, word in ((value.body, test), (value.orelse, f"!{primary(test)}")):
            if is_none(part):
                self.set_member(name, part, node)
            else:
                branches.append((part, word))
        for at, (part, word) in enumerate(branches):
            self.out(f"{'} else {' if at else f'if ({word}) {{'}")
            self.depth += 1
            if self.kind(part) is None:
                self.never(part.lineno)
            else:
                self.set_member(name, part, node)
            self.depth -= 1
        self.out("}")

    def set_module(self, name, target, value, kind, node):
        cls = self.static(value.func) if isinstance(value, ast.Call) else None
        if kind == kinds.CALLABLE:  # beside functions
            layer, self.unit.captures = self.fresh("layer"), True
            self.out(f'const auto {layer} = {self.registers(name)}("{name}", {self.code(value)});')
            self.out(f"{target} = [{layer}](const torch::Tensor& x) {{ return {layer}->forward(x); }};")
        elif isinstance(kind, Many) and names.holds_container(kind):
            if any(k.cls in (nn.ModuleList, nn.ModuleDict) for k in kind.kinds):
                raise Refusal(f"self.{name} is {names.describe(kind)}; give each a name of its own", node)
            self.out(f'{target} = {self.registers(name)}("{name}", {self.local_copy(value, "layer")}.ptr());')
        elif isinstance(kind, Many):
            self.out(f"{target} = torch::nn::AnyModule({self.code(value)});")
            self.out(f'{self.registers(name)}("{name}", {target}.ptr());')
        else:
            code = f"torch::nn::{cls.__name__}()" if cls in _CONTAINERS else self.code(value)
            runs = self.cls.base is nn.Sequential and self.constructor and self.runs_layers()
            keeps = self.cls.base is nn.ModuleDict and self.constructor
            given = self.compare_none(value, self.kind(value), True, node) if kinds.NONE in self.raw_kinds(value) else ""
            if given and not isinstance(value, ast.Call):  # an argument that is None at times
                self.out(f"if ({given}) {target} = {self.registers(name)}(\"{name}\", {code});")
                return
            if not self.constructor and not self.cls.inherited(name) and name not in self.cls.registered:
                self.out(f'{target} = {target}.is_empty() ? register_module("{name}", {code}) : replace_module("{name}", {code});')
            else:
                self.out(f"{target} = {code};" if runs or keeps else f'{target} = {self.registers(name)}("{name}", {code});')
            if cls in _CONTAINERS:
                self.fill(cls, target, value)
            if keeps:
                self.update("this", [(self.literal(name), target)])
            if runs:  # Sequential's forward runs it
                self.out(f'push_back("{name}", {self.as_layer(target) if kind == Module(nn.Sequential) else target});')

    def runs_layers(self):
        """Whether a class derived from nn.Sequential runs its layers in turn."""
        forward = self.unit.loaded.definition(vars(self.cls.cls).get("forward"))
        return forward is None or re.search(r"super\(|\bin self\b|\(self\)|self\[", ast.unparse(forward[1])) is not None

    def registers(self, name):
        """register_module, or replace_module where a base class set the member before."""
        again = self.cls.inherited(name) or name in self.cls.registered or name in self.cls.base_modules()
        if self.constructor and self.depth == 0:
            self.cls.registered.add(name)
        return "replace_module" if again or not self.constructor else "register_module"

    def set_attribute(self, target, value, node):
        """`a.b = value` where a is a module: tied weights."""
        kind = self.kind(target.value)
        if kind == kinds.Simple("module") and "backends" in ast.unparse(target) + getattr(self.static(target.value), "__name__", ""):
            self.note_left_out(node, "a setting of a device")
            return
        if isinstance(kind, Config):
            self.set_field(target.value, target.attr, value, kind, node)
            return
        if isinstance(kind, Module) and self.kind(value) == kinds.NONE and self.kind(ast.copy_location(target, node)) in (None, kinds.NONE) and all(
            getattr(module, target.attr, None) is None for module in self.modules(target.value)):
            return
        if isinstance(kind, Module) and kind.cls is nn.Module and isinstance(self.kind(value), Module):
            self.out(f"{self.code(target.value)}->register_module({self.literal(target.attr)}, {self.local_copy(value, 'layer')});")
            return
        if isinstance(kind, Module) and isinstance(self.kind(value), Tensor) and (found := self.modules(target.value)) and all(target.attr in vars(m) for m in found):
            if is_own(kind.cls):
                self.unit.translation(kind.cls).use(target.attr, Tensor())
            elif target.attr not in ("weight", "bias"):
                raise Refusal(f"`{ast.unparse(node)[:60]}` sets an attribute of {names.describe(kind)}", node)
            self.out(f"{self.code(target.value)}->{names.member(target.attr)} = {self.code(value)};")  # no parameter
            return
        if isinstance(kind, Module) and isinstance(self.kind(value), Tensor):
            owner = self.code(target.value)
            if isinstance(target.value, ast.Call) or "(" in owner:
                held = self.fresh("tied")
                self.out(f"auto {'*' if owner.endswith('>()') else ''}{held} = {owner};")
                owner = held
            if isinstance(value, ast.Call) and self.static(value.func) is nn.Parameter and not any(self.kind(a) is None for a in value.args):
                self.unit.helper("tie_parameter")
                self.out(f'{owner}->{names.member(target.attr)} = tie_parameter(*{owner}, "{target.attr}", {self.parameter(value)});')
                return
            self.unit.helper("tie_parameter")
            self.out(f'{owner}->{names.member(target.attr)} = tie_parameter(*{owner}, "{target.attr}", {self.code(value)});')
            return
        if isinstance(self.kind(target.value), Tensor) and target.attr in ("data", "requires_grad"):
            text = f".set_data({self.code(value)})" if target.attr == "data" else f".set_requires_grad({self.code(value)})"
            self.out(f"{self.primary(target.value)}{text};")
            return
        if isinstance(self.kind(target.value), Tensor) and not hasattr(torch.Tensor, target.attr):
            self.note_left_out(node, "an attribute that torch.Tensor does not have")
            return
        if not self.constructor and isinstance(kind, Module) and is_own(kind.cls) and self.kind(value) in kinds.NUMBERS:
            self.out(f"{self.code(target.value)}->{names.member(target.attr)} = {self.code(value)};")
            return
        number = isinstance(kind, Module) and not self.draws(value) and not self.unit.read_by_torch(kind.cls, target.attr)
        foreign = number and not is_own(kind.cls) and not self.unit.read_anywhere(target.attr)
        if foreign or number and self.kind(value) in kinds.NUMBERS and self.unit.is_idle(target.attr):
            self.note_left_out(node, "which nothing reads")
            return
        raise Refusal(f"`{ast.unparse(node)[:60]}` sets an attribute of {names.describe(kind)}", node)

    def set_field(self, owner, name, value, kind, node):
        """`config.name = value`, or `config["name"] = value`."""
        self.unit.struct(kind)
        if name in self.unit.struct_fields(kind):
            if self.kind(value) in kinds.NUMBERS and isinstance(self.unit.struct_fields(kind)[name], List | Size | Tuple):
                raise Refusal(f"`{ast.unparse(node)[:60]}` is a number and becomes a list; give it two names", node)
            self.out(f"{self.primary(owner)}.{identifier(name)} = {self.code(value) if self.kind(value) != kinds.NONE else '{}'};")
        elif self.kind(value) != kinds.NONE:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: {names.describe(self.kind(value))} is no field of a struct", node)

    def statement_AugAssign(self, node):
        target, value = node.target, node.value
        if getattr(target, "id", None) in self.second:
            raise Refusal(f"{target.id} is a word and a number; give it two names", node)
        kind, added = self.assign_kind(target), self.kind(value)
        plain = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/="}.get(type(node.op))
        load = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
        for part in ast.walk(load):
            ast.copy_location(part, target)
            part.uid = -next(self.unit.counter)
        self.substitute_target(load, target, kind)
        data = isinstance(target, ast.Attribute) and target.attr == "data" and isinstance(self.kind(target.value), Tensor)
        if data or isinstance(target, ast.Subscript) and isinstance(kind, Tensor):
            operation = {"+=": "add_", "-=": "sub_", "*=": "mul_", "/=": "div_"}.get(plain)
            if operation is None:
                raise Refusal(f"`{ast.unparse(node)[:60]}`", node)
            if data:
                self.out(f"{self.primary(target.value)}.detach().{operation}({self.code(value)});")
                return
            whole, at = self.primary(target.value), self.index(target.slice)
            parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            if not any(isinstance(self.kind(part), Tensor | List | Tuple) for part in parts):
                self.out(f"{whole}.index({at}).{operation}({self.code(value)});")
                return
            if not all(isinstance(part, ast.Name | ast.Constant | ast.Slice) for part in parts):
                name = self.fresh("at")
                self.out(f"const std::vector<torch::indexing::TensorIndex> {name} = {at};")
                at = name
            self.out(f"{whole}.index_put_({at}, {whole}.index({at}).{operation}({self.code(value)}));")  # what tensors index is a copy
            return
        inner = kind.kind if isinstance(kind, Optional) else kind
        if self.listed(target) == Module(nn.ModuleList) and plain == "+=":
            self.fill(nn.ModuleList, self.target_text(target), ast.copy_location(ast.Call(target, [value], []), node))
            return
        if isinstance(inner, List) and plain == "+=":
            self.unit.helper("joined")
            text = self.target_text(target)
            self.out(f"{text} = joined({text}{'' if inner is kind else '.value()'}, {self.as_list(value, inner)});")
            return
        if isinstance(added, Tensor) and (not isinstance(kind, Tensor) or getattr(target, "id", None) in self.promoted or self.starts_as_number(target)) or plain is None or (plain == "/=" and kind == kinds.INT):
            binary = ast.copy_location(ast.BinOp(load, node.op, value), node)
            binary.uid = -next(self.unit.counter)
            result = added if isinstance(added, Tensor) else kinds.FLOAT if plain == "/=" else kind
            self.store(target, self.code(binary), result, node)
            return
        self.out(f"{self.target_text(target)} {plain} {self.code(value)};")

    def starts_as_number(self, target):
        """Whether an attribute, a tensor in C++, is given a number somewhere."""
        nodes = (n for source in self.unit.loaded.sources.values() for n in ast.walk(source.tree) if isinstance(n, ast.Assign)) if isinstance(target, ast.Attribute) else ()
        return any(getattr(t, "attr", None) == target.attr and self.unit.recorder.kind(n.value) in kinds.NUMBERS for n in nodes for t in n.targets)

    def substitute_target(self, load, target, kind):
        if isinstance(target, ast.Name):
            self.substitute(load, self.renamed.get(target.id, identifier(target.id)), kind)

    def assign_kind(self, target):
        if isinstance(target, ast.Name):
            return self.locals.get(target.id)
        if isinstance(target, ast.Attribute) and self.is_self(target.value):
            return self.cls.members.get(target.attr) or self.unit.attribute_kind(self.cls, target.attr)
        return Tensor() if isinstance(target, ast.Subscript) and isinstance(self.kind(target.value), Tensor) else None

    # Blocks.

    def never_text(self, line):
        return schema.literal(f"{self.unit.loaded.place(self.path, line)} was not run when this class was recorded")

    def never(self, line):
        self.unit.never(self.path, line)
        self.out(f"C10_THROW_ERROR(Error, {self.never_text(line)});")

    def block(self, body):
        self.depth += 1
        self.statements(body)
        self.depth -= 1

    def class_choice(self, node):
        """The choice between two classes that the branches of an if give to one name; None for anything else."""
        parts = [branch[0] for branch in (node.body, node.orelse) if len(branch) == 1 and isinstance(branch[0], ast.Assign)]
        if len(parts) != 2 or len({ast.unparse(part.targets[0]) for part in parts}) > 1 or not isinstance(parts[0].targets[0], ast.Name):
            return None
        if not all(inspect.isclass(self.static(part.value)) for part in parts) or not (self.ran(node, "body") and self.ran(node, "orelse")):
            return None
        return ast.copy_location(ast.IfExp(node.test, *(part.value for part in parts)), node)

    def statement_If(self, node):
        if self.type_switch(node):
            return
        overrides = "has_torch_function" in ast.unparse(node.test) and self.always(node.test) is False  # of __torch_function__
        test = "false" if overrides else self.condition(node.test)
        if test in ("true", "false"):
            left = node.orelse if test == "true" else node.body
            if left and not self.ran(node, "orelse" if test == "true" else "body"):
                self.unit.never(self.path, left[0].lineno)
            self.statements(node.body if test == "true" else node.orelse)
            self.commented = max(self.commented, node.end_lineno)
            return
        if (choice := self.class_choice(node)) is not None:
            self.choices[node.body[0].targets[0].id] = choice
            self.commented = max(self.commented, node.end_lineno)
            return
        first = node.body[0]
        dropped = isinstance(first, ast.Assign) and is_none(first.value) and getattr(first.targets[0], "id", None)  # attention()'s weights, which C++ has not
        if dropped and len(node.body) == 1 and not node.orelse and dropped not in self.locals and self.always(node.test) is True:
            place = self.unit.loaded.place(self.path, first.lineno)
            self.out(f"TORCH_CHECK({test}, {schema.literal(f'{place} was always run when this class was recorded')});")
            self.locals[dropped] = kinds.NONE
            self.commented = max(self.commented, node.end_lineno)
            return
        self.out(f"if ({test}) {{")
        self.branch(node, "body")
        while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and self.ran(node, "orelse") and not self.is_switch(node.orelse[0]):
            inner = node.orelse[0]
            length = len(self.lines)
            test = self.condition(inner.test)
            if len(self.lines) != length or test in ("true", "false"):
                del self.lines[length:]
                break
            node = inner
            self.out(f"}} else if ({test}) {{")
            self.branch(node, "body")
        if node.orelse:
            self.out("} else {")
            self.branch(node, "orelse")
        self.out("}")

    def branch(self, node, name):
        body = getattr(node, name)
        if self.ran(node, name):
            saved, lacking, keys = dict(self.statics), self.lacking(body), self.rest_keys(body)
            tests = [*(self.has_member(*found) for found in lacking), *(f"(sizeof...(Rest) > {self.rest_place(key, body[0])})" for key in keys)]
            self.depth += bool(tests)
            if tests:
                self.lines.append((self.depth, f"if constexpr ({' && '.join(tests)}) {{"))
            self.block(body)
            if tests:
                error = self.literal(f"the module has no {', '.join([*(attribute for _, attribute in lacking), *keys])}")
                self.lines += [(self.depth, "} else {"), (self.depth + 1, f"C10_THROW_ERROR(Error, {error});"), (self.depth, "}")]
            self.depth -= bool(tests)
            self.statics = saved
        else:
            self.depth += 1
            if all(isinstance(part, ast.Raise) for part in body):
                self.statements(body)
            else:
                self.never(next((part.lineno for part in body if isinstance(part, ast.stmt)), node.lineno))
            self.depth -= 1
        self.commented = max([self.commented, *(part.end_lineno for part in body if isinstance(part, ast.stmt))])

    def lacking(self, body):
        """What statements ask of arguments whose class is the template's, and not every class has: (argument, attribute)."""
        templates = {p.name for p in self.signature().parameters if p.template.isidentifier()}
        asked = {(n.value.id, n.attr) for part in body if isinstance(part, ast.stmt) for n in ast.walk(part)
                 if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in templates}
        given = lambda name: self.unit.recorder.argument_modules(self.function, name, self.owners)
        return sorted((name, attribute) for name, attribute in asked if not all(hasattr(module, attribute) for module in given(name)))

    def has_member(self, name, attribute):
        """Whether the class of such an argument has an attribute, in C++."""
        return f"requires {{ &std::remove_cvref_t<decltype(*{identifier(name)})>::{names.member(attribute, self.unit.class_names)}; }}"

    def class_word(self, node):
        """The local whose class's name an expression is, None for any other expression."""
        if isinstance(node, ast.Name):
            return self.class_words.get(node.id)
        if not (isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__")):
            return None
        inner = node.value
        if isinstance(inner, ast.Attribute) and inner.attr == "__class__":
            inner = inner.value
        elif isinstance(inner, ast.Call) and self.static(inner.func) is type:
            inner = inner.args[0]
        else:
            return None
        return inner.id if isinstance(inner, ast.Name) and self.kind_held(inner) == Module(nn.Module) else None

    def name_test(self, test):
        """The local and what its class's name must fulfil, of `"Conv" in m.__class__.__name__` and the like."""
        if not isinstance(test, ast.Compare) or len(test.ops) > 1:
            return None
        left, sign, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(sign, ast.In) and self.class_word(right) and isinstance(self.constant(left), str):
            return self.class_word(right), lambda name: self.constant(left) in name
        if isinstance(sign, ast.In) and self.class_word(left) and isinstance(self.constant(right), tuple | list):
            return self.class_word(left), lambda name: name in self.constant(right)
        if isinstance(sign, ast.Eq) and self.class_word(left) and isinstance(self.constant(right), str):
            return self.class_word(left), lambda name: name == self.constant(right)
        found = isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr in ("find", "startswith") and self.class_word(left.func.value)
        if found and isinstance(sign, ast.NotEq | ast.Gt) and self.constant(right) == -1:
            return found, lambda name: self.constant(left.args[0]) in name
        return None

    def has_test(self, test):
        """The local and the classes that have an attribute, derived ones first, of `hasattr(m, "bias")`; None for any other test."""
        asked = isinstance(test, ast.Call) and getattr(test.func, "id", "") == "hasattr" and getattr(test.args[0], "id", None)
        if not asked or asked in self.narrowed or self.kind_held(test.args[0]) != Module(nn.Module) or not isinstance(word := self.constant(test.args[1]), str):
            return None
        answers = {}
        for module in (module for n in ast.walk(self.function) if getattr(n, "id", None) == asked for module in self.modules(n)):
            answers.setdefault(type(module), set()).add(hasattr(module, word))
        mixed = any(len(found) > 1 for found in answers.values())
        return None if mixed else (asked, sorted((cls for cls, found in answers.items() if True in found), key=lambda cls: -len(cls.__mro__)))

    def one_isinstance(self, test):
        """`isinstance(m, A) or isinstance(m, B)` as `isinstance(m, (A, B))`, and `type(m) == A` as an isinstance that is `exact`;
        any other test as it is."""
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.Is | ast.In) and len(test.ops) == 1:
            left, classes = test.left, test.comparators[0]
            typed = isinstance(left, ast.Call) and self.static(left.func) is type and len(left.args) == 1
            held = left.args[0] if typed else left.value if isinstance(left, ast.Attribute) and left.attr == "__class__" else None
            if held is not None:
                if isinstance(classes, ast.List | ast.Set):
                    classes = ast.copy_location(ast.Tuple(classes.elts, ast.Load()), classes)
                one = ast.copy_location(ast.Call(ast.Name("isinstance", ast.Load()), [held, classes], []), test)
                one.uid, one.exact = test.uid, True
                return one
        either = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
        parts = [self.one_isinstance(value) for value in test.values] if either else []
        if parts and all(isinstance(p, ast.Call) and getattr(p.func, "id", "") == "isinstance" for p in parts) and len(
            {(ast.unparse(p.args[0]), hasattr(p, "exact")) for p in parts}) == 1:
            classes = [c for p in parts for c in (p.args[1].elts if isinstance(p.args[1], ast.Tuple) else [p.args[1]])]
            both = ast.copy_location(ast.Call(parts[0].func, [parts[0].args[0], ast.Tuple(classes, ast.Load())], []), test)
            both.uid = both.args[1].uid = test.uid
            vars(both).update({"exact": True} if hasattr(parts[0], "exact") else {})
            return both
        return test

    def switch_test(self, node):
        """The test of an if that a switch by class asks, and the conditions that follow it."""
        test, further = node.test, []
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test, further = test.values[0], test.values[1:]
        return self.one_isinstance(test), further

    def is_switch(self, node):
        test, _ = self.switch_test(node)
        if self.name_test(test) or self.has_test(test):
            return True
        if isinstance(test, ast.Call) and test.args and getattr(test.args[0], "id", None) in self.narrowed:
            return False
        return isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance" and isinstance(test.args[0], ast.Name) and (
            self.kind_held(test.args[0]) == Module(nn.Module))

    def kind_held(self, node):
        return self.locals.get(node.id)

    def type_switch(self, node):
        """`if isinstance(m, nn.Linear): ...` where m is a module of any class."""
        if not self.is_switch(node):
            return False
        test, further = self.switch_test(node)
        by_name, having = self.name_test(test), self.has_test(test)
        if having:
            name, classes = having[0], tuple(having[1])
        elif by_name:
            name = by_name[0]
            classes = tuple(cls for cls in self.unit.instances if by_name[1](cls.__name__) and cls not in _CONTAINERS)
        else:
            name = test.args[0].id
            classes = self.static(test.args[1])
        if classes is None and isinstance(test.args[1], ast.Tuple) and not having:
            classes = tuple(self.static(item) for item in test.args[1].elts)
        classes, first = classes if isinstance(classes, tuple) else (classes,), True
        exact = by_name or having or hasattr(test, "exact")
        if not exact:
            asked = tuple(cls for cls in classes if cls is not None)
            classes += tuple(cls for cls in self.unit.instances if issubclass(getattr(cls, "stands_for", type(None)), asked))
        own = [cls for cls in classes if cls is not None and is_own(cls)]
        for base, wanted in ((a, b) for a in self.unit.instances for b in own if is_own(a) and issubclass(a, b)):
            while is_own(base) and base is not wanted:
                base = self.unit.translation(base).base
            if base is not wanted:
                raise Refusal(f"a class derived from {wanted.__name__} has another base first, its only one in C++", node)
        inner = nn.modules.linear.NonDynamicallyQuantizableLinear
        if exact and not having and nn.Linear in classes and not (by_name and by_name[1](inner.__name__)) and any(
            type(m) is inner for n in ast.walk(self.function) if getattr(n, "id", None) == name for m in self.modules(n)):
            raise Refusal("nn.MultiheadAttention's out_proj is no nn.Linear in Python, but in C++; use isinstance", node)
        for cls in classes:
            if cls is None or (is_own(cls) and cls not in self.unit.classes) or (not is_own(cls) and not modules.known(cls)):
                continue
            if self.cls is None and cls in self.unit.emitted and not any(item[1] is cls for item in self.unit.items):
                raise Refusal(f"{self.function.name} asks for the class {cls.__name__}, which needs it first; make it a method of that", node)
            local = self.fresh(cls.__name__.lower())
            self.pointers.add(local)
            kind = self.unit.resolve(Module(cls), lambda: [])
            self.narrowed[name], self.renamed[name] = kind, local
            more = "".join(f" && {primary(self.condition(part))}" for part in further)
            if exact and any(issubclass(other, cls) and other not in (*classes, inner) for other in self.unit.instances):
                more = f" && typeid(*{local}) == typeid({names.implementation(kind)}){more}"
            more = f"; {local} != nullptr{more}" if more else ""
            self.out(f"{'if' if first else '} else if'} (auto* {local} = {identifier(name)}.as<{names.implementation(kind)}>(){more}) {{")
            first, at = False, len(self.lines)
            saved, known = self.commented, set(self.locals)
            self.branch(node, "body")
            self.commented, self.locals = saved, {name: kind for name, kind in self.locals.items() if name in known}  # each class has its own
            if not further and not any(re.search(rf"\b{local}\b", text) for _, text in self.lines[at:]):
                depth, text = self.lines[at - 1]
                self.lines[at - 1] = depth, text.replace(f"auto* {local} = ", "")
            del self.narrowed[name], self.renamed[name]
        if first:  # no module is of these classes
            self.statements(node.orelse if self.ran(node, "orelse") else [])
            return True
        if node.orelse:
            self.out("} else {")
            self.depth += 1
            self.statements(node.orelse if self.ran(node, "orelse") else [])
            self.depth -= 1
        self.out("}")
        return True

    def statement_For(self, node):
        if node.orelse:
            raise Refusal("a for with an else; write a flag", node)
        lists = [e for n in ast.walk(node.iter) if isinstance(n, ast.Tuple | ast.List) for e in n.elts if isinstance(self.kind(e), List)]
        if lists and changed_names(*node.body) & stored_names(node.target):
            raise Refusal("a loop over lists that it changes; C++ would change copies of them: write one loop for each", node)
        if isinstance(node.iter, ast.Tuple | ast.List) and isinstance(node.target, ast.Name) and any(
            isinstance(self.kind(item), Module) or self.kind(item) == kinds.STR for item in node.iter.elts):
            self.unroll(node)
            return
        if (rounds := self.display_rounds(node.iter)) is not None:
            self.unroll(node, rounds)
            return
        if len(set(self.class_list(node.iter))) > 1 and isinstance(node.target, ast.Name):
            self.unroll_classes(node)
            return
        tested = any(getattr(getattr(n, "func", None), "id", "") == "isinstance" for n in ast.walk(node))
        containers = (nn.ModuleList, nn.Sequential) if tested else (nn.ModuleList,)
        if isinstance(node.target, ast.Name) and self.listed(node.iter) in map(Module, containers) and not isinstance(
            node.iter, ast.Subscript) and isinstance(self.child_kind(node.iter, node), Many):
            self.loop_by_class(node)
            return
        self.loop(node.iter, node.target, lambda: self.repeated(node.body), node)

    def repeated(self, body):
        """What a loop repeats; an error where it never ran."""
        if self.never_reached(body[0]):
            self.never(body[0].lineno)
            self.commented = max(self.commented, body[-1].end_lineno)
        else:
            self.statements(body)

    def loop_by_class(self, node):
        """A loop over a ModuleList or Sequential of several classes: the body once for each."""
        whole, name, commented = self.fresh("child"), node.target.id, self.commented
        child = f"{whole}.ptr()" if self.listed(node.iter).cls is nn.Sequential else whole
        self.out(f"for (const auto& {whole} : *{self.code(node.iter)}) {{")
        self.depth += 1
        for at, kind in enumerate(self.child_kind(node.iter, node).kinds):
            self.commented = commented
            saved = dict(self.locals), dict(self.narrowed)
            self.narrowed[name], self.locals[name] = kind, kind
            self.pointers.add(identifier(name))
            self.out(f"{'} else ' if at else ''}if (auto* {identifier(name)} = {child}->{'template ' if self.in_template else ''}as<{names.implementation(kind)}>()) {{")
            self.block(node.body)
            self.locals, self.narrowed = saved
        self.out("}")
        self.depth -= 1
        self.out("}")

    def display_rounds(self, items):
        """What each round of a loop over the names, values or both of a local dict that C++ does not hold is given; None for any other loop."""
        part = items.func.attr if isinstance(items, ast.Call) and isinstance(items.func, ast.Attribute) and not items.args else "keys"
        held = items.func.value if isinstance(items, ast.Call) and isinstance(items.func, ast.Attribute) else items
        if getattr(held, "id", None) not in self.displays or part not in ("keys", "values", "items"):
            return None
        pairs = [(self.stand_for(self.literal(name), kinds.STR, items, name), value) for name, value in self.displays[held.id] if (held.id, name) not in self.popped]
        return [{"keys": pair[:1], "values": pair[1:], "items": pair}[part] for pair in pairs]

    def unroll(self, node, rounds=None):
        """A loop over a display of modules, whose classes differ, or of names."""
        if any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(node)):
            raise Refusal(f"a loop over `{ast.unparse(node.iter)[:50]}` that is written out; write it without break and continue", node)
        commented, targets = self.commented, node.target.elts if rounds and len(rounds[0]) > 1 else [node.target]
        for items in [(item,) for item in node.iter.elts] if rounds is None else rounds:
            saved = dict(self.inline), dict(self.locals)
            self.inline.update({target.id: (self.code(item), self.kind(item), self.constant(item)) for target, item in zip(targets, items, strict=True)})
            self.commented = commented
            block = len(stored_names(ast.Module(node.body, []))) > 0 and any(n not in self.locals for n in stored_names(ast.Module(node.body, [])))
            if block:
                self.out("{")
                self.block(node.body)
                self.out("}")
            else:
                self.statements(node.body)
            self.inline, self.locals = saved

    def unroll_classes(self, node):
        """A loop over classes."""
        commented, name = self.commented, node.target.id
        self.local_names.discard(name)
        for cls in self.class_list(node.iter):
            self.commented, self.statics[name], saved = commented, cls, dict(self.locals)
            self.out("{")
            self.block(node.body)
            self.out("}")
            self.locals = saved

    def statement_While(self, node):
        if node.orelse or isinstance(self.kind(node.test), Tensor):
            raise Refusal("a while over values of tensors depends on data; write it with tensor operations", node)
        first = len(self.lines)
        test = self.condition(node.test)
        lines = self.taken_back(first)  # what the condition needs is computed again in every round
        self.out(f"while ({'true' if lines else test}) {{")
        self.depth += 1
        if lines:
            self.lines += [(depth + 1, text) for depth, text in lines]
            self.out(f"if (!({test})) break;")
        self.repeated(node.body)
        self.depth -= 1
        self.out("}")

    def statement_Match(self, node):
        raise Refusal("a match whose patterns are more than values and `_` has no translation; write an if", node)

    def statement_Break(self, node):
        self.out("break;")

    def statement_Continue(self, node):
        self.out("continue;")

    def statement_With(self, node):
        guards = []
        for item in node.items:
            text = ast.unparse(item.context_expr)
            if text.startswith("torch.no_grad") or text.startswith("torch.inference_mode"):
                guards.append("torch::NoGradGuard no_grad;")
            elif text.startswith(("torch.enable_grad",)):
                guards.append("torch::AutoGradMode enable_grad(true);")
            elif "profiler" in text or "record_function" in text or "nvtx" in text:
                continue
            elif "autocast(" in text and "enabled=False" in text and ("cuda" in text or "'cpu'" not in text):
                self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: `with {text[:60]}` was left out; in C++ autocast is on where the program sets it")
                continue
            else:
                raise Refusal(f"`with {text[:50]}` has no translation", node)
        self.out("{")
        self.depth += 1
        for guard in guards:
            self.out(guard)
        self.statements(node.body)
        self.depth -= 1
        self.out("}")

    def loop(self, items, target, body, node):
        """A for statement over Python's iterable; `body` emits what it repeats."""
        saved = dict(self.locals), set(self.local_names), dict(self.inline)
        self.local_names |= stored_names(target)
        outer = set(self.set_again)
        header, bindings = self.iteration(items, target, node)
        self.out(header + " {")
        self.depth += 1
        for binding in bindings:
            binding() if callable(binding) else self.out(binding)
        body()
        self.depth -= 1
        self.out("}")
        self.set_again = outer
        if not isinstance(node, ast.stmt):
            self.locals, self.local_names, self.inline = saved

    def same_lengths(self, nodes):
        """Whether displays of one length are zipped, whose lengths no argument changes."""
        return all(isinstance(node, ast.Tuple | ast.List) for node in nodes) and len({len(node.elts) for node in nodes}) == 1

    def name_of(self, target):
        """The C++ name of a loop's simple target."""
        if not isinstance(target, ast.Name):
            return self.fresh("item")
        return self.fresh("n") if self.unread(target) else identifier(target.id)

    def unread(self, target):
        return target.id == "_" and not any(isinstance(n, ast.Name) and n.id == "_" and isinstance(n.ctx, ast.Load) for n in ast.walk(self.function))

    def iteration(self, items, target, node):
        function = self.static(items.func) if isinstance(items, ast.Call) else None
        name = getattr(function, "__name__", "")
        if name == "range":
            return self.iterate_range(items.args, target, node)
        if name == "enumerate" and isinstance(target, ast.Tuple):
            counter, first = self.counter_of(target.elts[0], node)
            zipped = isinstance(items.args[0], ast.Call) and self.static(items.args[0].func) is zip and isinstance(target.elts[1], ast.Tuple)
            if zipped and len(items.args) == 1 and not items.keywords:
                header, bindings = self.iterate_zip(items.args[0], target.elts[1], node, counter)
                return header, [*first, *bindings]
            length, item = self.indexable(items.args[0], counter)
            start = items.args[1] if len(items.args) > 1 else next((k.value for k in items.keywords), None)
            if start is not None and self.constant(start) != 0:
                place = self.fresh("at")
                length, item = self.indexable(items.args[0], place)
                if first:
                    raise Refusal("a counter of enumerate with a start that is set again, or read behind the loop", node)
                return f"for (int64_t {place} = 0; {place} < {length}; ++{place})", [
                    f"const int64_t {counter} = {place} + {self.code(start)};", lambda: self.bind_item(target.elts[1], *item, node, items.args[0])]
            return f"for (int64_t {counter} = 0; {counter} < {length}; ++{counter})", [*first, lambda: self.bind_item(target.elts[1], *item, node, items.args[0])]
        if name == "zip":
            return self.iterate_zip(items, target, node, self.fresh("n"))
        if name == "reversed":
            counter = self.fresh("n")
            length, item = self.indexable(items.args[0], counter)
            return f"for (int64_t {counter} = {length} - 1; {counter} >= 0; --{counter})", [lambda: self.bind_item(target, *item, node, items.args[0])]
        method = items.func.attr if isinstance(items, ast.Call) and isinstance(items.func, ast.Attribute) else ""
        held = items.func.value if method in ("items", "values", "keys") else items
        if isinstance(self.kind(held), Map):
            return self.iterate_map(held, target, method, node)
        if isinstance(held, ast.Attribute) and held.attr == "_modules" and isinstance(self.kind(held.value), Module) or method == "named_children":
            owner, method = held.value if method != "named_children" else items.func.value, {"named_children": "items"}.get(method, method)
            listed = Module(nn.Module) if self.is_reference(owner) else self.listed(owner)
            if not isinstance(listed, Module):
                raise Refusal(f"a loop over `{ast.unparse(items)[:50]}` of modules of several classes; write a loop for each", node)
            return self.iterate_children(owner, listed.cls, recalled(items, ast.Attribute(owner, method, ast.Load()), [], []), target, method, node)
        if method in ("items", "values", "keys") and isinstance(self.kind(items.func.value), Module):
            return self.iterate_dict(items, target, method, node)
        if method in ("parameters", "buffers", "modules", "children", "named_parameters", "named_buffers", "named_children"):
            if method in ("modules", "children"):
                self.locals[target.id] = Module(nn.Module)
            return self.iterate_members(items, target, method, node)
        if self.class_list(items):
            counter = self.fresh("n")
            length, item = self.indexable(items, counter)
            return f"for (int64_t {counter} = 0; {counter} < {length}; ++{counter})", [lambda: self.bind_item(target, *item, node)]
        items = self.one_kind(items)
        kind = self.listed(items)
        if isinstance(kind, Module) and kind.cls is nn.ParameterList:
            whole = self.fresh("entry")
            return f"for (const auto& {whole} : *{self.code(items)})", [lambda: self.bind_item(target, f"{whole}.value()", Tensor(), node)]
        if isinstance(kind, Module) and kind.cls in (nn.ModuleList, nn.Sequential):
            if isinstance(items, ast.Subscript) and isinstance(items.slice, ast.Slice):
                return self.iterate_slice(items, target, node)
            return self.iterate_modules(items, target, node)
        if isinstance(kind, Tensor):
            return self.iterate_values(f"{self.primary(items)}.unbind(0)", self.element_kind(kind, 0), target, node)
        if isinstance(kind, List | Size) or kind in (kinds.RANGE, kinds.STR) or (isinstance(kind, Tuple) and len(set(kind.items)) == 1) or kinds.is_tensors(kind):
            item = self.element_kind(kind, 0)
            if isinstance(kind, Tuple) and isinstance(items, ast.Name) and not self.is_vector(items):
                code = "{" + ", ".join(map(self.code, self.starless([ast.copy_location(ast.Starred(items, ast.Load()), items)]))) + "}"
            else:
                code = self.letters(items) if kind == kinds.STR else self.code(items)
            if isinstance(items, ast.Tuple | ast.List) and isinstance(item, Module):
                raise Refusal("a loop over a display of modules", node)
            return self.iterate_values(code if not code.startswith("{") else f"std::vector<{cpp_type(item, node)}>{code}", item, target, node)
        raise Refusal(f"a loop over `{ast.unparse(items)[:50]}`, {names.describe(kind)}", node)

    def iterate_zip(self, items, target, node, counter):
        arguments = self.zipped(items)
        parts = [self.indexable(argument, counter) for argument in arguments]
        if not isinstance(target, ast.Tuple):
            raise Refusal("a zip that is not unpacked", node)
        bindings = [lambda t=t, item=item, s=s: self.bind_item(t, *item, node, s) for t, (_, item), s in zip(target.elts, parts, arguments, strict=True)]
        lengths = list(dict.fromkeys(length for length, _ in parts))
        if len(lengths) == 1 or self.same_lengths(arguments):
            return f"for (int64_t {counter} = 0; {counter} < {lengths[0]}; ++{counter})", bindings
        least = self.fresh("least")
        self.out(f"const auto {least} = std::min<int64_t>({{{', '.join(lengths)}}});")
        return f"for (int64_t {counter} = 0; {counter} < {least}; ++{counter})", bindings

    def changes(self, name):
        """Whether a list of that name is changed, not the name."""
        return name in changed_names(self.function)

    def sets_again(self, target, node):
        """Whether a loop's body gives its target another value, also by a loop within it whose last one is read behind that loop."""
        for part in (part for statement in getattr(node, "body", ()) if isinstance(node, ast.For) and not self.unread(target) for part in ast.walk(statement)):
            loop = isinstance(part, ast.For) and target.id in stored_names(part.target)
            read = loop and any(isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load) and n.lineno > part.end_lineno for n in ast.walk(node))
            if read or isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign) and target.id in stored_names(part):
                return True
        return False

    def counter_of(self, target, loop):
        """A loop's counter in C++, and what gives it to the source's name where that is another one."""
        again, declared = self.sets_again(target, loop), target.id in self.set_again | self.outside
        name, bindings = self.name_of(target), []
        if again or declared:
            name = self.fresh("count")
            bindings = [f"{'' if declared else 'int64_t '}{identifier(target.id)} = {name};"]
            self.set_again |= {target.id} if again else set()
        self.locals[target.id] = kinds.INT
        return name, bindings

    def iterate_range(self, arguments, target, loop):
        texts = [self.bound(argument) for argument in arguments]
        low, high = ("0", texts[0]) if len(texts) == 1 else texts[:2]
        name, bindings = self.counter_of(target, loop)
        step = self.constant(arguments[2]) if len(arguments) > 2 else 1
        if isinstance(step, int):
            advance = f"++{name}" if step == 1 else f"--{name}" if step == -1 else f"{name} += {step}"
            return f"for (int64_t {name} = {low}; {name} {'<' if step > 0 else '>'} {high}; {advance})", bindings
        return f"for (int64_t {name} = {low}; {name} < {high}; {name} += {texts[2]})", bindings

    def iterate_slice(self, items, target, node):
        """A loop over a slice of a list of modules."""
        counter, code = self.fresh("n"), self.code(items.value)
        bounds = []
        for bound, default in ((items.slice.lower, "0"), (items.slice.upper, f"static_cast<int64_t>({code}->size())")):
            value = self.constant(bound) if bound is not None else None
            negative = isinstance(value, int) and value < 0
            bounds.append(f"static_cast<int64_t>({code}->size()) - {-value}" if negative else default if bound is None else self.code(bound))
        if items.slice.step is not None:
            raise Refusal("a slice with a step of a list of modules", node)
        kind = self.child_kind(items, node)
        return f"for (int64_t {counter} = {bounds[0]}; {counter} < {bounds[1]}; ++{counter})", [
            lambda: self.bind_module(target, f"{code}->ptr({counter})", kind, node)]

    def iterate_values(self, code, item, target, node):
        if isinstance(target, ast.Tuple):
            whole = self.fresh("item")
            return f"for (const auto& {whole} : {code})", [lambda: self.bind_item(target, whole, item, node)]
        if target.id in self.outside:
            whole = self.fresh("item")
            return f"for (const auto& {whole} : {code})", [f"{identifier(target.id)} = {whole};"]
        name = self.name_of(target)
        self.locals[target.id] = item
        changed = any(isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Store) and n is not target for n in ast.walk(self.function))
        kept = "auto&" if isinstance(item, List) and self.changes(target.id) else "const auto&"
        return f"for ({'auto' if changed or isinstance(item, Module) else kept} {name} : {code})", []

    def may_be_self(self, node):
        """Whether a loop over self.modules() does anything to the module itself."""
        switches = [part for part in getattr(node, "body", ()) if isinstance(part, ast.If) and self.is_switch(part)]
        tests = [test for test, _ in map(self.switch_test, switches) if isinstance(test, ast.Call)]
        classes = [c for test in tests for c in (test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]])]
        return len(tests) < len(getattr(node, "body", "x")) or self.cls is None or any(issubclass(self.cls.cls, self.static(c) or nn.Module) for c in classes)

    def iterate_children(self, owner, cls, items, target, method, node):
        """A loop over a module's children, with or without their names."""
        if cls is nn.ModuleDict:
            return self.iterate_dict(items, target, method, node)
        if method == "values" and cls in (nn.ModuleList, nn.Sequential):
            return self.iteration(owner, target, node)
        if method != "items" or not isinstance(target, ast.Tuple):
            raise Refusal(f"a loop over `{ast.unparse(items)[:50]}`; loop over the module, or its named_children()", node)
        if cls not in (nn.ModuleList, nn.Sequential):
            return self.iterate_members(items, target, "named_children", node)
        counter, word = self.fresh("n"), target.elts[0].id
        _, item = self.indexable(owner, counter)
        self.locals[word] = kinds.STR
        key = f"const auto {identifier(word)} = {self.reached(owner) or 'this->'}named_children()[{counter}].key();"
        return f"for (size_t {counter} = 0; {counter} < {self.code(owner)}->size(); ++{counter})", [
            lambda: self.out(key, declares=identifier(word)), lambda: self.bind_item(target.elts[1], *item, node, owner)]

    def iterate_members(self, items, target, method, node=None):
        owner = items.func.value
        target_code = self.reached(owner)
        if method.startswith("named"):
            whole = self.fresh("entry")
            key, value = target.elts
            self.locals[key.id], self.locals[value.id] = kinds.STR, Tensor()
            held = f"auto {identifier(value.id)} = {whole}.value();"
            if method == "named_children":
                self.locals[value.id] = Module(nn.Module)
                self.references.add(value.id)
                held = f"auto& {identifier(value.id)} = *{whole}.value();"
            word = f"{'auto' if self.sets_again(key, node) else 'const auto&'} {identifier(key.id)} = {whole}.key();"
            return f"for (const auto& {whole} : {target_code}{method}())", [
                lambda: self.out(word, declares=identifier(key.id)), lambda: self.out(held, declares=identifier(value.id))]
        name = self.name_of(target)
        if method in ("modules", "children"):
            whole = self.fresh("child")
            self.locals[target.id] = Module(nn.Module)
            self.references.add(target.id)
            # A constructor's own module is in no shared pointer yet.
            either = self.is_self(owner) or self.is_reference(owner)
            if method == "modules" and either and self.may_be_self(node):
                self.unit.helper("modules_of")
                return f"for (auto* {whole} : modules_of({self.referred(owner)}))", [f"auto& {name} = *{whole};"]
            call = "modules(/*include_self=*/false)" if method == "modules" and either else f"{method}()"
            return f"for (const auto& {whole} : {target_code}{call})", [f"auto& {name} = *{whole};"]
        self.locals[target.id] = Tensor()
        return f"for (auto& {name} : {target_code}{method}())", []

    def iterate_map(self, held, target, method, node):
        kind, whole = self.kind(held), self.fresh("entry")
        if not kind.sorted:
            raise Refusal(f"a loop over `{ast.unparse(held)[:50]}`, whose keys are not in their order, in which C++ has them", node)
        parts = target.elts if method == "items" else [target]
        found = [(f"{whole}.first", kind.key), (f"{whole}.second", kind.item)]
        found = found if method == "items" else found[1:] if method == "values" else found[:1]
        return f"for (const auto& {whole} : {self.code(held)})", [
            lambda part=part, item=item: self.bind_item(part, *item, node) for part, item in zip(parts, found, strict=True)]

    def child_kind(self, container, node):
        found = self.modules(container)
        classes = {type(child) for module in found for child in (module.values() if isinstance(module, nn.ModuleDict) else module)}
        made = [self.unit.resolve(Module(cls), lambda c=cls: [m for f in found for m in f if type(m) is c]) for cls in sorted(classes - {type(None)}, key=lambda c: c.__qualname__)]
        return self.one_class(made, type(None) in classes, node)

    @staticmethod
    def one_class(found, some_none, node):
        """The kind of entries of a list of modules, some of which may be None."""
        kind = merge(found)
        if some_none and not isinstance(kind, Module):
            raise Refusal(f"`{ast.unparse(node)[:60]}` holds None and {names.describe(kind)}; put nn.Identity() in the place of None", node)
        return kind

    def iterate_modules(self, items, target, node):
        kind = self.child_kind(items, node)
        whole = self.fresh("child")
        code = self.code(items)
        if isinstance(kind, Many) and isinstance(target, ast.Name):
            if self.listed(items).cls is not nn.Sequential:
                raise Refusal(f"a loop over a ModuleList of {names.describe(kind)}; make it an nn.Sequential", node)
            self.locals[target.id] = kind
            return f"for (auto& {self.name_of(target)} : *{code})", []
        if isinstance(target, ast.Tuple):
            return f"for (const auto& {whole} : *{code})", [lambda: self.bind_children(target, whole, items, node)]
        pointer = ".ptr()" if self.listed(items).cls is nn.Sequential else ""
        return f"for (const auto& {whole} : *{code})", [lambda: self.bind_module(target, whole + pointer, kind, node)]

    def bind_module(self, target, code, kind, node):
        if names.is_any_module(kind) and isinstance(target, ast.Name):
            self.out(f"const auto {identifier(target.id)} = {code};", declares=identifier(target.id))
            self.locals[target.id] = kind
            self.any_calls.add(target.id)
            return
        if not isinstance(kind, Module):
            raise Refusal(f"a loop over {names.describe(kind)}", node)
        if target.id == "_":
            return
        self.locals[target.id] = kind
        self.pointers.add(identifier(target.id))
        self.out(f"auto* {identifier(target.id)} = {code}->{'template ' if self.in_template else ''}as<{names.implementation(kind)}>();")

    def bind_children(self, target, code, items, node):
        lists = [entry for module in self.modules(items) for entry in module]
        for at, part in enumerate(target.elts):
            there = [entry for entry in lists if entry[at] is not None]
            kind = self.one_class([self.unit.resolve(Module(type(e[at])), lambda a=at, t=there: [e[a] for e in t]) for e in there], len(there) < len(lists), items)
            self.bind_module(part, f"{code}->as<torch::nn::ModuleListImpl>()->ptr({at})", kind, node)

    def iterate_dict(self, items, target, method, node):
        container = items.func.value
        whole = self.fresh("entry")
        tensors = self.kind(container).cls is nn.ParameterDict
        kind = Tensor() if tensors else self.child_kind(container, node)
        bindings = []
        parts = target.elts if method == "items" else [target]
        if method in ("items", "keys"):
            self.locals[parts[0].id] = kinds.STR
            key = identifier(parts[0].id)
            bindings += [] if self.unread(parts[0]) else [lambda: self.out(f"const auto& {key} = {whole}.key();", declares=key)]
        if method in ("items", "values"):
            bindings.append(lambda: (self.bind_item if tensors else self.bind_module)(parts[-1], f"{whole}.value()", kind, node))
        return f"for (const auto& {whole} : *{self.code(container)})", bindings

    def indexable(self, node, counter):
        """Length and element number `counter` of something that is looped over beside others."""
        members = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args else ""
        if members in ("parameters", "buffers"):
            name = self.fresh("items")
            self.out(f"const auto {name} = {self.reached(node.func.value)}{members}();")
            return f"static_cast<int64_t>({name}.size())", (f"{name}[{counter}]", Tensor())
        if found := self.class_list(node):
            if len(set(found)) > 1:
                raise Refusal(f"a loop over `{ast.unparse(node)[:50]}`, several classes, beside others; write a loop over them alone", node)
            return str(len(found)), ("", Class(found[0]))
        kind, code = self.listed(node), self.code(node) if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "range" else ""
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and len(node.args) == 1:
            return self.code(node.args[0]), (counter, kinds.INT)
        if isinstance(kind, Module) and kind.cls in (nn.ModuleList, nn.Sequential):
            return f"static_cast<int64_t>({code}->size())", (f"{code}->ptr({counter})", self.child_kind(node, node))
        if isinstance(kind, Module) and kind.cls is nn.ParameterList:
            return f"static_cast<int64_t>({code}->size())", (f"(*{code})[{counter}]", Tensor())
        if isinstance(kind, Tensor):
            return f"{primary(code)}.size(0)", (f"{primary(code)}[{counter}]", self.element_kind(kind, 0))
        if isinstance(kind, List | Size | Tuple) or kind in (kinds.RANGE, kinds.STR):
            if kind == kinds.STR or code.startswith("{") or not code.replace("->", "").replace("_", "").isalnum():
                name = self.fresh("items")
                self.out(f"const auto {name} = {self.letters(node) if not isinstance(node, ast.Tuple) else f'std::vector<{cpp_type(self.element_kind(kind, 0), node)}>{code}'};")
                code = name
            return f"static_cast<int64_t>({code}.size())", (f"{code}[{counter}]", self.element_kind(kind, 0))
        raise Refusal(f"a loop over `{ast.unparse(node)[:50]}`, {names.describe(kind)}", node)

    def bind_item(self, target, code, kind, node, source=None):
        if isinstance(kind, Module | Many) and (isinstance(kind, Module) or isinstance(kind.kinds[0], Module)):
            if isinstance(target, ast.Tuple):
                if source is None:
                    raise Refusal("a list of modules in a list of tuples", node)
                self.bind_children(target, code, source, node)
                return
            self.bind_module(target, code, kind, node)
        elif isinstance(kind, Class):
            self.statics[target.id] = kind.cls
            self.local_names.discard(target.id)
        elif isinstance(target, ast.Tuple):
            for at, part in enumerate(target.elts):
                text = f"std::get<{at}>({code})" if isinstance(kind, Tuple) and not kinds.is_numbers(kind) else f"{code}[{at}]"
                self.bind_item(part, text, self.element_kind(kind, at), node)
        elif target.id in self.outside:
            self.out(f"{identifier(target.id)} = {code};")
        elif target.id != "_":
            self.locals[target.id] = kind
            kept = "auto&" if isinstance(kind, List) and self.changes(target.id) else "auto"
            self.out(f"{'const auto' if kind in kinds.NUMBERS else kept} {identifier(target.id)} = {code};", declares=identifier(target.id))
