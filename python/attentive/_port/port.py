"""From a user's class to the folder: loads, records, translates, checks and writes."""

import ast
import contextlib
import dataclasses
import functools
import io
import math
import re
import types

import torch
from torch import nn

from . import attend, case, emit, kinds, names, project, support
from .expressions import DRIVER
from .kinds import Refusal
from .load import Source, load
from .record import HOOK, Recorder, instrumented, number
from .translation import Run, Translation

TOLERANCE = 1e-4  # of attention's definition from what the class computed, relative to the largest number


def held_fields(value):
    """The fields of an input that is a namespace, a dict or a dataclass."""
    if isinstance(value, dict):
        return value
    return dict(vars(value)) if isinstance(value, types.SimpleNamespace) or hasattr(value, "__dataclass_fields__") and not isinstance(value, type) else {}


@dataclasses.dataclass
class SizedNumber:
    """An integer of --inputs that follows a size: an input of its own, which the call reads."""

    value: torch.Tensor


class Driver:
    """The functions that the command line stands for: `make`, one `call_N` for each --inputs, and `loss`."""

    def __init__(self, options, loaded, recorder):
        self.options, self.loaded, self.recorder = options, loaded, recorder
        self.space = types.ModuleType("driver")
        vars(self.space).update({k: v for k, v in vars(loaded.namespace).items() if not k.startswith("__")})
        for name, value in loaded.torch_names().items():
            vars(self.space).setdefault(name, value)
        vars(self.space)[HOOK] = recorder
        self.trees, self.functions, self.text = [], [], ""
        self.module_class = loaded.evaluate(options.class_name, what="the class")
        if not (isinstance(self.module_class, type) and issubclass(self.module_class, nn.Module)):
            raise Refusal(f"{options.class_name} is no torch.nn.Module")
        self.make = self.define(f"def make():\n    return {options.class_name}({options.args})\n")
        self.calls, self.parameters = [], []
        for at, text in enumerate(options.inputs):
            self.calls.append(self.define(self.call_text(f"call_{at}", self.inputs(text, options.sizes[0]))))
        self.loss = None
        if options.train:
            self.loss = self.define(self.loss_text())

    def define(self, text):
        """Compiles a function of the command line, wrapped like the user's."""
        try:
            tree = ast.parse("\n" * self.text.count("\n") + text, DRIVER)
        except SyntaxError as error:
            raise Refusal(f"{DRIVER}: {text.strip().splitlines()[-1].strip()!r} is not Python: {error.msg}") from None
        self.text += text
        function = number(tree).body[0]
        self.trees.append(function)
        exec(compile(ast.fix_missing_locations(ast.Module([instrumented(function)], [])), DRIVER, "exec"), vars(self.space))
        self.loaded.sources[DRIVER] = Source(DRIVER, self.text, [], [], self.space, ast.Module(list(self.trees), []))
        return vars(self.space)[function.name]

    def inputs(self, text, sizes):
        """[(name or None, text, value)] of one --inputs; a later one may use an earlier one's name."""
        try:
            call = ast.parse(f"f({text})", mode="eval").body
        except SyntaxError as error:
            raise Refusal(f"--inputs {text!r} is not Python: {error.msg}") from None
        given, found = dict(sizes), []
        with contextlib.redirect_stdout(io.StringIO()):
            for name, node in [(None, a) for a in call.args] + [(k.arg, k.value) for k in call.keywords]:
                starred = isinstance(node, ast.Starred)
                value = self.loaded.evaluate(ast.unparse(node.value if starred else node), given, "--inputs")
                if starred:
                    found += [(None, ast.parse(f"({ast.unparse(node.value)})[{at}]", mode="eval").body, item) for at, item in enumerate(value)]
                    continue
                given |= {name: value} if name else {}
                value = self.sized(value, node, sizes)
                found.append((name, node, value))
        return found

    def sized(self, value, node, sizes):
        """An integer, or a list of them, that depends on a size: it is handed over as a tensor."""
        if not any(isinstance(n, ast.Name) and n.id in sizes for n in ast.walk(node)):
            return value
        if type(value) is int:
            return SizedNumber(torch.tensor(value))
        if isinstance(value, list | tuple) and isinstance(node, ast.List | ast.Tuple) and len(value) == len(node.elts):
            return type(value)(self.sized(item, part, sizes) for item, part in zip(value, node.elts, strict=True))
        if isinstance(value, list) and value and all(type(item) is int for item in value):
            return SizedNumber(torch.tensor(value))
        return value

    def call_text(self, name, inputs):
        seen, texts = [], []
        for word, node, value in inputs:
            texts.append((f"{word}=" if word else "") + self.spread(value, node, word, seen))
        arguments = [word for word, _ in seen]
        self.parameters.append(arguments)
        return f"def {name}({', '.join(['module', *arguments])}):\n    return module({', '.join(texts)})\n"

    def spread(self, value, node, word, seen):
        """An input's text, in which each distinct tensor is an argument."""
        if isinstance(value, SizedNumber):
            text = self.spread(value.value, node, word, seen)
            return f"{text}.tolist()" if value.value.dim() else f"int({text})"
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            raise Refusal(f"--inputs: {ast.unparse(node)!r} is a sparse tensor, which a recorded case cannot hold; give a dense one")
        if type(value).__name__ == "ndarray":
            return self.spread(torch.from_numpy(value), node, word, seen) + ".numpy()"
        if isinstance(value, torch.Tensor):
            for name, held in seen:
                if held is value:
                    return name
            taken = {name for name, _ in seen}
            base = word if word and word != "module" else "x"
            name = base if base not in taken else f"{base}_{len(seen) + 1}"
            seen.append((name, value))
            return name
        fields = held_fields(value)
        if fields and self.tensors(value) and isinstance(node, ast.Call | ast.Dict):
            inner = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {ast.literal_eval(k): v for k, v in zip(node.keys, node.values, strict=True)}
            if set(inner) == set(fields):
                items = {key: self.spread(fields[key], inner[key], key, seen) for key in inner}
                if isinstance(node, ast.Dict):
                    return "{" + ", ".join(f"{key!r}: {text}" for key, text in items.items()) + "}"
                return f"{ast.unparse(node.func)}({', '.join(f'{key}={text}' for key, text in items.items())})"
        if isinstance(value, tuple | list) and self.tensors(value):
            own = isinstance(node, ast.Tuple | ast.List) and len(node.elts) == len(value)
            items = [self.spread(item, node.elts[at] if own else node, word, seen) for at, item in enumerate(value)]
            return f"[{', '.join(items)}]" if isinstance(value, list) else f"({', '.join(items)},)"
        sizes = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & set(self.options.sizes[0])
        if sizes:
            raise Refusal(f"--inputs: {ast.unparse(node)!r} depends on {', '.join(sorted(sizes))}, but is no tensor; give a constant and one --size")
        return ast.unparse(node)

    @staticmethod
    def tensors(value):
        """The distinct tensors of a value in order."""
        value = value.value if isinstance(value, SizedNumber) else value
        if isinstance(value, torch.Tensor):
            return [value]
        if type(value).__name__ == "ndarray":
            return [torch.from_numpy(value)]
        items = value if isinstance(value, tuple | list) else held_fields(value).values()
        return [t for item in items for t in Driver.tensors(item)]

    def loss_text(self):
        arguments = self.parameters[0]
        call = ast.unparse(self.trees[1].body[0].value)
        expression = self.options.loss
        lines = [f"    y = {call}"]
        if expression is None:
            lines.append("    return y if y.dim() == 0 else y.square().mean()")
        else:
            lines.append(f"    return {expression}")
        return f"def loss({', '.join(['module', *arguments])}):\n" + "\n".join(lines) + "\n"

    def runs(self):
        """What is recorded and compared: each --inputs, at each size, in eval and in train mode."""
        found = []
        for call, text in enumerate(self.options.inputs):
            shapes = []
            for sizes in self.options.sizes:
                torch.manual_seed(1)
                distinct = []
                for tensor in [t for _, _, value in self.inputs(text, sizes) for t in self.tensors(value)]:
                    if not any(tensor is other for other in distinct):
                        distinct.append(tensor)
                shape = [(tuple(t.shape), t.dim() == 0 and t.item()) for t in distinct]
                if shape in shapes:
                    continue
                shapes.append(shape)
                title = ", ".join(f"{k}={v}" for k, v in sizes.items()) if len(shapes) > 1 or re.search(r"\b[BT]\b", text) else "one size"
                word = f"inputs {call + 1}, " if len(self.options.inputs) > 1 else ""
                found += [Run(f"{word}{'train' if train else 'eval'}, {title}", call, train, distinct, sizes) for train in (False, True)]
                if len(shapes) == 1:
                    for dtype in self.options.dtypes:
                        run = Run(f"{word}{dtype}, {title}", call, False, distinct, sizes)
                        run.dtype, run.autocast = ("float32", True) if dtype == "autocast" else (dtype, False)
                        found.append(run)
        return found


