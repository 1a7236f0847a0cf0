"""Translates functions and classes, and puts them in an order that C++ can compile."""

import ast
import dataclasses
import functools
import inspect
import itertools
import re

import torch
from torch import nn

from . import attend, distributions, kinds, modules, names, schema
from .expressions import DRIVER, Expressions, is_none, super_call
from .kinds import UNKNOWN, Class, Config, Function, List, Many, Module, Optional, Refusal, Size, Tensor, Tuple, is_own, kind_of, merge, primary
from .names import cpp_type, identifier
from .statements import Statements, changed_names


@dataclasses.dataclass
class Parameter:
    """One argument: `state` is live, static (a class or function of one value), none (always None) or rest (**kwargs)."""

    name: str
    kind: object
    default: object = inspect.Parameter.empty
    state: str = "live"
    value: object = None
    changed: bool = False
    template: str = ""
    keyword: bool = False  # an entry of **kwargs
    text: str = ""  # of the default

    def is_reference(self):
        """Whether it is a torch::nn::Module&."""
        return self.kind == Module(nn.Module) and not self.template


@dataclasses.dataclass
class Signature:
    parameters: list
    result_kind: object
    result: str

    def live(self):
        return [p for p in self.parameters if p.state == "live"]

    def text(self, body, defaults=True):
        """The parameter list; names that the body does not read are left out."""
        parts, live = [], self.live()
        body = spoken(body)
        last = max((n for n, p in enumerate(live) if not p.text), default=-1)
        for at, parameter in enumerate(live):
            kind = parameter.kind
            type_text = parameter.template or ("torch::nn::Module&" if kind == Module(nn.Module) else cpp_type(kind))
            by_value = type_text.endswith("&") or type_text in ("int64_t", "double", "bool", "torch::nn::Module&", "torch::Dtype", "torch::Device") or parameter.changed or isinstance(kind, Module)
            name = identifier(parameter.name)
            used = re.search(rf"(?<![\w.>]){name}\b", body) is not None
            text = f"{type_text if by_value else f'const {type_text}&'}{' ' + name if used else f' /*{name}*/'}"
            parts.append(text + (f" = {parameter.text}" if parameter.text and defaults and at > last else ""))
        if any(p.state == "rest" for p in self.parameters):
            parts.append("const Rest&... rest")
        return ", ".join(parts)


def spoken(text):
    """A text of C++ without its words and comments."""
    return re.sub(r'"(\\.|[^"\\])*"|//[^\n]*', "", text)


