"""Writes the folder: the C++ that was translated, a CMake project, the test, the training loop and README."""

import dataclasses
import pathlib
import string

from .case import RUN_SEED, SEED, STEPS, optimizer


def _text(name):
    return (pathlib.Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


class _Template(string.Template):
    delimiter = "@"

    @classmethod
    def filled(cls, name, *values, **more):
        """A file of templates/ with its @names replaced."""
        return cls(_text(f"{name}.in")).substitute(*values, **more)


@dataclasses.dataclass
class About:
    """Where the C++ comes from: the file as its user calls it, and what of it was not executed, as texts."""

    file: str
    class_name: str
    command: str
    skipped: list
    training: object = None  # a case.Training


def write(folder, name, translation, runs, about):
    """Writes everything but case.safetensors; returns the files' names."""
    names = {
        "name": name,
        "space": translation.space,
        "file": about.file,
        "class_name": about.class_name,
        "seed": SEED,
        "run_seed": RUN_SEED,
        "steps": STEPS,
    }
    files = {f"{name}.h": translation.header}
    if translation.source:
        files[f"{name}.cpp"] = translation.source
    if driver := getattr(translation, "driver", ""):
        files["driver.h"] = driver
    names["include"] = "driver.h" if driver else f"{name}.h"
    files["CMakeLists.txt"] = _cmake(names, translation, about)
    files["checks.h"] = _text("checks.h")
    files["test.cpp"] = _Template.filled(
        "test.cpp",
        names,
        calls=", ".join(f"{translation.space}::call_{call}" for call in range(translation.calls)),
        runs="\n".join(_run(run) for run in runs),
        unseeded=_words(translation.unseeded),
        computed=_words(translation.computed),
        hidden_rows="true" if translation.hidden_rows else "false",
    )
    if about.training:
        files["train.cpp"] = _Template.filled("train.cpp", names, **_training(about.training))
    files["README.md"] = _readme(names, translation, runs, about)
    for file, text in files.items():
        (pathlib.Path(folder) / file).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return [*files, "case.safetensors"]


def _words(names):
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"


def _run(run):
    dtype = {"float32": "kFloat", "float64": "kDouble", "bfloat16": "kBFloat16"}[run.dtype]
    flags = f"{'true' if run.train else 'false'}, torch::{dtype}, {'true' if run.autocast else 'false'}"
    return f'          {{"{run.name}", {run.call}, {flags}}},'


def _cmake(names, translation, about):
    components = " ".join(dict.fromkeys([*translation.components, "files"]))
    links = " ".join(f"attentive::{component}" for component in dict.fromkeys(translation.components))
    library = _Template(_STATIC if translation.source else _INTERFACE)
    checked = names["name"] + ("_checked" if translation.source else "")
    more = {"links": links, "checked": checked, "components": components, "programs": "test train" if about.training else "test"}
    return _Template.filled("CMakeLists.txt", names, **more, library=library.substitute(names, **more))


def _training(training):
    name, options = optimizer(training.spec)
    texts = []
    for key, value in options.items():
        if key != "lr":
            text = str(value).lower() if isinstance(value, bool) else repr(value)
            texts.append(f".{key}({{{', '.join(map(repr, value))}}})" if isinstance(value, tuple) else f".{key}({text})")
    clip = f"    torch::nn::utils::clip_grad_norm_(parameters, {training.clip!r});\n" if training.clip is not None else ""
    return {"optimizer": name, "options": f"torch::optim::{name}Options({options['lr']!r})" + "".join(texts), "clip": clip}


def _readme(names, translation, runs, about):
    def listed(title, items, empty=None):
        lines = [f"- {item}" for item in items] or ([empty] if empty else [])
        return [f"**{title}**", "", *lines, ""] if lines else []

    parts = [
        *listed("Became a call of `attention()`", translation.recognised, "Nothing: the code computes no softmax(QKᵀ)V."),
        *listed("Stayed as it is written", translation.composed),
        *listed("Never ran, and is an error in C++; give further `--inputs` that run it", translation.never_ran),
        *listed("To know", translation.notes),
        *listed("No seed gives these weights (Python does not initialise them)", translation.unseeded),
        *listed("Statements of the file that were not executed", about.skipped),
    ]
    train = about.training and f"`train.cpp` trains {STEPS} steps, and its test compares the losses with Python's to 1e-4.\n"
    checks = "; ".join(run.name for run in runs)
    return _Template.filled(
        "README.md", names, command=about.command, parts="\n".join(parts).rstrip(), train=train or "", checks=checks
    )


_INTERFACE = """\
add_library(@name INTERFACE)
target_include_directories(@name INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_features(@name INTERFACE cxx_std_20)
target_link_libraries(@name INTERFACE @links attentive::torch)
"""

_STATIC = """\
# The test links a second library, which draws dropout as Python does.
add_library(@name STATIC EXCLUDE_FROM_ALL @name.cpp)
add_library(@checked STATIC @name.cpp)
target_compile_definitions(@checked PUBLIC ATTENTIVE_PORT_PYTHON_DRAWS)
foreach(library IN ITEMS @name @checked)
  target_include_directories(${library} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_features(${library} PUBLIC cxx_std_20)
  target_compile_options(${library} PRIVATE -Wall -Wextra -Wpedantic)
  target_link_libraries(${library} PUBLIC @links attentive::torch)
endforeach()
"""