def build(options, folder):
    """Does everything of the command line; writes into `folder` unless it is None. Returns a Translation."""
    recorder = Recorder()
    loaded = load(options.file, recorder, options.settings)
    driver = Driver(options, loaded, recorder)
    runs = driver.runs()
    root, runs, notes = record(driver, recorder, runs)
    if loaded.layers is not None:
        check_layers(driver, recorder)
    unit = emit.Unit(loaded, recorder, root, not options.composed)
    unit.space, unit.replay = names.namespace(options.name), functools.partial(replay, driver, recorder, runs)
    trees = [(DRIVER, tree) for tree in driver.trees]
    unit.generate(trees)
    if not options.composed:
        settle(unit, driver, recorder, runs)
        unit.generate(trees)
    translation = text_of(options, loaded, unit, driver, notes)
    recorder.paused = loaded.plain_layers = True  # what is compared comes from PyTorch's own layers
    translation.unseeded, translation.computed = unseeded(driver)
    training = None
    if options.train:
        training = case.Training(driver.loss, [t for t in runs[0].inputs], options.train, options.clip)
    if folder is not None:
        calls = [case.held(call, recorder.returns(tree)) for call, tree in zip(driver.calls, driver.trees[1:], strict=False)]
        case.write(f"{folder}/case.safetensors", driver.make, calls, runs, translation.unseeded, training, options.limit)
        about = project.About(loaded.name(loaded.main), options.class_name, options.command, skipped(loaded), training)
        translation.files = project.write(folder, options.name, translation, runs, about)
    return translation