class Translator(Expressions, Statements):
    """One function, method or constructor. Lines of C++ gather in `lines` as (depth, text)."""

    def __init__(self, unit, function, path, cls=None, owners=None, constructor=False, nested=None):
        self.unit, self.function, self.path, self.cls, self.owners = unit, function, path, cls, owners
        self.constructor, self.nested = constructor, nested
        self.nested_signatures = {}  # of the functions that this one defines, by name
        self.globals = unit.loaded.globals_of(path)
        self.comments = unit.loaded.comments(path)
        self.locals, self.inline, self.renamed, self.narrowed = {}, {}, {}, {}
        self.statics, self.substituted, self.drawing = {}, {}, set()
        self.lines, self.depth, self.ordered, self.hoisted = [], 0, set(), {}
        self.words = {}  # locals that are one string that the source writes
        self.declarations, self.dicts, self.displays, self.pointers, self.promoted, self.kept_lists, self.popped = {}, {}, {}, set(), set(), set(), set()
        self.blind, self.base_call, self.stars, self.class_words, self.any_calls, self.choices = False, "", {}, {}, set(), {}
        self.told_gradient = set()  # locals that are an nn.Parameter with requires_grad
        self.named_layers = {}  # local dicts of layers by their names, with the container that they fill
        self.references = set()  # names that are a torch::nn::Module&
        self.second = {}  # for names that branches give a value of another kind, what C++ holds that in, with its kind
        self.partials = {}  # locals that are functools.partial(...) and are only called
        self.set_again = set()  # targets of loops whose bodies give them other values
        self.outside = set()  # names that are declared outside of the block that sets them
        self.in_template = cls is not None and cls.template_parameters() != []
        self.taken, self.local_names = set(), set()
        function = self.function = self.named_apart(function)
        body = function.body
        document = ast.get_docstring(function, clean=False)
        self.body_nodes = body[1:] if document is not None else body
        self.commented = (body[0].end_lineno if document is not None else max([function.lineno, *(a.end_lineno for a in ast.walk(function.args) if hasattr(a, "end_lineno"))]))
        arguments = function.args
        self.local_names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.local_names |= {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg] if a} - {"self"}
        self.has_lambda = any(isinstance(n, ast.Lambda | ast.FunctionDef) and n is not function for n in ast.walk(function))
        if nested is not None:
            self.locals.update(nested.locals)
            self.nested_signatures.update(nested.nested_signatures)
            self.local_names |= nested.local_names
            self.statics.update(nested.statics)
            self.inline.update(nested.inline)
        self._signature, self._joined = None, None

    def out(self, text, declares=None):
        if declares:
            self.declarations[len(self.lines)] = declares
        self.lines.append((self.depth, text))

    def fresh(self, base):
        used = self.local_names | set(self.locals) | self.taken | self.unit.attributes
        name = next(n for n in itertools.chain([base], (f"{base}_{k}" for k in itertools.count(2))) if n not in used and n not in names._WORDS)
        self.taken.add(name)
        return name

    def note(self, text):
        self.unit.notes.append(text)

    def note_left_out(self, node, why):
        self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: `{ast.unparse(node)[:60]}` was left out, {why}")

    # The head.

    def signature(self):
        if self._signature is None:
            if self.cls is not None and any(getattr(d, "id", "") == "classmethod" for d in self.function.decorator_list):
                self.statics[self.function.args.args[0].arg] = self.cls.cls
                self.local_names.discard(self.function.args.args[0].arg)
            self._signature = self.unit.signature(self.function, self.path, None if self.nested else self.cls, self.owners)
            for parameter in self._signature.parameters:
                if parameter.state == "none":
                    self.inline[parameter.name] = ("{}", kinds.NONE, None)
                elif parameter.state == "static":
                    self.statics[parameter.name] = parameter.value
                    self.local_names.discard(parameter.name)
                elif parameter.state == "live":
                    self.locals[parameter.name] = parameter.kind
                    self.references |= {parameter.name} if parameter.is_reference() else set()
            entries = [p.name for p in self._signature.parameters if p.keyword]
            if self.function.args.kwarg is not None and not any(p.state == "rest" for p in self._signature.parameters) and (
                entries or self.unit.recorder.no_keywords(self.function, self.function.args.kwarg.arg)):
                self.local_names |= set(entries)
                self.displays[self.function.args.kwarg.arg] = [(name, self.name_node(name)) for name in entries]
        return self._signature

    def name_node(self, name):
        node = ast.copy_location(ast.Name(name, ast.Load()), self.function)
        node.uid = -next(self.unit.counter)
        return node

    def translate(self):
        for node in ast.walk(self.function):
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                raise Refusal(f"`yield` makes {self.function.name} a generator; return a list", node, self.path)
        self.signature()
        for node in ast.walk(self.function):
            if isinstance(node, ast.Attribute) and node.attr.startswith("register_") and node.attr.endswith("hook"):
                raise Refusal(f"{node.attr} has no translation; do in forward what the hook does", node, self.path)
        for decorator in self.function.decorator_list:
            self.decorated(decorator)
        body = self.body_nodes
        if not self.constructor and self.unit.recognise:
            plans, declined = self.unit.attention(self, body)
            self.plan_hoists(body)
            body = attend.apply(self, plans) if self.unit.settled else body
            self.keep_hoists(body)
        else:
            self.plan_hoists(body)
        self.statements(body)
        if self.rest_keys([self.function]):  # a tuple, which may change
            word, result = identifier(self.function.args.kwarg.arg), self.signature().result
            self.declarations = {at + 2: name for at, name in self.declarations.items()}
            self.lines = [(0, f"[[maybe_unused]] auto {word} = std::make_tuple(rest...);"), (0, f"return [&]<size_t... N>(std::index_sequence<N...>) -> {result} {{"),
                          *((depth + 1, line) for depth, line in self.lines), (0, "}(std::index_sequence_for<Rest...>{});")]
            self.unit.includes_std.update(("tuple", "utility"))
        heads = [(0, f"{cpp_type(Optional(kind))} {name};") for name, kind in self.second.values()]
        self.lines, self.declarations = heads + self.lines, {at + len(heads): name for at, name in self.declarations.items()}
        self.drop_unused()
        self.join_lines()
        return self

    def decorated(self, node):
        text = ast.unparse(node)
        if text in ("torch.no_grad()", "torch.no_grad", "torch.inference_mode()"):
            self.out("torch::NoGradGuard no_grad;")
        elif text.split("(")[0].rpartition(".")[2] not in _DECORATORS and not self.is_itself() and not self.unit.without_effect(self.cls, self.function.name):
            raise Refusal(f"the decorator @{text[:50]} of {self.function.name} has no translation", node, self.path)

    def is_itself(self):
        """Whether the decorators of the function returned itself."""
        name = self.function.name
        held = inspect.getattr_static(self.cls.cls, name, None) if self.cls else self.globals.get(name)
        found = self.unit.loaded.definition(held) if inspect.isfunction(held) else None
        return found is not None and found[1].uid == self.function.uid

    def keep_hoists(self, body):
        """Declarations that were planned before a statement that is gone move to the next one."""
        places = {n.uid: n for n in ast.walk(self.function) if isinstance(n, ast.stmt)}
        there = {n.uid: n for top in body if isinstance(top, ast.stmt) for n in ast.walk(top) if isinstance(n, ast.stmt)}
        for uid in [uid for uid in self.hoisted if uid not in there]:
            kept = [n for n in body if isinstance(n, ast.stmt) and n.lineno >= places[uid].lineno]
            if kept:
                self.hoisted.setdefault(kept[0].uid, {}).update(self.hoisted.pop(uid))

    def drop_unused(self):
        """Removes sizes that nothing reads, and marks other locals that nothing reads."""
        said = [spoken(line) for _, line in self.lines]
        for at in sorted(self.declarations, reverse=True):
            name, (depth, text) = self.declarations[at], self.lines[at]
            if any(re.search(rf"(?<![\w.>]){re.escape(name)}\b", line) for n, line in enumerate(said) if n != at):
                continue
            if re.search(r"= [\w.>-]+\.size\(-?\d+\);", text) or re.fullmatch(r"[\w:<>, ]+ \w+( = 0| = false)?;", text):
                del self.lines[at], said[at]
            else:
                self.lines[at] = (depth, f"[[maybe_unused]] {text}")

    def join_lines(self):
        """Sizes of one tensor, parts of one list, and locals that a branch sets are declared in one statement."""
        out = []
        for depth, text in self.lines:
            match = re.fullmatch(r"(const auto|auto) (\w+ = ([\w.>-]+?)(?:\.size\(-?\d+\)|\[\d+\]));", text)
            match = match or re.fullmatch(r"(torch::Tensor|int64_t|double|bool) (\w+( = 0| = false)?);", text)
            before = re.fullmatch(r"(const auto|auto|torch::Tensor|int64_t|double|bool) (.*);", out[-1][1]) if out and match else None
            if before and out[-1][0] == depth and before[1] == match[1] and self._joined == (match[1], match[3]) and len(out[-1][1]) + len(match[2]) < 100:
                out[-1] = (depth, f"{match[1]} {before[2]}, {match[2]};")
            else:
                out.append((depth, text))
            self._joined = (match[1], match[3]) if match else None
        self.lines = out

    def body_text(self):
        return "\n".join(text for _, text in self.lines)

    # The order of draws: C++ does not order arguments.

    def draws(self, node):
        """Whether an expression takes random numbers."""
        return any(map(self.draws_itself, ast.walk(node)))

    def draws_itself(self, node):
        """Whether it is a call, or stands for one, that takes random numbers."""
        return getattr(node, "uid", None) in self.drawing or isinstance(node, ast.Call) and self.call_draws(node)

    def call_draws(self, node):
        target, held = self.static(node.func), self.kind(node.func)
        target = held.cls if target is None and isinstance(held, Class) else target
        if inspect.isclass(target) and issubclass(target, nn.Module):
            return is_own(target) or (not target.__module__.startswith("einops") and modules.known(target) and modules.draws(target))
        if target is not None:
            if inspect.isfunction(target) and self.unit.loaded.definition(target):
                return self.unit.may_draw(target)
            name = getattr(target, "__name__", "")
            return schema.draws(name, [], {}, "torch") if not inspect.isclass(target) else False
        kind = self.kind(node.func)
        if isinstance(kind, Module):
            return any(isinstance(m, nn.modules.dropout._DropoutNd | nn.MultiheadAttention | nn.RReLU) for found in self.modules(node.func) for m in found.modules())
        if isinstance(node.func, ast.Attribute):
            if self.is_self(node.func.value) and self.cls is not None:
                method = getattr(self.cls.cls, node.func.attr, None)
                return inspect.isfunction(method) and self.unit.may_draw(method)
            method = getattr(type(owner.value), node.func.attr, None) if isinstance(owner := self.kind(node.func.value), Config) else None
            return self.unit.may_draw(method, ("sample",)) if inspect.isfunction(method) else schema.draws(node.func.attr, [], {}, "torch")
        return False

    def draw_order(self, statement):
        """Expressions of a statement that are bound to locals, so that they draw in Python's order."""
        bound = set()

        def visit(node):
            if isinstance(node, ast.Lambda | ast.FunctionDef):
                return
            container = isinstance(node, ast.Dict) or isinstance(node, ast.Call) and self.static(node.func) in (
                dict, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr | ast.keyword)]
            drawing = [part for part in parts if self.draws(part)]
            if len(drawing) > 1 and not container and not isinstance(node, ast.IfExp | ast.stmt):
                for part in drawing:
                    bound.update(n.uid for n in self.drawing_roots(part))
            for part in drawing:
                visit(part)

        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return) and not self.is_display(statement):
            visit(statement)
        return bound

    @staticmethod
    def is_display(statement):
        """Whether the values of a display are assigned one by one."""
        return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple) and isinstance(statement.targets[0], ast.Tuple)

    def drawing_roots(self, node):
        if self.draws_itself(node):
            return [node]
        return [root for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr | ast.keyword) and self.draws(part) for root in self.drawing_roots(part)]

    def bind_draw(self, node, text):
        kind = self.kind(node)
        if text.isidentifier():
            return text
        name = self.fresh("layer" if isinstance(kind, Module) else "drawn")
        self.out(f"auto {name} = {text};")
        return name

    # Calls of own functions.

    def bind(self, function, node, constructor=None):
        """The C++ arguments of a call of an own function or constructor."""
        if constructor is not None and not self.unit.own_constructor(constructor):
            base = modules.base_layer(next(b for b in constructor.__mro__ if not is_own(b)))
            if base is nn.Module:
                return []
            text = modules.construct(base, [self.operand(a) for a in node.args], {k.arg: self.operand(k.value) for k in node.keywords})
            return [text[text.index("(") + 1 : -1]]
        definition = self.unit.loaded.definition(function)
        if definition is None:
            raise Refusal(f"the source of {getattr(function, '__qualname__', function)} is not at hand", node)
        path, tree = definition
        cls = self.unit.class_of(function, constructor)
        signature = self.unit.signature(tree, path, cls, cls.owners() if cls else None)
        positional = [p for p in signature.parameters if p.state != "rest"]
        given, arguments = {}, self.starless(node.args)
        before = len(tree.args.posonlyargs) + len(tree.args.args) - (0 if cls is None else 1)
        if tree.args.vararg is not None and any(p.name == tree.args.vararg.arg for p in positional):
            kind = next(p.kind for p in positional if p.name == tree.args.vararg.arg)
            packed = cpp_type(kind) + "{" + ", ".join(self.code(a) for a in arguments[before:]) + "}"
            arguments = [*arguments[:before], self.stand_for(packed, kind, node)]
        rest = []
        if any(p.state == "rest" and p.name == getattr(tree.args.vararg, "arg", None) for p in signature.parameters):
            owners = {id(m) for m in self.modules(node.func)} or cls and cls.owners()
            rest, arguments = self.starred_texts(tree, owners, arguments[before:], node), arguments[:before]
        spread = [ast.keyword(name, value) for name, value in self.spread_keywords(node)]
        if positional and positional[-1].kind == kinds.OPTIONS:
            count, own = len(tree.args.args) - (cls is not None), {p.name for p in positional}
            layer = modules.options(positional[-1].value, [self.operand(a) for a in arguments[count:]], {k.arg: self.operand(k.value) for k in spread if k.arg not in own})
            arguments, spread, given["options"] = arguments[:count], [k for k in spread if k.arg in own], self.stand_for(layer, kinds.OPTIONS, node)
        star = next((n for n, argument in enumerate(arguments) if self.is_starred(argument)), None)
        for argument, parameter in zip(arguments[:star], positional, strict=False):
            given[parameter.name] = argument
        for keyword in spread:
            if keyword.arg is None:
                if self.is_rest(keyword.value):
                    rest = [f"std::get<N>({identifier(keyword.value.id)})..." if self.rest_keys([self.function]) else "rest..."]
                    continue
                if self.kind(keyword.value) is not None and isinstance(self.kind(keyword.value), Config) and not self.kind(keyword.value).fields():
                    continue
                raise Refusal(f"`{ast.unparse(node)[:60]}` hands on **{ast.unparse(keyword.value)[:30]}", node)
            given[keyword.arg] = keyword.value
        extra = {name: value for name, value in given.items() if name not in {p.name for p in positional}}
        live = signature.live()
        behind = rest and not rest[0].endswith("...")  # whatever stands before them is written out
        last = len(live) - 1 if behind else max((n for n, p in enumerate(live) if p.name in given or not p.text), default=-1)
        if star is not None:  # the rest takes the places behind
            live = [p for p in positional[:star] if p.state == "live"]
            last, rest = len(live) - 1, rest or ["rest..."]
            if any(p.name in given for p in positional[star:]) or any(p.name not in given and not p.text for p in live):
                raise Refusal(f"`{ast.unparse(node)[:60]}`: keywords behind `{ast.unparse(arguments[star])}`, whose number differs from call to call", node)
        if extra and tree.args.kwarg is not None and not any(isinstance(n, ast.Name) and n.id == tree.args.kwarg.arg for n in ast.walk(tree)):
            extra = {}
        if all(p.state != "rest" for p in signature.parameters):
            extra = {name: value for name, value in extra.items() if self.kind(value) != kinds.NONE}
        if extra:
            last = len(live) - 1
            rest = self.rest_arguments(tree, cls, extra, node)
            if rest is None:
                raise Refusal(f"`{ast.unparse(node)[:60]}`: who takes {', '.join(extra)} is not clear", node)
        return self.texts_of(live[: last + 1], given, node, rest, constructor is not None)

    def texts_of(self, live, given, node, rest=(), holder=False):
        """The C++ arguments for some parameters: what is given, else the default. `holder`: the holder of a module gets them."""
        texts = []
        for parameter in live:
            if parameter.name in given:
                value = given[parameter.name]
                fresh = parameter.template.endswith("&") and isinstance(value, ast.Call)  # a reference needs a name
                held = self.referred(value) if parameter.is_reference() else None
                text = held or (self.mutable_copy(value) if fresh else self.argument(value, parameter.kind))
                texts.append(names.nothing(parameter.kind) if text == "{}" and holder else text)  # a holder hands on anything but {}
            elif parameter.default is inspect.Parameter.empty and rest and rest[0].endswith("..."):
                continue
            else:
                text = parameter.text or self.default_text(parameter, node)
                texts.append(cpp_type(parameter.kind, node) + text if text.startswith("{") and text != "{}" else text)
        return [*texts, *rest]

    def bind_nested(self, signature, node):
        """The C++ arguments of a call of a function that this one defines."""
        given = dict(zip([p.name for p in signature.parameters], self.starless(node.args), strict=False)) | dict(self.spread_keywords(node))
        unknown = [name for name in given if name not in {p.name for p in signature.parameters}]
        if unknown or len(self.starless(node.args)) > len(signature.parameters):
            raise Refusal(f"`{ast.unparse(node)[:60]}`: who takes {', '.join(map(str, unknown)) or 'all arguments'} is not clear", node)
        live = signature.live()
        last = max((n for n, p in enumerate(live) if p.name in given or not p.text), default=-1)
        return self.texts_of(live[: last + 1], given, node)

    def is_reference(self, node):
        """Whether it is a name that C++ holds as a torch::nn::Module&."""
        return isinstance(node, ast.Name) and node.id in self.references and node.id not in self.narrowed

    def referred(self, node):
        """A module as a torch::nn::Module&."""
        return "*this" if self.is_self(node) else self.code(node) if self.is_reference(node) else f"*{self.primary(node)}"

    def reached(self, node):
        """A module's text with what stands before the name of a member."""
        return "" if self.is_self(node) else f"{self.code(node)}{'.' if self.is_reference(node) else '->'}"

    def is_rest(self, node):
        arguments = self.function.args
        return isinstance(node, ast.Name) and arguments.kwarg is not None and node.id == arguments.kwarg.arg

    def is_starred(self, node):
        """Whether it is the name of *args that differ from call to call."""
        return getattr(node, "id", None) == getattr(self.function.args.vararg, "arg", "") and any(p.state == "rest" and p.name == node.id for p in self.signature().parameters)

    def starred_texts(self, tree, owners, given, node):
        """What a call gives to *args that differ from call to call, typed as what takes them in the end; that leaves out what was always None."""
        wanted, texts = self.unit.starred_parameters(tree, owners, node), []
        for at, value in enumerate(given):
            taken = wanted[at] if at < len(wanted) else None
            if taken is None and not self.is_starred(value):
                raise Refusal(f"`{ast.unparse(node)[:60]}`: which argument takes `{ast.unparse(value)[:30]}` in the end is not clear; name the arguments", node)
            text = "rest..." if self.is_starred(value) else self.argument(value, taken.kind) if taken.state == "live" else None
            texts += [] if text is None else [f"{cpp_type(taken.kind, node)}()" if text == "{}" else text]
        return texts

    def rest_keys(self, nodes):
        """The keywords of **kwargs, handed on as they come, that parts of the function read or set by name."""
        if self._signature is None or not any(p.state == "rest" for p in self._signature.parameters):
            return []
        parts = [n for top in nodes if isinstance(top, ast.AST) for n in ast.walk(top)]
        held = [self.constant(n.slice) for n in parts if isinstance(n, ast.Subscript) and self.is_rest(n.value) and isinstance(self.constant(n.slice), str)]
        changed = [n for n in parts if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "update" and self.is_rest(n.func.value) and not n.args]
        return list(dict.fromkeys([*held, *(k.arg for n in changed for k in n.keywords)]))

    def rest_place(self, key, node):
        """The place of a keyword among those that a function hands on."""
        places = set()
        for call in (n for n in ast.walk(self.function) if isinstance(n, ast.Call) and any(k.arg is None and self.is_rest(k.value) for k in n.keywords)):
            for cls in {type(m) for m in self.unit.recorder.modules(call.func, None) if is_own(type(m))}:
                path, inner = self.unit.loaded.definition(cls.forward)
                tail = [p.name for p in self.unit.signature(inner, path, self.unit.class_of(cls.forward, None), None).live()][len(call.args) :]
                places |= {tail.index(key)} if key in tail else set()
        if len(places) != 1:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: where {key} is handed on to is not clear; name the argument", node)
        return places.pop()

    def rest_arguments(self, tree, cls, extra, node, among=()):
        """Keywords that a function hands on: in the order of the function that takes them in the end."""
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not any(k.arg is None for k in call.keywords):
                continue
            for module in self.unit.recorder.modules(call.func, cls.owners() if cls else None):
                if is_own(type(module)):
                    inner, inner_path = self.unit.loaded.definition(type(module).forward)[::-1]
                    inner_cls = self.unit.class_of(type(module).forward, None)
                    wanted = self.unit.signature(inner, inner_path, inner_cls, None).live()
                    passed = len(call.args)
                    further = inner.args.kwarg is not None and len(wanted) <= passed and inner.uid not in among
                    if further and (on := self.rest_arguments(inner, inner_cls, extra, node, (*among, tree.uid))):
                        return on
                    tail = wanted[passed:]
                    if set(extra) <= {p.name for p in tail}:
                        last = max(n for n, p in enumerate(tail) if p.name in extra)
                        return [self.argument(extra[p.name], p.kind) if p.name in extra else f"{cpp_type(p.kind)}()" for p in tail[: last + 1]]
        return None

    def default_text(self, parameter, node):
        if parameter.default is None:
            return "{}"
        value = parameter.default
        if kinds.makers(parameter.kind):
            return schema.literal(names.maker_word(kind_of(value)))
        if layer := self.usual_layer(value):
            return layer
        if inspect.isfunction(value) and parameter.kind == kinds.CALLABLE:
            return self.function_value(value, node)
        return self.literal(parameter.default, node)

    def argument(self, node, kind):
        """An argument's text for a parameter of that kind."""
        given, code = self.kind(node), None
        if names.is_choice(kind):
            return self.whether_given(node)
        if kinds.makers(kind):
            return self.maker_word(node)
        if kind == kinds.CALLABLE and isinstance(given, Module):
            return f"[&](const torch::Tensor& x) {{ return {self.code(node)}->forward(x); }}"
        partial = isinstance(node, ast.Call) and self.static(node.func) is functools.partial
        if kind == kinds.CALLABLE and (partial or isinstance(node, ast.IfExp)) and (isinstance(given, Function) or given == kind):
            return self.kept_function(node)
        if kind == kinds.CALLABLE and isinstance(given, Function):
            return self.function_value(given.function, node)
        code = self.code(node)
        if kinds.is_numbers(kind) and isinstance(node, ast.IfExp) and isinstance(given, Many) and self.condition(node.test) not in ("true", "false"):
            return f"({self.condition(node.test)} ? {self.argument(node.body, kind)} : {self.argument(node.orelse, kind)})"
        if kinds.is_numbers(kind) and given == kinds.INT:
            return f"{cpp_type(kind, node)}({len(kind.items)}, {code})"
        kind = kind.kind if isinstance(kind, Optional) and given != kinds.NONE else kind
        if isinstance(kind, List) and kind.item == Optional(getattr(given, "item", None)) and not code.startswith("{"):
            items = self.local_copy(node, "items")
            return f"{cpp_type(kind, node)}({items}.begin(), {items}.end())"
        if code == "{}" and isinstance(kind, Module):
            return "nullptr"
        if code.startswith("{") and code != "{}" and isinstance(kind, Tuple | List | Size):
            return cpp_type(kind, node) + code
        if isinstance(kind, Size | List) and isinstance(given, Tuple) and self.is_vector(node) is False:
            name = self.local_copy(node)
            return f"{cpp_type(kind, node)}{{{', '.join(f'std::get<{n}>({name})' for n in range(len(given.items)))}}}"
        if isinstance(kind, Tuple) and not kinds.is_numbers(kind) and self.is_vector(node):
            name = self.local_copy(node)
            return f"{cpp_type(kind, node)}{{{', '.join(f'{name}[{n}]' for n in range(len(kind.items)))}}}"
        if isinstance(kind, Module) and (code.endswith(">()") and "as<" in code or code in self.pointers):
            held = given if isinstance(given, Module) else kind
            return f"{names.holder(held)}(std::dynamic_pointer_cast<{names.implementation(held)}>({code}->shared_from_this()))"
        return code

    def whether_given(self, node):
        """Whether an expression is a class, where it may be None."""
        if isinstance(node, ast.IfExp):
            return f"{primary(self.condition(node.test))} ? {self.whether_given(node.body)} : {self.whether_given(node.orelse)}"
        kind = kinds.NONE if is_none(node) else self.kind(node)
        return self.condition(node) if names.is_choice(kind) or kinds.makers(kind) else "true" if kinds.makes(kind) or isinstance(kind, Class) else "false"

    def maker_word(self, node):
        """The word for a class, or a partial of one, that an expression is."""
        node = self.choices.get(getattr(node, "id", None), node)
        if isinstance(node, ast.IfExp):
            return f"({self.condition(node.test)} ? {self.maker_word(node.body)} : {self.maker_word(node.orelse)})"
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2:
            return f"({self.condition(node.values[0])} ? {self.maker_word(node.values[0])} : {self.maker_word(node.values[1])})"
        kind = kinds.NONE if is_none(node) else self.kind(node)
        if kinds.makers(kind):
            return self.code(node)
        word = schema.literal(names.maker_word(kind.kind if isinstance(kind, Optional) else kind))
        return f'({self.condition(node)} ? {word} : "")' if names.is_choice(kind) else word

    def call_function(self, target, definition, node):
        """A call of an own function: inlined if it is one short expression, whose kinds may differ from call to call."""
        path, tree = definition
        body = [s for s in tree.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if self.unit.inlines(tree, body):
            return self.inlined(target, tree, body, path, node)
        star = tree.args.vararg and tree.args.vararg.arg
        if star and all(isinstance(s, ast.Return | ast.Raise | ast.If) for s in body) and any(
            isinstance(n, ast.Starred) and getattr(n.value, "id", "") == star for n in ast.walk(tree)):
            return self.handed_on(tree, body, path, node)
        name = self.unit.function(target, node)
        return self.first_of(target, f"{name}({', '.join(self.bind(target, node))})", node)

    def inlined(self, target, tree, body, path, node):
        given = dict(zip([a.arg for a in tree.args.args], self.starless(node.args), strict=False)) | {k.arg: k.value for k in node.keywords}
        defaults = dict(zip([a.arg for a in tree.args.args][::-1], tree.args.defaults[::-1], strict=False))
        bound = {}
        for name in [a.arg for a in tree.args.args]:
            value = given.get(name, defaults.get(name))
            kind = self.kind(value) if name in given else kind_of(self.constant(value))
            bound[name] = ("{}" if kind == kinds.NONE else self.primary(value), kind, self.constant(value))
        saved = self.inline, self.globals, self.blind, self.locals, self.local_names, self.path, self.statics
        self.inline, self.globals, self.blind = bound, self.unit.loaded.globals_of(path), True
        self.locals, self.local_names, self.statics = {}, set(), {}
        try:
            return self.inlined_body(body, node)
        finally:
            self.inline, self.globals, self.blind, self.locals, self.local_names, self.path, self.statics = saved

    def handed_on(self, tree, body, path, node):
        """A call of a function that chooses what it hands its *args and **kwargs to: the call that it makes."""
        names_, given = [a.arg for a in tree.args.args], self.starless(node.args)
        bound = {}
        for name, value in [*zip(names_, given, strict=False), *((k.arg, k.value) for k in node.keywords if k.arg in names_)]:
            held = self.operand(value)
            if held.constant is UNKNOWN and held.kind in (kinds.INT, kinds.BOOL) and len(set(self.values(value))) == 1:
                held.constant = self.pinned(value, held.primary)
            bound[name] = (held.primary, held.kind, held.constant)
        rest = [self.local_node(value) for value in given[len(names_) :]]
        words = [(k.arg, self.local_node(k.value)) for k in node.keywords if k.arg not in names_]
        saved = self.inline, self.globals, self.blind, self.locals, self.local_names, self.path, self.statics, self.displays
        self.inline, self.globals, self.blind = bound, self.unit.loaded.globals_of(path), True
        self.locals, self.local_names, self.statics, self.displays = {}, set(), {}, {}
        self.stars = {tree.args.vararg.arg: rest}
        if tree.args.kwarg is not None:
            self.displays[tree.args.kwarg.arg] = words
        try:
            return self.chosen_return(body, node)
        finally:
            self.inline, self.globals, self.blind, self.locals, self.local_names, self.path, self.statics, self.displays = saved
            self.stars = {}

    def local_node(self, value):
        """A node that stands for an expression of this scope in another."""
        return self.stand_for(self.code(value), self.kind(value), value)

    def chosen_return(self, body, node):
        for statement in body:
            if isinstance(statement, ast.Return):
                return self.code(statement.value)
            if isinstance(statement, ast.If):
                test = self.condition(statement.test)
                if test not in ("true", "false"):
                    break
                found = self.chosen_return(statement.body if test == "true" else statement.orelse, node)
                if found:
                    return found
        if body and not isinstance(body[-1], ast.Raise):
            raise Refusal(f"`{ast.unparse(node)[:60]}`: which call it makes is not clear", node)
        return ""

    def inlined_body(self, body, node):
        first = body[0]
        if isinstance(first, ast.Return):
            return self.code(first.value)
        test = self.condition(first.test)
        if test in ("true", "false"):
            return self.code(first.body[0].value if test == "true" else (first.orelse or body[1:])[0].value)
        yes, no = self.code(first.body[0].value), self.code((first.orelse or body[1:])[0].value)
        kind = self.kind(first.body[0].value)
        if isinstance(kind, Optional) and test.endswith(".has_value()"):
            return f"{test[:-12]}.value_or({no})"
        return f"({test} ? {yes} : {no})"


class ClassTranslation:
    """One own class. `members` are its data members in order, `statics` those that are a class or function of one value."""

    def __init__(self, unit, cls):
        self.unit, self.cls = unit, cls
        self.base = modules.base_layer(next(b for b in cls.__mro__[1:] if issubclass(b, nn.Module)))
        self.path, self.tree = unit.loaded.definition(cls)
        self.methods = {f.name: f for f in self.tree.body if isinstance(f, ast.FunctionDef)}
        self.members, self.statics, self.unsaved, self.registered, self.lambdas = {}, {}, set(), set(), {}
        self.named = False  # whether its constructor registers parts under names that are put together

    def variants(self):
        return self.unit.variants[self.cls]

    def owners(self):
        variants = self.variants()
        return {id(m) for m in variants[0][1]} if len(variants) > 1 else None

    def template_parameters(self):
        """Names of members whose class differs from use to use and comes from the constructor's arguments."""
        variants = self.variants()
        return list(variants[0][0]) if len(variants) > 1 else []

    def set(self, name, kind):
        if not self.inherited(name):
            self.members[name] = kind if self.members.get(name) in (None, kinds.NONE) else merge([self.members[name], kind])

    def use(self, name, kind):
        if name not in self.members and not self.inherited(name) and name not in self.base_members() and kind is not None and name not in self.statics:
            known = self.unit.attribute_kind(self, name)
            self.members[name] = known if known is not None else kind

    def inherited(self, name):
        return any(base in self.unit.classes and name in self.unit.classes[base].members for base in self.cls.__mro__[1:])

    def base_modules(self):
        """Members that the constructor of a base class of PyTorch sets, among them its modules."""
        return self.members_of(self.base)

    def base_members(self):
        """Those, and what the constructors of its bases set."""
        return set().union(*map(self.members_of, self.base.__mro__))

    @staticmethod
    def members_of(base):
        layer = issubclass(base, nn.Module) and base is not nn.Module and not is_own(base) and "__init__" in vars(base)
        return {a or b for a, b in re.findall(r'self\.(?:(\w+) = |register_(?:buffer|parameter)\(\s*"(\w+)")', inspect.getsource(base.__init__))} if layer else set()

    def text(self):
        """Head and body of the class."""
        self.members, self.registered = {}, set()
        name = names.class_name(self.cls)
        words = {member: f"{member[:1].upper()}{member[1:].strip('_')}" for member in self.template_parameters()}
        template = [(member, "Inner" if word == "Module" else word) for member, word in words.items()]  # Module is the base's name
        out = []
        constructor = self.constructor(name, dict(template))
        done = {}
        while True:
            wanted = [m for m in self.unit.needed(self.cls) if m not in done and (m in self.methods or self.unit.overriding(self.cls, m))]
            if not wanted:
                break
            for method in wanted:
                done[method] = self.method(method)
        document = ast.get_docstring(self.tree)
        out += documentation(document)
        head = f"template <{', '.join(f'class {word}' for _, word in template)}>" if template else ""
        base = "torch::nn::Module" if self.base is nn.Module else names.class_name(self.base) + "Impl" if is_own(self.base) else modules.holder(self.base) + "Impl"
        out += [head] if head else []
        out += [f"class {name}Impl : public {base} {{", " public:", *constructor, ""]
        if self.base is nn.Sequential and "forward" not in self.methods:
            lasts = {type(child) for m in self.unit.instances.get(self.cls, {}).values() for child in list(m)[-1:]}
            forwards = [self.unit.loaded.definition(last.forward) for last in lasts if "forward" in vars(last)]
            result = merge([self.unit.recorder.returns(found[1]) for found in forwards if found])
            text, of = "torch::Tensor", ""
            if isinstance(result, Tuple):
                text = cpp_type(result, self.tree)
                of = f"<{text}>"
            head = f"  {text} forward(const torch::Tensor& x) {{"
            done["forward"] = [head, f"    return torch::nn::SequentialImpl::forward{of}(x);", "  }"]
        for text in [done[m] for m in dict.fromkeys([*self.methods, *done]) if m in done]:
            out += [*text, ""]
        out += self.moves()
        out += self.clone(name) if self.unit.copies and not template else []
        out += self.member_lines(dict(template))
        out.append("};")
        if template:
            words = ", ".join(word for _, word in template)
            out += [head, f"class {name} : public torch::nn::ModuleHolder<{name}Impl<{words}>> {{", " public:",
                    f"  using torch::nn::ModuleHolder<{name}Impl<{words}>>::ModuleHolder;", f"  using Impl = {name}Impl<{words}>;", "};"]
        else:
            out.append(f"TORCH_MODULE({name});")
        return out

    def constructor(self, name, template):
        if "__init__" not in self.methods:
            if self.base is nn.Module:
                return [f"  {name}Impl() = default;"]
            base = names.class_name(self.base) if is_own(self.base) else modules.holder(self.base)
            return [f"  using {base}Impl::{base.rpartition('::')[2]}Impl;"]
        translator = self.unit.translator(self.methods["__init__"], self.path, self, self.owners(), constructor=True)
        signature = translator.signature()
        for parameter in signature.live():
            given = parameter.kind.cls if isinstance(parameter.kind, Module) else nn.Module
            if is_own(given) and not any(isinstance(inner, self.cls) for m in self.unit.instances.get(given, {}).values() for inner in m.modules()):
                self.unit.need_class(given)
            if isinstance(parameter.kind, Module) and template:
                word = next((template[m] for m in template if m in self.argument_members(parameter.name)), "")
                parameter.template = word
        translator.translate()
        arguments = signature.text(f"{translator.base_call}\n{translator.body_text()}")
        words = [p.template for p in signature.live() if p.template.isidentifier() and p.template not in template.values()]
        explicit = "explicit " if len(signature.live()) == 1 or (signature.live() and all(p.text for p in signature.live()[1:])) else ""
        head = f"  {explicit}{name}Impl({arguments}){' : ' + translator.base_call if translator.base_call else ''} {{"
        made = [f"  template <{', '.join(f'class {word}' for word in words)}>"] if words else []
        return [*documentation(ast.get_docstring(self.methods["__init__"]), "  "), *made, head, *indented(translator.lines, 2), "  }"]

    def argument_members(self, argument):
        """Members that the constructor sets to an argument."""
        return {member for member, given in kept_arguments(self.methods["__init__"]) if given == argument}

    def method(self, name):
        tree = self.methods.get(name)
        derived = self.unit.overriding(self.cls, name) if name != "forward" else []
        if derived and not (tree and self.unit.recorder.called(tree)):
            owner = next(b for b in derived[0].__mro__ if name in vars(b))
            path, inner = self.unit.loaded.definition(vars(owner)[name])
            signature = self.unit.signature(inner, path, self.unit.translation(owner), None)
            return [f"  virtual {signature.result} {names.member(name, self.unit.class_names)}({signature.text('')}) {{",
                    f'    C10_THROW_ERROR(Error, "{self.cls.__name__}.{name} is for derived classes");', "  }"]
        translator = self.unit.translator(tree, self.path, self, self.owners())
        translator.translate()
        signature = translator.signature()
        cpp = name if name == "forward" else names.member(name, self.unit.class_names)
        if name == "__call__":
            cpp = "operator()"
        if name == "train":
            return [*documentation(ast.get_docstring(tree), "  "), f"  void train(bool {identifier(signature.live()[0].name)} = true) override {{",
                    *indented(translator.lines, 2), "  }"]
        static = "static " if any(getattr(d, "id", "") in ("staticmethod", "classmethod") for d in tree.decorator_list) else ""
        checks = name == "_check_input_dim" and not is_own(self.base) and hasattr(self.base, name)
        overrides = checks or name != "forward" and any(is_own(b) and name in self.unit.needed(b) for b in self.cls.__mro__[1:])
        static = "virtual " if derived and not static else static
        rest = any(p.state == "rest" for p in signature.parameters)
        several = [p for p in signature.live() if p.template.isidentifier()]
        if several and isinstance(signature.result_kind, Module | Many):
            raise Refusal(f"{several[0].name} of {name} is of several classes; make {name} a function outside of the class", tree, self.path)
        words = [f"class {p.template}" for p in several] + ["class... Rest"] * rest
        defaults = [f"{{{n}, torch::nn::AnyValue({any_default(p)})}}" for n, p in enumerate(signature.live()) if p.text and not rest]
        head = f"  {static}{signature.result} {cpp}({signature.text(translator.body_text())}){' override' if overrides and not static else ''} {{"
        made = [f"  template <{', '.join(words)}>"] if words else []
        out = [*documentation(ast.get_docstring(tree), "  "), *made, head, *indented(translator.lines, 2), "  }"]
        if name == "forward" and defaults and self.unit.in_any_module(self.cls):
            out += ["", " protected:", f"  FORWARD_HAS_DEFAULT_ARGS({', '.join(defaults)})", "", " public:"]
        return out

    def moves(self):
        """Overrides of to() that move the buffers which are no part of the state."""
        unsaved = [name for name in self.members if name in self.unsaved]
        if not unsaved:
            return []
        out = ["  // Buffers that are not saved move with the module."]
        for arguments, call, device, dtype in (
            ("torch::Device device, torch::Dtype dtype, bool non_blocking = false", "device, dtype, non_blocking", True, True),
            ("torch::Dtype dtype, bool non_blocking = false", "dtype, non_blocking", False, True),
            ("torch::Device device, bool non_blocking = false", "device, non_blocking", True, False),
        ):
            out += [f"  void to({arguments}) override {{", f"    torch::nn::Module::to({call});"]
            for name in unsaved:
                text = self.unit.member_name(name)
                parts = ([f"{text}.to(device)"] if device else [])
                target = parts[0] if parts else text
                if dtype:
                    target = f"{text}.is_floating_point() ? {target}.to(dtype) : {target}"
                out.append(f"    if ({text}.defined()) {text} = {target};")
            out.append("  }")
        return [*out, ""]

    def clone(self, name):
        """What copy_of calls."""
        if self.named:
            raise Refusal(f"{name} has parts whose names are put together, and is copied; give them names, or keep them in a list", self.tree)
        out = ["  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& = std::nullopt) const override {",
               f"    auto copy = std::make_shared<{name}Impl>(*this);"]
        if self.base in (nn.Sequential, nn.ModuleList, nn.ModuleDict):  # whose layers the copy would share
            made = "__init__" in self.methods or self.base is nn.ModuleDict
            layers = "named_children()[n].key(), (begin() + n)->clone()" if self.base is nn.Sequential else "(*this)[n]->clone()"
            lines = [f'    C10_THROW_ERROR(NotImplementedError, "{name} is not copied");'] if made else [
                out[1].replace("*this", ""), f"    for (size_t n = 0; n < size(); ++n) copy->push_back({layers});", "    return copy;"]
            return [out[0], *lines, "  }", ""]
        example = next(iter(self.unit.instances.get(self.cls, {}).values()), None)
        inherited = {} if is_own(self.base) or example is None else {
            **{n: Tensor() for where in (example._parameters, example._buffers) for n, value in where.items() if value is not None},
            **{n: Module(type(value)) for n, value in example._modules.items()}}
        for member, kind in {**self.members, **{n: kind for n, kind in inherited.items() if n not in self.members and n in self.base_modules() | {"weight", "bias"}}}.items():
            text = self.unit.member_name(member)
            if isinstance(kind, Module):
                again = f'copy->replace_module("{member}", copy_of({text}))'
                out.append(f"    if (!{text}.is_empty()) copy->{text} = {again};")
            elif isinstance(kind, Tensor):
                value = f"{text}.detach().clone()"
                if self.unit.is_stored(self, member, "_buffers") and member not in self.unsaved:
                    self.unit.helper("set_buffer")
                    value = f'set_buffer(*copy, "{member}", {value})'
                elif self.unit.is_stored(self, member, "_parameters"):
                    value = f'copy->parameters_["{member}"] = {value}.set_requires_grad({text}.requires_grad())'
                out.append(f"    if ({text}.defined()) copy->{text} = {value};")
            elif kind == kinds.CALLABLE and self.unit.captures:
                raise Refusal(f"self.{member}, a function that may keep modules or tensors, is copied; C++ would keep the first module's", self.tree)
            elif kinds.is_tensors(kind) and any(isinstance(v, nn.Parameter) for v in getattr(example, member, None) or ()):
                raise Refusal(f"self.{member}, a list of parameters, is copied; C++ would keep the first module's", self.tree)
        return [*out, "    return copy;", "  }", ""]

    def member_lines(self, template):
        initial = {kinds.INT: " = 0", kinds.FLOAT: " = 0", kinds.BOOL: " = false", kinds.DTYPE: " = torch::kFloat", kinds.DEVICE: " = torch::kCPU"}
        types = {}
        for name, kind in self.members.items():
            if kind in (None, kinds.NONE) or isinstance(kind, Class | Function):
                continue
            head = template.get(name) or (names.holder(kind) if isinstance(kind, Module) else cpp_type(kind, self.tree))
            first = "{nullptr}" if isinstance(kind, Module) or name in template else initial.get(kind, "")
            types.setdefault(head, []).append(self.unit.member_name(name) + first)
        return [f"  {head} {', '.join(declared)};" for head, declared in types.items()]


def kept_arguments(constructor):
    """The names of attributes that a constructor sets to a name, with that name."""
    for node in (n for n in ast.walk(constructor) if isinstance(n, ast.Assign)):
        for target in node.targets:
            pairs = zip(target.elts, node.value.elts, strict=False) if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) else [(target, node.value)]
            yield from ((kept.attr, given.id) for kept, given in pairs if isinstance(kept, ast.Attribute) and isinstance(given, ast.Name))


