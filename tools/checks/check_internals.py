#!/usr/bin/env python3
"""Checks that PyTorch's internals, its C++ entries outside the documented API, stand only in the files named here.

    tools/checks/check_internals.py [ROOT]        prints one line per entry elsewhere; exit status 1 if there is any
    tools/checks/check_internals.py --self-test   puts each kind of entry where it must not be and wants it reported
"""

import re

import tree_check
from check_floors import source_lines

# The files that a new LibTorch may break. docs/architecture.md names the same ones.
ALLOWED = (
    "src/kernels/pytorch/aten_internals.h",
    "src/kernels/pytorch/aten_internals.cpp",
    # c10d, where names move from release to release; the headers of its backends are kept away from everything else.
    "src/distributed/c10d_backends.h",
    "src/distributed/c10d_internals.cpp",
    "src/distributed/c10d_reducer.cpp",
    "src/distributed/gloo_backend.cpp",
    "src/distributed/nccl_backend.cpp",
    "src/train/adamw.cpp",  # another library, so a place of its own: the fused step and norm of many tensors
    "bench/support/peaks.cpp",  # measures LibTorch's own tile product
    "bench/accelerate_bench.cpp",  # TorchScript
    "bench/zero_mask_bench.cpp",  # measures its attention kernel without what the library adds
    "src/accelerate/sdpa_operators.cpp",  # PyTorch's attention operators, which it computes or leaves to PyTorch
    "src/files/torch/torch_file.cpp",  # a tensor over a storage of a file, with the strides of the file
    # Views and modes that only internals make, to see what the library does with them.
    "tests/accelerate/reach_test.cpp",
    "tests/accelerate/traps_test.cpp",
    "tests/operators/options_test.cpp",  # TorchScript
    "tests/train/loss_scaling_test.cpp",  # PyTorch's own rule for the scale of a loss
    "tests/support/saved_tensor_hooks.h",  # the engine that LibTorch asks for hooks
    "tests/functional/limits_test.cpp",
    "tests/functional/modes_test.cpp",
    "tests/functional/strides_test.cpp",
    "tests/files/state_dict_test.cpp",
    "tests/kernels/masked_softmax_test.cpp",
    "tests/models/recorded_models_test.cpp",
    "tests/modules/extremes_test.cpp",
    "tests/train/adamw_test.cpp",
)
# The entries that count as internal. Some look internal but are documented: the custom functions of
# torch::autograd, the dispatcher's guards (c10::impl), the stack of its boxed kernels (in torch::jit), and the
# CPU generators, whose only names are in at::detail.
INTERNALS = {
    "an operator whose name begins with an underscore": re.compile(r"\b(?:at|torch)::_[a-z]\w*"),
    "the header of such an operator": re.compile(r"#\s*include\s*<ATen/ops/_"),
    "at::native": re.compile(r"\bat::native::|#\s*include\s*<ATen/native/"),
    "at::detail": re.compile(r"\bat::detail::(?!(?:getDefault|create)CPUGenerator\b)"),
    "torch::jit": re.compile(r"\btorch::jit::(?!(?:Stack|push|pop|drop)\b)"),
    "a header of torch/csrc": re.compile(
        r"#\s*include\s*<torch/csrc/(?!autograd/(?:anomaly_mode|autograd|custom_function|function)\.h>)"),
}
LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
COMMENT = re.compile(r"//.*")


def entries_in(line):
    """The kinds of internals that a line of code uses; its comments and texts do not count."""
    code = COMMENT.sub("", LITERAL.sub('""', line))
    return [kind for kind, pattern in INTERNALS.items() if pattern.search(code)]


def faults_in(root):
    """All internals in files that are not listed, as text, and the number of files."""
    faults, files = [], set()
    for path, number, line in source_lines(root):
        files.add(path)
        if path.as_posix() not in ALLOWED:
            faults += [f"{path}:{number}: uses {kind}; move it to src/kernels/pytorch/aten_internals.*" for kind in entries_in(line)]
    return faults, len(files)


def idle(root):
    """Listed files that use nothing internal or do not exist."""
    return [name for name in ALLOWED if name.endswith(".cpp") and not (
        (root / name).is_file() and any(map(entries_in, (root / name).read_text(encoding="utf-8").splitlines())))]


def self_test():
    """Tests one internal entry at a time in a correct tree."""
    right = "#include <torch/csrc/autograd/custom_function.h>\n#include <ATen/ops/softmax.h>\n" \
            "// at::native::cpublas is used elsewhere\nconst char* text = \"at::_softmax\";\n" \
            "auto y = at::softmax(x, -1); auto g = at::detail::createCPUGenerator(1); torch::autograd::grad({y}, {x});\n" \
            "const c10::impl::ExcludeDispatchKeyGuard guard(keys);\n"
    wrong = ["auto y = at::_softmax(x, -1);", "torch::_fused_adamw_(p);", "#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>",
             "at::native::cpublas::brgemm(m, n);", "#include <ATen/native/CPUBlas.h>", "at::detail::empty_cpu({1});",
             "torch::jit::pickle_load(x);", "# include <torch/csrc/jit/serialization/import.h>",
             "#include <torch/csrc/autograd/engine.h>", "const char* t = \"//\"; at::_softmax(x);"]
    places = ["src/functional/f.cpp", "include/attentive/core/c.h", "apps/a/main.cpp", "tests/core/c_test.cpp", "bench/b.cpp"]
    tree = {**dict.fromkeys(places, right), **dict.fromkeys(ALLOWED, wrong[0] + "\n")}
    broken = {f"{path}: {line}": (path, f"{right}{line}\n") for path in places for line in wrong}
    broken |= {f"{path} uses nothing": (path, right) for path in ALLOWED if path.endswith(".cpp")}
    return tree_check.report_self_test(f"{len(broken)} faults", tree_check.missed_of(all_faults, tree, broken))


def all_faults(root):
    """The faults of the files and of the lists."""
    faults, count = faults_in(root)
    return faults + [
        f"{name}: is named in tools/checks/check_internals.py, but uses nothing internal" for name in idle(root)], count


if __name__ == "__main__":
    tree_check.main("internals", "files", all_faults, self_test)