def record(driver, recorder, runs):
    """Runs the constructor and each call once; a size that the class does not take is left out with a note."""
    notes, kept = [], []
    torch.manual_seed(case.SEED)
    with contextlib.redirect_stdout(io.StringIO()), nn.modules.module.register_module_forward_pre_hook(give_dim):
        root = driver.make()
        for run in runs:
            if run.dtype != "float32" or run.autocast:
                kept.append(run)
                continue
            try:
                call(driver, root, run)
            except Exception as error:
                if isinstance(error, Refusal) or not any(other.call == run.call for other in kept):
                    raise
                try:
                    call(driver, driver.make(), run)
                except Exception:
                    notes.append(f"{run.name} was left out, as Python raises {type(error).__name__}: {str(error).splitlines()[0][:100]}")
                    continue
            kept.append(run)
        if driver.loss:
            if driver.options.loss is None and not isinstance(call(driver, root, runs[0]), torch.Tensor):
                raise Refusal("forward returns no tensor; give --loss, an expression of its result y")
            driver.loss(root.train(), *(t.clone() for t in runs[0].inputs))
    return root, kept, notes


def replay(driver, recorder, runs):
    """The first weights and what every run returns, of which nothing is recorded."""
    paused, recorder.paused = recorder.paused, True
    try:
        torch.manual_seed(case.SEED)
        with contextlib.redirect_stdout(io.StringIO()):
            module = driver.make()
            found = [t.clone() for t in module.state_dict().values()]
            for run in runs:
                if run.dtype == "float32" and not run.autocast:
                    found += [t.detach() for t in Driver.tensors(call(driver, module, run))]
        return found
    finally:
        recorder.paused = paused


def check_layers(driver, recorder):
    """Refuses a class whose first weights are others where the layers of layers.py stand for PyTorch's."""
    recorder.paused, states = True, []
    for driver.loaded.plain_layers in (True, False):
        torch.manual_seed(case.SEED)
        states.append(driver.make().state_dict())
    recorder.paused = False
    if list(states[0]) != list(states[1]) or not all(torch.equal(states[0][name], states[1][name]) for name in states[0]):
        raise Refusal("the constructor treats layers with weight_norm or spectral_norm by their classes; initialise them before these")


