"""Reports the module calls and attention functions of a running program to a recorder.

Names are replaced (Module.__call__, scaled_dot_product_attention, softmax) and nothing takes part in PyTorch's dispatch:
beside a TorchFunctionMode or a forward hook PyTorch leaves its fused encoder, and the program computes other numbers.
"""

import dis
import functools
import inspect
import re
import sys
import threading
import types
import weakref

import torch

from attentive_case import SDPA

_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum", "mm"})
_OURS = frozenset({__name__, "attentive_adapt", "attentive_case"})  # they call the replaced functions
_EAGER = "eager_attention_forward"
_EAGER_ARGUMENTS = ["module", "query", "key", "value", "attention_mask"]


class Watch:
    """A context manager; while it is active, `recorder` is told of every call.

    recorder.module_called(module, inputs, named)              -> whether the call was recognised
    recorder.function_called(function, kind, inputs, named)    -> whether it was; kind is "sdpa" or "eager"
    recorder.looks_like_attention(what)                        a call that nobody recognised
    What happens inside a recognised call is not reported.
    """

    def __init__(self, recorder):
        self._recorder = recorder
        self._here = _Thread()
        self._names = weakref.WeakKeyDictionary()  # the paths of a root module's parts
        self._eager = {}
        self._modules_seen = 0

    def look_away(self):
        """Stops reporting calls of this thread."""
        self._here.inside = 1

    def module(self):
        """This thread's innermost active module, or None."""
        return self._here.stack[-1].module if self._here.stack else None

    def path(self):
        """That module's path in the outermost active module, such as "encoder.layers.0.self_attn"."""
        stack = self._here.stack
        if not stack:
            return ""
        names = self._names.get(stack[0].module, {})
        if id(stack[-1].module) not in names:
            names = {id(part): name for name, part in stack[0].module.named_modules()}
            self._names[stack[0].module] = names
        unnamed = []
        for call in reversed(stack):
            if id(call.module) in names:
                return ".".join(filter(None, (names[id(call.module)], *reversed(unnamed))))
            unnamed.append(type(call.module).__name__)

    def call(self, recognised, run):
        """Runs a function; the calls that it makes are reported unless it was itself `recognised`."""
        if self._blind():
            return run()
        self._here.inside = 1
        try:
            if not recognised():
                self._here.inside = 0
                return run()
            self._explain()
            return run()
        finally:
            self._here.inside = 0

    def __enter__(self):
        self._module_call = torch.nn.Module.__call__
        torch.nn.Module.__call__ = self._watched_module_call()
        self._replaced = [(SDPA, self._watched_function(SDPA, "sdpa"))]
        self._replaced.append((torch.softmax, self._watched_softmax(torch.softmax)))
        _replace_everywhere(self._replaced)
        self._tensor_softmax = vars(torch.Tensor).get("softmax")
        torch.Tensor.softmax = self._watched_softmax(torch.Tensor.softmax)
        self._find_eager()
        return self

    def __exit__(self, *_):
        torch.nn.Module.__call__ = self._module_call
        if self._tensor_softmax is None:
            del torch.Tensor.softmax
        else:
            torch.Tensor.softmax = self._tensor_softmax
        _replace_everywhere([(new, old) for old, new in self._replaced])
        self._recorder = None  # a replaced function that is still referenced only passes the call on

    def _blind(self):
        return self._recorder is None or torch.compiler.is_compiling() or self._here.inside

    def _explain(self):
        for call in self._here.stack:
            call.explained = True

    def _watched_module_call(self):
        original = self._module_call

        @functools.wraps(original)
        def watched(module, *inputs, **named):
            if self._blind():
                return original(module, *inputs, **named)
            if not self._here.stack:
                self._find_eager()  # the model's source file has been imported by now
            self._here.stack.append(_Call(module))
            try:
                return self.call(
                    lambda: self._recorder.module_called(module, inputs, named),
                    lambda: original(module, *inputs, **named),
                )
            finally:
                self._leave(self._here.stack[-1])
                self._here.stack.pop()

        return watched

    def _leave(self, call):
        kind = type(call.module)
        compiled = kind.__name__ == "OptimizedModule" or isinstance(call.module, torch.jit.ScriptModule)
        if not self._recorder or call.explained or not (compiled or re.search("attention|attn", kind.__name__, re.I)):
            return
        what = "compiled, so that nothing in it is seen" if compiled else "a module with this name"
        self._recorder.looks_like_attention(f"{kind.__module__}.{kind.__qualname__} ({what})")
        self._explain()

    def _watched_function(self, original, kind):
        @functools.wraps(original)
        def watched(*inputs, **named):
            return self.call(
                lambda: self._recorder.function_called(original, kind, inputs, named),
                lambda: original(*inputs, **named),
            )

        return _known_to_script(watched, original)

    def _watched_softmax(self, original):
        @functools.wraps(original)
        def watched(*inputs, **named):
            if not self._blind():
                place = _product_after(sys._getframe(1))
                if place is not None:
                    owner = f" in {type(self._here.stack[-1].module).__name__}" if self._here.stack else ""
                    self._recorder.looks_like_attention(f"{place}{owner} (a softmax, then a matrix product)")
                    self._explain()
            return original(*inputs, **named)

        return _known_to_script(watched, original)

    def _find_eager(self):
        """Watches the eager attention function that each Hugging Face model's source file defines under one name."""
        if len(sys.modules) == self._modules_seen:
            return
        self._modules_seen = len(sys.modules)
        for module in list(sys.modules.values()):
            function = vars(module).get(_EAGER) if isinstance(module, types.ModuleType) else None
            if not isinstance(function, types.FunctionType) or function in self._eager.values():
                continue
            if list(inspect.signature(function).parameters)[: len(_EAGER_ARGUMENTS)] != _EAGER_ARGUMENTS:
                continue
            if function not in self._eager:
                self._eager[function] = self._watched_function(function, "eager")
                self._replaced.append((function, self._eager[function]))
            setattr(module, _EAGER, self._eager[function])


class _Thread(threading.local):
    def __init__(self):
        self.stack = []  # of _Call
        self.inside = 0  # depth of recognised calls


class _Call:
    __slots__ = ("module", "explained")

    def __init__(self, module):
        self.module, self.explained = module, False


def _replace_everywhere(pairs):
    """For each pair, makes the names of all loaded modules for the first function refer to the second."""
    wanted = {id(old): (old, new) for old, new in pairs}
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType) or module.__name__ in _OURS:
            continue
        for name, value in list(vars(module).items()):
            old, new = wanted.get(id(value), (None, None))
            if old is not None and old is value:
                setattr(module, name, new)


def _known_to_script(watched, original):
    # torch.jit.script recognises a builtin by its identity; the replacement counts as the same one.
    table = torch.jit._builtins
    operator = table._find_builtin(original)
    if operator is not None:
        table._register_builtin(watched, operator)
    return watched


def _product_after(frame):
    """The nearest calling function in which a matrix product follows, within two of the program's own; or None."""
    program_frames = 0
    while frame is not None and program_frames < 2:
        module = frame.f_globals.get("__name__", "")
        if module != __name__:
            if _has_product_after(frame.f_code, frame.f_lasti):
                return f"{module}.{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)}"
            program_frames += module.partition(".")[0] != "torch"
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=None)
def _has_product_after(code, position):
    steps = [step for step in dis.get_instructions(code) if step.offset > position]
    return any(
        isinstance(step.argval, str) and step.argval in _PRODUCTS
        or step.opname == "BINARY_MATRIX_MULTIPLY"
        or step.opname == "BINARY_OP" and step.argrepr == "@"
        for step in steps
    )