def mentions(nodes, name):
    """Whether nodes read an attribute, or hold its name as a word."""
    return any(getattr(n, "attr", None) == name and isinstance(n.ctx, ast.Load) or getattr(n, "value", None) == name for n in nodes)


def rebound_first(function, name):
    """Whether a function gives an argument a value of its own before anything changes it."""
    for statement in function.body:
        bound = isinstance(statement, ast.Assign) and [ast.unparse(t) for t in statement.targets] == [name]
        if bound or name in mutated_names(statement):
            return bound and name not in mutated_names(statement.value) and not isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript)
    return False


def mutated_names(tree):
    """Names of lists, tensors and objects that are changed in place."""
    return changed_names(tree) | {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name)}


def any_default(parameter):
    if isinstance(parameter.kind, Tensor):
        return "torch::Tensor()"
    return parameter.text if parameter.text not in ("{}", "std::nullopt") else f"{cpp_type(parameter.kind)}()"


def documentation(text, indent=""):
    if not text:
        return []
    lines = inspect.cleandoc(text).splitlines()
    return [f"{indent}/// {line}".rstrip(names.COMMENT_END) for line in lines]


def indented(lines, depth):
    return ["  " * (depth + inner) + text for inner, text in lines]


class Unit:
    """Everything that is translated for one class: the classes and functions that it uses, and what they need."""

    def __init__(self, loaded, recorder, root, recognise=True):
        self.loaded, self.recorder, self.root, self.recognise = loaded, recorder, root, recognise
        self.counter = itertools.count(10**9)
        self.found, self.paths, self.settled, self.space = {}, {}, False, ""
        self.instances = {}
        for module in [*root.modules(), *(m for top in list(recorder._alive.values()) for m in top.modules())]:
            if isinstance(module, torch.jit.ScriptModule):
                raise Refusal(f"{module.original_name} is a module of torch.jit, whose Python is not at hand; leave out torch.jit.script", path="")
            self.instances.setdefault(type(module), {})[id(module)] = module
        self.class_names, self.variants, self.classes = set(), {}, {}
        self.needs, self.compat_norm = {}, False
        self.attributes = {
            name for cls, found in self.instances.items() if is_own(cls) for m in found.values()
            for names_ in (vars(m), m._parameters, m._buffers, m._modules, vars(cls)) for name in names_}
        self.copies, self.captures, self._held, self._plain, self.replay = False, False, None, {}, None
        self._may_draw = {}
        self.field_kinds = {}  # of (struct, field) whose value was None when it was recorded, or is a list that grew
        for module in root.modules():
            if is_own(type(module)):
                self.check_hooks(module)
        for cls in [cls for cls in self.instances if is_own(cls)]:
            self.class_names.add(names.class_name(cls))
        self.reset()

    def without_effect(self, cls, name):
        """Whether a method does the same without its decorators: the class is run without them."""
        owner = next((c for c in cls.cls.__mro__ if name in vars(c)), None) if cls is not None else None
        decorated = vars(owner).get(name) if owner else None
        plain = inspect.unwrap(decorated) if inspect.isfunction(decorated) else decorated
        if plain is decorated:
            return False
        if (owner, name) not in self._plain:
            want = self.replay()
            try:
                setattr(owner, name, plain)
                found = self.replay()
            except Exception:
                found = []
            finally:
                setattr(owner, name, decorated)
            self._plain[owner, name] = len(found) == len(want) and all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
        if self._plain[owner, name]:
            self.notes.append(f"{owner.__name__}.{name}: its decorators were left out; without them the class computed the same")
        return self._plain[owner, name]

    @staticmethod
    def check_hooks(module):
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise Refusal(f"{type(module).__name__} has hooks; call what they do in forward", path="")

    def reset(self):
        self.items, self.functions, self.structs = [], {}, {}
        self.left_out = set()  # (struct, field) of displays that do not name the field
        self.helpers, self.includes, self.includes_std = [], set(), set()
        self.notes, self.never_ran, self.recognised, self.composed = [], [], [], []
        self.emitted = set()

    # Classes.

    def translation(self, cls):
        """The ClassTranslation of an own class."""
        if cls not in self.classes:
            if self.loaded.definition(cls) is None:
                raise Refusal(f"the source of class {cls.__name__} ({cls.__module__}) is not at hand; only classes of the file, of its folder and imported by name are translated", path=self.loaded.main)
            self.variants[cls] = [({}, list(self.instances.get(cls, {}).values()))]  # while members of its own class are asked for theirs
            self.variants[cls] = self.find_variants(cls)
            self.class_names.add(names.class_name(cls))
            self.classes[cls] = ClassTranslation(self, cls)
        return self.classes[cls]

    def find_variants(self, cls):
        """Groups the instances of a class by the classes of members that its constructor was handed."""
        instances = list(self.instances.get(cls, {}).values())
        definition = self.loaded.definition(cls)[1]
        init = next((f for f in definition.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        if init is None or len(instances) < 2:
            return [({}, instances)]
        arguments = {a.arg for a in init.args.args}
        handed = [member for member, given in kept_arguments(init) if given in arguments]
        differing = [name for name in handed if len({self.family(m._modules.get(name)) for m in instances if name in m._modules}) > 1]
        if not differing:
            return [({}, instances)]
        groups = {}
        for module in instances:
            groups.setdefault(tuple(self.family(module._modules[name]) for name in differing), []).append(module)
        return [({name: type(found[0]._modules[name]) for name in differing}, found) for found in groups.values()]

    def family(self, module):
        """What tells the type of a module in C++ apart: its class, and of one that is a template there, which of its uses it is."""
        cls = type(module)
        if not isinstance(module, nn.Module) or not is_own(cls) or self.loaded.definition(cls) is None:
            return cls
        if cls not in self.variants:
            self.translation(cls)
        return cls, next((n for n, (_, members) in enumerate(self.variants[cls]) if any(m is module for m in members)), 0)

    def resolve(self, kind, found):
        """The kind of a module whose class is a template, with the template's arguments."""
        if names.is_any_module(kind) and len({item.cls for item in kind.kinds}) == 1:
            kind = kind.kinds[0]
        if not isinstance(kind, Module) or not is_own(kind.cls) or isinstance(kind, names.TemplateModule):
            return kind
        variants = self.translation(kind.cls).variants()
        if len(variants) < 2:
            return kind
        of = {next((n for n, (_, members) in enumerate(variants) if any(m is module for m in members)), 0) for module in found()} or {0}
        made = [names.TemplateModule(kind.cls, n, "<" + ", ".join(names.holder(self.resolve(Module(c), lambda n=n, member=member: [m._modules[member] for m in variants[n][1]])) for member, c in variants[n][0].items()) + ">") for n in sorted(of)]
        return made[0] if len(made) == 1 else Many(tuple(made))

    def need_class(self, cls):
        if cls not in self.emitted:
            self.emit_class(cls)

    def need_method(self, cls, name):
        owner = next((b for b in cls.__mro__ if name in vars(b)), cls if self.overriding(cls, name) else None)
        if owner is None or not is_own(owner):
            raise Refusal(f"{cls.__name__}.{name} is not defined in the class")
        self.needs.setdefault(owner, {})[name] = True
        for derived in self.overriding(owner, name):
            self.needs.setdefault(next(b for b in derived.__mro__ if name in vars(b)), {})[name] = True
        if owner is not cls:
            self.translation(owner)

    def needed(self, cls):
        return list(self.needs.get(cls, ()))

    def overrides(self, cls, name):
        owner = next((b for b in cls.__mro__ if name in vars(b)), None)
        return owner is not None and is_own(owner)

    def own_constructor(self, cls):
        owner = next((b for b in cls.__mro__ if "__init__" in vars(b)), None)
        return owner is not None and is_own(owner)

    def class_of(self, function, constructor):
        """The translation of the class whose method a function is."""
        if constructor is not None:
            owner = next(b for b in constructor.__mro__ if "__init__" in vars(b))
            self.translation(constructor)
            return self.translation(owner)
        name = getattr(function, "__qualname__", "").split(".")
        function = getattr(function, "__func__", function)
        for cls in list(self.classes):
            if len(name) > 1 and cls.__name__ == name[-2] and getattr(vars(cls).get(name[-1]), "__func__", vars(cls).get(name[-1])) is function:
                return self.classes[cls]
        for cls in self.instances:
            if is_own(cls) and any(inspect.unwrap(v) is inspect.unwrap(function) for v in vars(cls).values() if inspect.isfunction(v)):
                return self.translation(cls)
        return None

    def emit_class(self, cls):
        """Adds a class and, before it, what it is made of."""
        self.emitted.add(cls)
        translation = self.translation(cls)
        for module in self.instances.get(cls, {}).values():
            for child in module.modules():
                if child is not module and is_own(type(child)):
                    self.need_class(type(child))
        if is_own(translation.base):
            self.need_class(translation.base)
        for base in cls.__mro__:
            if "forward" in vars(base) and is_own(base):
                if self.recorder.called(self.loaded.definition(base.forward)[1]):
                    self.needs.setdefault(base, {})["forward"] = True
                break
        for name in ("train", "_check_input_dim"):  # which PyTorch calls
            if inspect.isfunction(vars(cls).get(name)) and self.recorder.called(self.loaded.definition(vars(cls)[name])[1]):
                self.needs.setdefault(cls, {})[name] = True
        try:
            self.items.append(("class", cls, translation.text()))
        except Refusal as refusal:
            refusal.path, refusal.line = refusal.path or translation.path, refusal.line or translation.tree.lineno
            raise

    def generate(self, driver):
        """Translates everything; `driver` is the (path, tree) of make and the calls. Repeats until no new need appears."""
        for _ in range(8):
            before = self.state()
            self.reset()
            self.emit_class(type(self.root))
            for path, tree in driver:
                self.emit_function(tree, path, tree.name)
            for cls in [c for c in self.classes if c not in self.emitted and self.instances.get(c)]:
                self.emit_class(cls)
            if self.state() == before:
                return
        raise Refusal("the classes depend on each other without end")

    def state(self):
        return ({c: tuple(m) for c, m in self.needs.items()}, {c: (tuple(t.members.items()), tuple(t.statics)) for c, t in self.classes.items()},
                tuple(self.functions), len(self.items), self.copies, self.captures)

    def attribute_kind(self, translation, name):
        """The kind of an attribute in the instances after all that ran."""
        found = []
        for cls, instances in self.instances.items():
            if issubclass(cls, translation.cls):
                for module in instances.values():
                    if translation.owners() is None or id(module) in translation.owners():
                        value = getattr_quiet(module, name)
                        if value is not UNKNOWN:
                            kind = kind_of(value)
                            found.append(self.resolve(kind, lambda v=value: [v]))
        kind = merge(found)
        if isinstance(kind, Config) and not kind.fields():  # emptied again
            kind = merge([kind, *(self.recorder.kind(n) for n in ast.walk(translation.tree) if isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load))])
        return kind

    def bound_method(self, translation, name):
        """The name of the own method that an attribute is in every instance, else None."""
        values = [vars(m).get(name) for cls, found in self.instances.items() if issubclass(cls, translation.cls) for m in found.values()]
        own = {value.__func__.__name__ if inspect.ismethod(value) and isinstance(value.__self__, nn.Module) and vars(value.__self__).get(name) is value else None
               for value in values}
        return own.pop() if len(own) == 1 else None

    @staticmethod
    def read_by_torch(cls, name):
        """Whether a class has an attribute, or PyTorch's source of it or of its bases mentions it."""
        return hasattr(cls, name) or any(f"self.{name}" in inspect.getsource(base) for base in cls.__mro__[:-1] if not is_own(base))

    def read_anywhere(self, name):
        """Whether the user's sources mention an attribute other than to set it."""
        return mentions((node for source in self.loaded.sources.values() for node in ast.walk(source.tree)), name)

    def is_idle(self, name, among=()):
        """Whether nothing that ran reads an attribute, except to set attributes that are idle as well."""
        functions = [n for source in self.loaded.sources.values() for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef) and hasattr(n, "uid")]
        for statement in (n for function in functions if self.recorder.called(function) for n in ast.walk(function) if isinstance(n, ast.stmt)):
            nested = statement.body if hasattr(statement, "body") else []
            parts = [n for part in ast.iter_child_nodes(statement) if part not in nested for n in ast.walk(part)] if nested else list(ast.walk(statement))
            if not mentions((n for n in parts if isinstance(statement, ast.FunctionDef) or self.recorder.kind(n) is not None), name):
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(target, ast.Attribute) or target.attr in (name, *among) or not self.is_idle(target.attr, (*among, name)):
                return False
        return True

    def is_stored(self, translation, name, where):
        return any(getattr(module, where).get(name) is not None for cls, found in self.instances.items() if issubclass(cls, translation.cls) for module in found.values())

    def assigned(self, cls, name):
        """Whether an instance has an attribute of its own beside the class's."""
        return any(name in vars(module) for c, found in self.instances.items() if issubclass(c, cls) for module in found.values())

    def overriding(self, cls, name):
        """The derived classes that have a method of that name of their own."""
        return [other for other in self.instances if is_own(other) and other is not cls and issubclass(other, cls) for base in other.__mro__
                if name in vars(base) and base is not cls and issubclass(base, cls)]

    def in_any_module(self, cls):
        """Whether a class is called through AnyModule or Sequential, which knows no default arguments."""
        if self._held is None:
            holders = [m for found in self.instances.values() for m in found.values() if isinstance(m, nn.Sequential)]
            self._held = {type(child) for holder in holders for child in holder}
            for found in self.instances.values():
                for name in {name for m in found.values() for name in m._modules}:
                    kinds_ = {type(m._modules[name]) for m in found.values() if m._modules.get(name) is not None}
                    self._held |= kinds_ if len(kinds_) > 1 else set()
        return cls in self._held

    def member_name(self, name):
        return names.member(name, self.class_names)

    # Functions.

    def translator(self, tree, path, cls=None, owners=None, constructor=False, nested=None):
        return Translator(self, tree, path, cls, owners, constructor, nested)

    def signature(self, tree, path, cls, owners):
        """What the arguments of a function became."""
        arguments, recorder = tree.args, self.recorder
        ordered = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([a.arg for a in ordered][::-1], arguments.defaults[::-1], strict=False))
        defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None})
        decorators = {getattr(d, "id", getattr(d, "attr", "")) for d in tree.decorator_list}
        plain = tree.name == "__init__"  # the constructor of a class that is no module
        first = ordered[0].arg if ordered and (cls is not None or plain) and "staticmethod" not in decorators else None
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        mutated = mutated_names(tree)
        parameters = []
        layer = self.options_of(tree, path, cls)
        if layer is not None:
            own = [self.parameter(a, tree, path, owners, defaults, a.arg in stored) for a in [*ordered, *arguments.kwonlyargs] if a.arg != first]
            result = self.resolve(recorder.returns(tree, owners), lambda: [])
            options = Parameter("options", kinds.OPTIONS, template=f"const {modules.holder(layer)}Options&", value=layer)
            return Signature([*own, options], result, "void" if result in (None, kinds.NONE) else cpp_type(result, tree))
        inherited, given = self.inherited_arguments(tree, cls)
        if inherited is not None:
            own = [self.parameter(a, tree, path, owners, defaults, a.arg in stored) for a in [*ordered[1:], *arguments.kwonlyargs]]
            parameters = [*own[: len(ordered) - 1], *(p for p in inherited.parameters if p.name not in given), *own[len(ordered) - 1 :]]
            return Signature(parameters, inherited.result, inherited.text)
        for argument in ordered:
            if argument.arg != first:
                parameters.append(self.parameter(argument, tree, path, owners, defaults, argument.arg in stored))
                parameters[-1].changed |= isinstance(parameters[-1].kind, Tensor) and argument.arg in mutated
                if isinstance(parameters[-1].kind, List | Config | kinds.Map) and argument.arg in mutated and not rebound_first(tree, argument.arg):
                    parameters[-1].template = f"{cpp_type(parameters[-1].kind)}&"
        if arguments.vararg is not None:
            kind = recorder.argument(tree, arguments.vararg.arg, owners)
            of_all = recorder.argument(tree, arguments.vararg.arg)
            empty = isinstance(of_all, Tuple) and not of_all.items or of_all is None
            fixed = isinstance(of_all, Tuple) and (kinds.is_tensors(of_all) or kinds.is_numbers(of_all)) or isinstance(of_all, List) and of_all.length is not None
            calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and recorder.modules(n.func)]
            starred = [a.value for call in calls for a in call.args if isinstance(a, ast.Starred)]
            uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == arguments.vararg.arg]
            if not empty and not fixed and uses and all(n in starred for n in uses) and (arguments.kwarg is None or recorder.no_keywords(tree, arguments.kwarg.arg)):
                if any(type(child) is getattr(cls, "cls", None) for m in self.instances.get(nn.Sequential, {}).values() for child in m):
                    raise Refusal(f"{tree.name} takes *{arguments.vararg.arg}, which differ from call to call, and an nn.Sequential calls it; name its arguments", tree, self.loaded.name(path))
                parameters.append(Parameter(arguments.vararg.arg, None, state="rest"))
            elif isinstance(kind, List) or (kinds.is_tensors(kind) or kinds.is_numbers(kind)):
                kind = kind if isinstance(kind, List) else List(merge(list(kind.items)), len(kind.items))
                parameters.append(Parameter(arguments.vararg.arg, kind))
            elif not (isinstance(kind, Tuple) and not kind.items) and kind is not None:
                raise Refusal(f"{tree.name} takes *{arguments.vararg.arg}; name its arguments", tree, self.loaded.name(path))
        for argument in arguments.kwonlyargs:
            parameters.append(self.parameter(argument, tree, path, owners, defaults, argument.arg in stored))
        if arguments.kwarg is not None:
            found = self.keyword_entries(tree, path, cls) if owners is None else None
            if found and not any(isinstance(k, Many) for k, _ in found.values()):
                for key, (kind, default) in found.items():
                    if kind == kinds.NONE:
                        parameters.append(Parameter(key, kind, default, "none", keyword=True))
                        continue
                    named = Parameter(key, self.resolve(kind, lambda: []), default, keyword=True)
                    if default is not inspect.Parameter.empty:
                        named.text = self.parameter_default(default, kind, tree, path)
                    if isinstance(kind, Class | Function):
                        named.state, named.value = "static", kind.cls if isinstance(kind, Class) else kind.function
                    parameters.append(named)
                result = self.resolve(recorder.returns(tree, owners), lambda: [])
                return Signature(parameters, result, "void" if result in (None, kinds.NONE) else cpp_type(result, tree))
            seen = [k for k in recorder._arguments[tree.uid].get(arguments.kwarg.arg, {})]
            if not recorder.no_keywords(tree, arguments.kwarg.arg) and any(isinstance(key[1], Config) and key[1].fields() for key in seen) and any(
                isinstance(n, ast.Call) and any(k.arg is None for k in n.keywords) for n in ast.walk(tree)):
                parameters.append(Parameter(arguments.kwarg.arg, None, state="rest"))
        result = kinds.promoted(self.resolve(kinds.with_more(recorder.returns(tree, owners)), lambda: []))
        text = "void" if result in (None, kinds.NONE) else cpp_type(result, tree)
        return Signature(parameters, result, text)

    def starred_parameters(self, tree, owners, node):
        """The parameters that take the entries of *args in the end, in Python's order."""
        found = []
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            at = next((n for n, a in enumerate(call.args) if isinstance(a, ast.Starred) and getattr(a.value, "id", "") == tree.args.vararg.arg), None)
            for module in self.recorder.modules(call.func, owners) if at is not None else ():
                if is_own(type(module)):
                    path, inner = self.loaded.definition(type(module).forward)
                    cls = self.class_of(type(module).forward, None)
                    taken = [p for p in self.signature(inner, path, cls, cls.owners()).parameters if p.state != "rest"][: len(inner.args.args) - 1]
                    further = self.starred_parameters(inner, {id(module)}, node) if inner.args.vararg is not None and inner is not tree else []
                    found.append([*taken, *further][at:])
        if len({tuple((p.state, p.kind) for p in taken) for taken in found}) > 1:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: modules that take other arguments get them; name the arguments", node)
        return found[0] if found else []

    def keyword_entries(self, tree, path, cls):
        """Kinds and defaults of the entries of **kwargs; of what some calls leave out, the default is that of what takes it in the end. None where
        that has none."""
        word, entries = tree.args.kwarg.arg, {}
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and any(k.arg is None and ast.unparse(k.value) == word for k in n.keywords)]
        alone = len(calls) == 1 == sum(isinstance(n, ast.Name) and n.id == word for n in ast.walk(tree))
        target = cls.base if alone and cls and super_call(calls[0]) == "__init__" else self.translator(tree, path, cls).static(calls[0].func) if alone else None
        known = inspect.signature(target.__init__ if inspect.isclass(target) else target).parameters if callable(target) else {}
        for key, (kind, always) in sorted(self.recorder.keywords(tree, word).items(), key=lambda entry: not entry[1][1]):
            default = inspect.Parameter.empty if always else getattr(known.get(key), "default", inspect.Parameter.empty)
            if not always and default is inspect.Parameter.empty:
                default = self.usual_keyword(tree, path, cls, key)
            if not always and type(default) not in (bool, int, float, str) and (default, kind) != (None, kinds.NONE):
                return None
            kind = self.sizes_kind(kind if always else merge([kind, kind_of(default)]), lambda key=key: modules.takes_sizes(target, key))
            entries[key] = kind, (default,) * len(kind.items) if isinstance(kind, Tuple) and type(default) is int else default
        return entries

    def usual_keyword(self, tree, path, cls, key, among=()):
        """The value of an entry of **kwargs where a call leaves it out: what the function asks for in its place, or the default of all to which it hands
        its keywords on; empty where that is not clear."""
        word, static, asked, defaults = tree.args.kwarg.arg, self.translator(tree, path, cls).static, [], []
        held = lambda n: getattr(n, "id", None) == word
        for node in (n for n in ast.walk(tree) if self.recorder.kind(n) is not None and tree.uid not in among):
            if isinstance(node, ast.Compare) and getattr(node.left, "value", None) == key and held(node.comparators[0]):
                return inspect.Parameter.empty  # C++ would not know
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and held(node.func.value) and len(node.args) == 2 and getattr(node.args[0], "value", None) == key:
                asked.append(getattr(node.args[1], "value", inspect.Parameter.empty))
            elif any(k.arg is None and held(k.value) for k in node.keywords) and key not in {k.arg for k in node.keywords}:
                target = static(node.func)
                target = target.__init__ if inspect.isclass(target) else target
                taken = inspect.signature(target).parameters if callable(target) else {}
                found = self.loaded.definition(target) if key not in taken and inspect.isfunction(target) else None
                if key in taken:
                    defaults.append(taken[key].default)
                elif found and found[1].args.kwarg:
                    inner = self.usual_keyword(found[1], found[0], self.class_of(target, None), key, (*among, tree.uid))
                    defaults += [] if inner is None else [inner]
        found = asked or defaults
        return None if not found else found[0] if all(type(one) is type(found[0]) and one == found[0] for one in found) else inspect.Parameter.empty

    @staticmethod
    def sizes_kind(kind, is_size):
        """The kind of what is a number in some calls and a tuple of numbers in others, where it is a size of a layer: the tuple's."""
        several = set(getattr(kind, "kinds", ())) - {kinds.INT}
        whole = several.pop() if len(several) == 1 else None
        return whole if kinds.is_numbers(whole) and whole.items[0] == kinds.INT and is_size() else kind

    def owner_of(self, tree):
        """The class that defines a method; None for a function."""
        return next((cls for cls, made in self.classes.items() if tree.uid in {getattr(part, "uid", None) for part in made.tree.body}), None)

    def only_sizes(self, tree, path, cls, name, among=()):
        """Whether all that a function does with an argument, where it may be a number, is to hand it on as a size: to layers of PyTorch, to what makes
        a tuple of a number, or to own functions that do no more with it."""
        static, sized = self.translator(tree, path, cls).static, []
        owner = self.owner_of(tree)
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            own = owner is not None and getattr(getattr(call.func, "value", None), "id", None) == "self"
            target = getattr(owner, call.func.attr, None) if own else static(call.func)
            found = self.loaded.definition(target) if inspect.isfunction(target) else None
            tuples = getattr(target, "__qualname__", "") == "_ntuple.<locals>.parse"
            for at, value in [*enumerate(call.args), *((k.arg, k.value) for k in call.keywords)]:
                if getattr(value, "id", None) == name and not tuples and found and tree.uid not in among:
                    taken = dict(enumerate([a.arg for a in found[1].args.args][own:]))
                    sized += [value] * self.only_sizes(found[1], found[0], None, taken.get(at, at), (*among, tree.uid))
                elif getattr(value, "id", None) == name and (tuples or modules.takes_sizes(target, at)):
                    sized.append(value)
        sized += [n.left for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Is | ast.IsNot) and is_none(n.comparators[0])]
        reads = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        return all(n in sized for n in reads if not kinds.is_numbers(self.recorder.kind(n)) and self.recorder.kind(n) is not None)

    def options_of(self, tree, path, cls):
        """The layer of PyTorch to whose constructor a function hands its *args and **kwargs on, if it does nothing else with them."""
        if None in (tree.args.vararg, tree.args.kwarg):
            return None
        words = tree.args.vararg.arg, tree.args.kwarg.arg
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and list(map(ast.unparse, n.args)) == [f"*{words[0]}"]
                 and [ast.unparse(k.value) for k in n.keywords if k.arg is None] == [words[1]]]
        if len(calls) != 1 or sum(isinstance(n, ast.Name) and n.id in words for n in ast.walk(tree)) != 2:
            return None
        base = cls is not None and super_call(calls[0]) == "__init__" and tree.name == "__init__"
        layer = cls.base if base else self.translator(tree, path, cls).static(calls[0].func)
        return layer if inspect.isclass(layer) and modules.has_options(layer) else None

    def inherited_arguments(self, tree, cls):
        """Of a constructor that hands its *args and **kwargs on to the base's: the signature of that one, and the names that it gives itself."""
        if cls is None or tree.name != "__init__" or tree.args.vararg is None or not is_own(cls.base):
            return None, ()
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and any(isinstance(a, ast.Starred) for a in call.args):
                owner = next(b for b in cls.base.__mro__ if "__init__" in vars(b))
                path, inner = self.loaded.definition(owner.__init__)
                return self.signature(inner, path, self.translation(owner), None), {k.arg for k in call.keywords if k.arg}
        return None, ()

    def parameter(self, argument, tree, path, owners, defaults, changed):
        name, recorder = argument.arg, self.recorder
        kind = recorder.argument(tree, name, owners)
        default = inspect.Parameter.empty
        if name in defaults:
            try:
                owner = self.owner_of(tree)  # whose names a default may use
                default = eval(compile(ast.Expression(defaults[name]), "<default>", "eval"), self.loaded.globals_of(path), vars(owner) if owner else {})
            except Exception:
                raise Refusal(f"the default of {name}", defaults[name], self.loaded.name(path)) from None
        kind = self.sizes_kind(self.resolve(kind, lambda: recorder.argument_modules(tree, name, owners)), lambda: self.only_sizes(tree, path, None, name))
        if isinstance(kind, Tuple) and type(default) is int:
            default = (default,) * len(kind.items)
        if kind is None:
            raise Refusal(f"{tree.name} was never called", tree, self.loaded.name(path))
        if kind == kinds.NONE:
            self.notes.append(f"{self.loaded.place(path, argument.lineno)}: {name} of {tree.name} was always None and is left out")
            return Parameter(name, kind, default, "none")
        if isinstance(kind, Class | Function):
            return Parameter(name, kind, default, "static", kind.cls if isinstance(kind, Class) else kind.function)
        if changed and isinstance(getattr(kind, "kind", kind), List):
            kind = merge([kind, *(k for k in self.assigned_kinds(tree, name) if isinstance(k, List) and k.item == kinds.NONE)])
        if changed and (kinds.makers(kind) or names.is_choice(kind)):
            kind = kinds.merge([kind, *self.assigned_makers(tree, name)])
        if kinds.makers(kind):
            text = "" if default is inspect.Parameter.empty else schema.literal(names.maker_word(kind_of(default)))
            return Parameter(name, kind, default, text=text, changed=changed)
        if kinds.classes(kind):
            return Parameter(name, kind, default, "static", kinds.classes(kind))
        if kind == kinds.Simple("module"):
            raise Refusal(f"{name} of {tree.name} is a Python module", argument, self.loaded.name(path))
        template = ""
        if isinstance(kind, Module | Many) and self.of_any_class(tree, name):
            kind = Module(nn.Module)
        if names.is_any_module(kind):
            asks = re.search(r"\bisinstance\(|\.__class__\b|\btype\(|\.apply\(", ast.unparse(tree))  # of any class
            template = "" if asks or owners is not None else f"{name[:1].upper()}{name[1:]}"
            kind = Module(nn.Module)
        if isinstance(kind, Many):
            raise Refusal(f"{name} of {tree.name} is {names.describe(kind)}; give each a function of its own", argument, self.loaded.name(path))
        if isinstance(kind, Config):
            self.struct(kind)
        parameter = Parameter(name, kind, default, changed=changed, template=template)
        if default is not inspect.Parameter.empty:
            parameter.text = self.parameter_default(default, kind, argument, path)
        return parameter

    def assigned_makers(self, tree, name):
        """The kinds of the classes, and partials of them, that a function gives an argument's name."""
        return [kind for kind in self.assigned_kinds(tree, name) if kind is not None and (kinds.makes(kind) or kinds.makers(kind))]

    def assigned_kinds(self, tree, name):
        """The kinds of what a function gives an argument's name."""
        return [self.recorder.kind(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign) and any(getattr(t, "id", None) == name for t in n.targets)]

    @staticmethod
    def of_any_class(tree, name):
        """Whether all that a function does with an argument, a module, is to call methods that any module has, and to hand it on or back."""
        parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        uses = [parents[id(n)] for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
        called = [isinstance(use, ast.Attribute) and use.attr in ANY_MODULE and isinstance(parents[id(use)], ast.Call) for use in uses]
        whole = tree.name in {getattr(n.func, "id", None) for n in ast.walk(tree) if isinstance(n, ast.Call)}  # it walks a tree of modules
        return any(called) and not any("self" == a.arg for a in tree.args.args) and all(
            call or whole and isinstance(use, ast.keyword | ast.Call | ast.Return) for call, use in zip(called, uses, strict=True))

    def parameter_default(self, default, kind, argument, path):
        if names.is_choice(kind):
            return "false" if default is None else "true"
        if default is None:
            return "{}" if isinstance(kind, Tensor) else "nullptr" if isinstance(kind, Module) else "std::nullopt" if isinstance(kind, Optional) else ""
        if isinstance(kind, Module | Config) or kind == kinds.CALLABLE or kind_of(default) in (kinds.CALLABLE,):
            return ""
        if isinstance(kind_of(default), Function | Class):
            return ""
        sequence = isinstance(kind, List | Size | Tuple)
        if sequence != isinstance(default, list | tuple) and (sequence or kind in kinds.NUMBERS):
            return ""  # every call gave a value of another type
        if kind == kinds.DEVICE and isinstance(default, str):
            return f"torch::Device({schema.literal(default)})"
        if isinstance(kind, Tensor) and isinstance(default, bool | int | float):
            return Translator.held(schema.literal(default), kind_of(default), kind)
        try:
            return schema.literal(default)
        except Refusal as refusal:
            raise Refusal(refusal.why, argument, self.loaded.name(path)) from None

    def inlines(self, tree, body):
        """Whether a function is one short expression, or an if between two."""
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.decorator_list:
            return False
        small = len(list(ast.walk(ast.Module(body, [])))) < 34
        arguments = {a.arg for a in tree.args.args}
        for part in ast.walk(ast.Module(body, [])):
            if isinstance(part, ast.Subscript | ast.Attribute) or (isinstance(part, ast.Call) and not (
                isinstance(part.func, ast.Name) and (part.func.id in arguments or part.func.id in ("isinstance", "callable", "isfunction", "exists")))):
                return False
        if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            return small and not any(isinstance(n, ast.Lambda | ast.ListComp) for n in ast.walk(body[0]))
        one = isinstance(body[0], ast.If) and len(body[0].body) == 1 and isinstance(body[0].body[0], ast.Return)
        rest = (body[0].orelse or body[1:]) if one else []
        return small and one and len(body) <= 2 and len(rest) == 1 and isinstance(rest[0], ast.Return) and rest[0].value is not None

    def function(self, target, node, made=None):
        """The C++ name of an own function, which is emitted before what uses it. `made`: it is the constructor of that plain class."""
        path, tree = self.loaded.definition(target)
        if tree.uid not in self.functions:
            name = identifier(tree.name) if made is None else f"make_{made.name}"
            taken = {n for n in self.functions.values()}
            name = next(n for n in itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2))) if n not in taken and n not in self.class_names)
            self.functions[tree.uid] = name
            self.emit_function(tree, path, name, made)
        name = self.functions[tree.uid]
        found = names.is_torch_name(name) or hasattr(torch.Tensor, name) or name in self.attributes
        return f"{self.space}::{name}" if found else name

    def emit_function(self, tree, path, name, made=None):
        translator = self.translator(tree, path)
        if made is not None:
            translator.locals["self"] = made
        translator.translate()
        signature = translator.signature()
        if made is not None:
            signature.result = made.name
            translator.lines = [(0, f"{made.name} self;"), *translator.lines, (0, "return self;")]
        returned = {getattr(n.value, "id", None) for n in ast.walk(tree) if isinstance(n, ast.Return) and self.recorder.kind(n.value) is not None}
        for parameter in signature.live():
            if (parameter.template or parameter.is_reference()) and returned == {parameter.name}:
                signature.result = parameter.template or "torch::nn::Module&"  # the module that was handed over
        if path == DRIVER and translator.lines[-1:] and translator.lines[-1][1].startswith("return module_->"):
            signature.result = "auto"  # whatever it is, its tensors are what is compared
        words = [f"class {p.template}" for p in signature.live() if p.template and p.template.isidentifier()]
        head = f"{'' if words else 'inline '}{signature.result} {name}({signature.text(translator.body_text())}) {{"
        template = [f"template <{', '.join(words)}>"] if words else []
        self.items.append(("function", name, [*documentation(ast.get_docstring(tree)), *template, head, *indented(translator.lines, 1), "}"]))

    def may_draw(self, function, further=("nn.", "self.", "layer")):
        """Whether the text of an own function mentions anything that draws, or whose text is elsewhere."""
        if function not in self._may_draw:
            definition = self.loaded.definition(function)
            text = ast.unparse(definition[1]).lower() if definition else "rand"
            self._may_draw[function] = any(word in text for word in ("drop", "rand", "bernoulli", "multinomial", "normal_", "torch.normal", "uniform_", *further))
        return self._may_draw[function]

    # What the text needs beside itself.

    def struct(self, kind):
        if kind.name not in self.structs:
            self.structs[kind.name] = kind
        else:
            held = self.structs[kind.name]
            if held is not kind and set(self.struct_fields(held)) != set(self.struct_fields(kind)):
                known = held.fields()
                merged = {**known, **{k: v for k, v in kind.fields().items() if known.get(k) is None}}
                self.structs[kind.name] = Config(merged) if held.name == "Config" else held

    def struct_fields(self, kind):
        """Fields of a config that have a C++ type: names with their kinds."""
        fields = {}
        for name, value in kind.fields().items():
            field_kind = self.field_kinds.get((kind.name, name)) or (kind_of(value) if isinstance(kind.value, dict) else kind.field_kind(name))
            if field_kind == kinds.NONE or isinstance(field_kind, Class | Function | Many | Module) or field_kind == kinds.CALLABLE or not str(name).isidentifier():
                continue
            if isinstance(field_kind, Config) and not field_kind.fields() or names.is_setting(field_kind):
                continue
            fields[name] = field_kind
        return fields

    def struct_lines(self):
        out = []
        done = set()

        def emit(name):
            if name in done:
                return
            done.add(name)
            kind = self.structs[name]
            lines = []
            for field, field_kind in self.struct_fields(kind).items():
                value = kind.fields()[field]
                if isinstance(field_kind, Config):
                    self.struct(field_kind)
                    emit(field_kind.name)
                    lines.append(f"  {field_kind.name} {identifier(field)};")
                    continue
                try:
                    type_text = cpp_type(field_kind)
                except Refusal:
                    continue
                try:
                    text = "{}" if isinstance(field_kind, Tensor | Optional) else schema.literal(value)
                except Refusal:
                    text = "{}"  # lists of tensors
                bare = text == "{}" and (name, field) not in self.left_out
                lines.append(f"  {type_text} {identifier(field)}{'' if bare else ' = ' + text};")
            recorded = "/// Values as they were when the class was recorded." if any(" = " in line for line in lines) else "/// Tensors by their names."
            document = recorded if kind.name == "Config" else ""
            out.extend([*([document] if document else documentation(own_docstring(type(kind.value)))), f"struct {name} {{", *lines, "};", ""])

        for name in list(self.structs):
            emit(name)
        return out

    def helper(self, name):
        if name not in self.helpers:
            self.helpers.append(name)

    def never(self, path, line):
        place = self.loaded.place(path, line)
        if place not in self.never_ran:
            self.never_ran.append(place)

    def attention(self, translator, body):
        """The plans for a function and what it computes without attention(); found once."""
        uid = translator.function.uid
        if uid not in self.found:
            self.found[uid] = attend.find(translator, translator.function, body)
            self.paths[uid] = translator.path
        plans, declined = self.found[uid]
        for plan in plans:
            self.recognised.append(f"{self.loaded.place(translator.path, plan.line)}: {getattr(plan, 'summary', 'softmax(q k^T) v')}")
        for item in declined if translator.path != distributions.__file__ else ():
            text = f"{self.loaded.place(translator.path, item.line)}: {item.why}"
            if text not in self.composed:
                self.composed.append(text)
        return plans, declined


ANY_MODULE = set("parameters buffers modules children named_parameters named_buffers named_children apply".split())
_DECORATORS = {"staticmethod", "classmethod", "property", "cached_property", "abstractmethod", "export", "ignore", "unused", "script", "compile",
               "script_if_tracing", "lru_cache", "cache", "override", "no_type_check", "use_kernel_forward_from_hub", "use_kernel_func_from_hub", "typechecked", "jaxtyped", "overload", "autocast"}


def own_docstring(cls):
    text = cls.__doc__
    return text if text and not text.startswith(f"{cls.__name__}(") and cls.__module__ != "builtins" else None


def getattr_quiet(module, name):
    for where in ("_parameters", "_buffers", "_modules"):
        if name in vars(module).get(where, {}):
            return vars(module)[where][name]
    return vars(module).get(name, UNKNOWN)