def give_dim(module, inputs):
    """Sets the dimension that PyTorch takes where an nn.Softmax was given none, and tells how many dimensions a layer of einops saw."""
    if isinstance(module, nn.Softmax | nn.LogSoftmax | nn.Softmin) and module.dim is None and inputs:
        module.dim = 0 if inputs[0].dim() in (0, 1, 3) else 1
    elif type(module).__module__.startswith("einops") and inputs:
        module.rank = inputs[0].dim()


def call(driver, module, run):
    torch.manual_seed(case.RUN_SEED)
    inputs = [t.clone().requires_grad_() * 1 if t.is_floating_point() and not driver.recorder.paused else t.clone() for t in run.inputs]
    module.train(run.train)  # an own train() may return nothing
    return driver.calls[run.call](module, *inputs)



@contextlib.contextmanager
def no_dropout():
    """Within it, the functions that drop out in eval mode, too, drop nothing."""
    dropout, attend_to = nn.functional.dropout, nn.functional.scaled_dot_product_attention
    nn.functional.dropout = lambda input, p=0.5, training=True, inplace=False: input
    nn.functional.scaled_dot_product_attention = lambda q, k, v, attn_mask=None, dropout_p=0.0, *rest, **options: attend_to(q, k, v, attn_mask, 0.0, *rest, **options)
    try:
        yield
    finally:
        nn.functional.dropout, nn.functional.scaled_dot_product_attention = dropout, attend_to


def settle(unit, driver, recorder, runs):
    """Checks every recognised call of attention by the numbers of eval runs, and drops what does not agree."""
    plans = [plan for found, _ in unit.found.values() for plan in found]
    recorder.paused = True
    recorder.watch({node.uid for plan in plans for node in attend.nodes_to_watch(plan)})
    for run in runs:
        if not run.train and run.dtype == "float32" and not run.autocast:
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()), no_dropout():
                call(driver, driver.make(), run)
    for uid, (found, declined) in unit.found.items():
        for plan in list(found):
            seen = [values for values in recorder.captured.get(uid, []) if plan.use.uid in values]  # calls that took its branch
            attend.settle(plan, seen)
            worst = max((attend.verify(plan, values) for values in seen), default=math.inf)
            if plan.hidden_rows_seen and "mean of v" in plan.hides_rows_note:
                found.remove(plan)
                declined.append(attend.Declined(plan.line, "a row hides every key, where Python gives the mean of v and attention() 0"))
            elif not worst < TOLERANCE:
                found.remove(plan)
                declined.append(attend.Declined(plan.line, "attention()'s definition gave other numbers than these lines" if seen else "it never ran in eval mode"))
    recorder.watch(())
    recorder.paused, unit.settled = False, True


def unseeded(driver):
    """Names of the parameters that Python leaves uninitialised, and of tables that are computed: no other seed changes them."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # the public function imports the compiler, in two seconds
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        modules = []
        for seed in (case.SEED, case.SEED + 1):
            torch.manual_seed(seed)
            modules.append(dict(driver.make().named_parameters()))
    finally:
        torch._C._set_deterministic_algorithms(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]
    missing = [name for name, value in modules[0].items() if bool(value.isnan().any())]
    varied = [name for name, value in modules[0].items() if bool((value != value.flatten()[:1]).any())]
    return missing, [name for name in varied if torch.equal(modules[0][name], modules[1][name])]


def skipped(loaded):
    texts = [f"{loaded.place(path, line)}: `{text.strip().splitlines()[0][:70]}`" for path, line, text in [*loaded.skipped, *loaded.dropped] if path == loaded.main]
    return texts[:12] + ([f"and {len(texts) - 12} more"] if len(texts) > 12 else [])


def text_of(options, loaded, unit, driver, notes):
    """The header and the driver's file."""
    own = [item for item in unit.items if not (item[0] == "function" and item[1] in {t.name for t in driver.trees})]
    functions = [item for item in unit.items if item not in own]
    structs = unit.struct_lines()
    body = "\n\n".join("\n".join(lines) for _, _, lines in own)
    everything = body + "\n".join(structs) + "\n".join("\n".join(lines) for _, _, lines in functions)
    unit.helpers = [*["WordMap"] * ("WordMap<" in everything), *unit.helpers]
    helpers = [support.text(name) for name in unit.helpers]
    all_text = everything + "\n".join(helpers)
    includes = sorted({h for h, word in _STANDARD.items() if word in all_text} | unit.includes_std)
    own_headers = sorted(unit.includes | ({"attentive/functional/attention.h"} if "attentive::attention(" in all_text or "attentive::Mask" in all_text else set())
                         | ({"attentive/modules/module.h"} if "RandomStateGuard" in all_text else set()))
    file = f"{options.name}.h"
    head = [f"// {options.class_name} of {loaded.name(loaded.main)} for LibTorch, written by attentive-port."]
    licence = loaded.licence(loaded.main)
    if licence:
        head += ["//", "// The source's own head:", *(f"// {line}".rstrip(names.COMMENT_END) for line in licence.splitlines())]
    parts = [*head, "#pragma once", "", *(f"#include <{h}>" for h in includes), *([""] if includes else []), "#include <torch/torch.h>", ""]
    parts += [*(f"#include <{h}>" for h in own_headers), ""] if own_headers else []
    parts += [f"namespace {unit.space} {{", ""]
    using = [word for word in ("Ellipsis", "None", "Slice") if f"{word}" in _words(all_text)]
    parts += [*(f"using torch::indexing::{word};" for word in using), ""] if using else []
    if "kDraws" in all_text:
        parts += _DRAWS.splitlines() + [""]
    for text in helpers:
        parts += [*text.splitlines(), ""]
    parts += [*structs, body, "", f"}}  // namespace {unit.space}"]
    holder = names.holder(unit.resolve(kinds.Module(type(unit.root)), lambda: [unit.root]))
    components = ["attention"]
    hidden = any(plan.hidden_rows_seen for found, _ in unit.found.values() for plan in found) if unit.recognise else False
    extra = []
    for uid, (found, _) in unit.found.items():
        for note in [note for plan in found for note in plan.notes]:
            match = re.match(r"line (\d+)", note)
            extra.append(loaded.place(unit.paths[uid], int(match[1])) + note[match.end() :] if match else note)
    if unit.compat_norm:
        parts = [re.sub(r"torch::nn::LayerNorm(?=Impl|Options|\b)", "attentive::compat::LayerNorm", part) for part in parts]
    translation = Translation(
        unit.space, holder, wrapped("\n".join(parts)), "", len(driver.calls), list(dict.fromkeys(unit.recognised)), unit.composed,
        list(dict.fromkeys([*notes, *unit.notes, *extra, *(f"source of the installed package {name} was translated; see its licence" for name in loaded.adopted)])), unit.never_ran, [], components, hidden)
    translation.driver = driver_text(file, unit, driver, functions, holder)
    return translation


def _returned(unit):
    """The kinds of what forward returns, those of a tuple one by one."""
    definition = unit.loaded.definition(type(unit.root).forward)
    kind = unit.recorder.returns(definition[1]) if definition else None
    return kind.items if isinstance(kind, kinds.Tuple) else (kind,)


def driver_text(file, unit, driver, functions, holder):
    """The file that builds and calls the class as the command line did."""
    lines = ["// Builds and calls the class as the command line did.", "#pragma once", "", "#include <optional>", "#include <tuple>", "#include <vector>", "", f'#include "{file}"', "",
             f"namespace {unit.space} {{", "", *_FLAT.splitlines(), ""]
    for name, kind in unit.structs.items():
        held = ((f, k.kind if isinstance(k, kinds.Optional) else k) for f, k in unit.struct_fields(kind).items())
        fields = [names.identifier(f) for f, k in held if isinstance(k, kinds.Tensor) or kinds.is_tensors(k)]
        if fields or any(isinstance(kind, kinds.Config) and kind.name == name for kind in _returned(unit)):
            lines += [f"inline void flatten(std::vector<torch::Tensor>&{' all' if fields else ''}, const {name}&{' value' if fields else ''}) {{", *(f"  flatten(all, value.{f});" for f in fields), "}", ""]
    for _, name, text in functions:
        lines += [*[line.replace(f" {name}(", f" {name}_(", 1) if line.startswith("inline") and name != "make" else line for line in text], ""]
    for at, arguments in enumerate(driver.parameters):
        values = ", ".join(["module", *(f"inputs[{n}]" for n in range(len(arguments)))])
        unused = "inputs" if arguments else "/*inputs*/"
        lines += [f"inline std::vector<torch::Tensor> call_{at}({holder}& module, const std::vector<torch::Tensor>& {unused}) {{",
                  "  std::vector<torch::Tensor> tensors;", f"  flatten(tensors, call_{at}_({values}));", "  return tensors;", "}", ""]
    if driver.loss:
        values = ", ".join(["module", *(f"inputs[{n}]" for n in range(len(driver.parameters[0])))])
        lines += [f"inline torch::Tensor loss({holder}& module, const std::vector<torch::Tensor>& inputs) {{", f"  return loss_({values});", "}", ""]
    return wrapped("\n".join([*lines, f"}}  // namespace {unit.space}"]))


def _words(text):
    return set(re.findall(r"(?<![\w:])[A-Za-z_]\w*", re.sub(r'"[^"]*"|//.*', "", text)))


def wrapped(text):
    """Breaks lines that are too long at commas and operators."""
    out = []
    for line in text.splitlines():
        out += _broken(line)
    return "\n".join(out) + "\n"


def _broken(line, width=110):
    if len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    code, comment = line, ""
    mark = line.find("  // ")
    if mark > 0 and line.count('"', 0, mark) % 2 == 0:
        code, comment = line[:mark].rstrip(), line[mark + 2 :]
        return [" " * indent + comment, *_broken(code, width)]
    if line.lstrip().startswith("//"):
        lead = "/// " if line.lstrip().startswith("///") else "// "
        words, rows, row = line.lstrip().lstrip("/ ").split(), [], ""
        for word in words:
            if len(row) + len(word) + indent + 4 > width and row:
                rows.append(row)
                row = ""
            row = f"{row} {word}".strip()
        return [" " * indent + lead + row for row in [*rows, row]]
    best, depth, quoted = None, 0, False
    for at, letter in enumerate(code):
        quoted ^= letter == '"' and code[at - 1] != "\\"
        if quoted:
            continue
        depth += (letter in "([{") - (letter in ")]}")
        comma = letter == ","
        if indent + 10 < at < width and (comma or letter == " " and code[at + 1 : at + 3] in ("+ ", "? ", ": ", "&&", "||", "* ", "- ", "= ")):
            score = (depth + (0 if comma else 2), -at)
            if best is None or score <= best[0]:
                best = (score, at + 1)
    if best is None:
        return [line]
    return [code[: best[1]].rstrip(), *_broken(" " * (indent + 4) + code[best[1] :].lstrip(), width)]


_STANDARD = {
    "algorithm": "std::clamp", "cmath": "std::", "functional": "std::function", "limits": "numeric_limits", "map": "std::map", "numeric": "accumulate",
    "optional": "std::optional", "set": "std::set", "string": "std::string", "tuple": "std::tuple", "vector": "std::vector", "type_traits": "common_type",
    "variant": "std::variant",
}

_DRAWS = """\
/// The random numbers of dropout inside of attention(): Any is fastest; Aten draws Python's, which the test asks for.
#ifdef ATTENTIVE_PORT_PYTHON_DRAWS
constexpr auto kDraws = attentive::DropoutStream::Aten;
#else
constexpr auto kDraws = attentive::DropoutStream::Any;
#endif"""

_FLAT = """\
inline void flatten(std::vector<torch::Tensor>& all, const torch::Tensor& tensor) {
  if (tensor.defined()) all.push_back(tensor);
}
template <class T>
  requires std::is_arithmetic_v<T>
void flatten(std::vector<torch::Tensor>&, T) {}
template <class T>
void flatten(std::vector<torch::Tensor>& all, const std::vector<T>& items);
template <class T>
void flatten(std::vector<torch::Tensor>& all, const std::optional<T>& item);
template <class K, class T>
void flatten(std::vector<torch::Tensor>& all, const std::pair<K, T>& entry);
template <class... T>
void flatten(std::vector<torch::Tensor>& all, const std::tuple<T...>& items) {
  std::apply([&](const auto&... item) { (flatten(all, item), ...); }, items);
}
template <class T>
void flatten(std::vector<torch::Tensor>& all, const std::vector<T>& items) {
  if constexpr (!std::is_arithmetic_v<T>) {
    for (const auto& item : items) flatten(all, item);
  }
}
template <class T>
void flatten(std::vector<torch::Tensor>& all, const std::optional<T>& item) {
  if (item) flatten(all, *item);
}
template <class K, class T>
void flatten(std::vector<torch::Tensor>& all, const std::pair<K, T>& entry) {
  flatten(all, entry.second);
}"""
