"""built_objects.py takes an object from the other build if the command and the headers are the same, and compiles otherwise."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCHER = Path(__file__).with_name("built_objects.py")
COMPILER = """#!/bin/sh
for word; do [ "$last" = -o ] && echo compiled > "$word"; last=$word; done
"""


def made(changed=(), launched=False, *, object_there=True, commands_there=True, packages=None, newer=None):
    """The content of the object after a command in which some words are replaced. `packages` holds the headers of the package
    here and of the other one; `newer` is a file that changed after the object was made."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        build, here = root / "build", root / "build/package/parent/attentive"
        prefix, prefix_here = root / "package", root / "package_here"
        for place in (build / "src", here / "src", root / "src"):
            place.mkdir(parents=True)
        (root / "src/a.cpp").write_text("", encoding="utf-8")
        for place, headers in zip((prefix_here, prefix), packages or ()):
            for name, text in headers.items():
                (place / "include/x").mkdir(parents=True, exist_ok=True)
                (place / "include/x" / name).write_text(text, encoding="utf-8")
        compiler = root / "c++"
        compiler.write_text(COMPILER, encoding="utf-8")
        compiler.chmod(0o755)

        def command(place, package, before):
            return [str(compiler), "-DNAME=\"a b\"", f"-I{package}/include", "-O0", "-include-pch", f"{place}/src/header.pch",
                    "-o", f"{before}src/a.cpp.o", "-c", f"{root}/src/a.cpp"]

        text = " ".join(f"'{word}'" for word in command(build, prefix, ""))
        if commands_there:
            (build / "compile_commands.json").write_text(json.dumps(
                [{"directory": str(build), "command": text.replace("-O0", "-O1"), "file": f"{root}/src/a.cpp"},
                 {"directory": str(build), "command": text, "file": f"{root}/src/a.cpp"}]), encoding="utf-8")
        if object_there:
            (build / "src/a.cpp.o").write_text("built\n", encoding="utf-8")
        for path in root.rglob("*"):
            os.utime(path, (1000, 1000))
        if object_there:
            os.utime(build / "src/a.cpp.o", (2000, 2000))
        if newer:
            os.utime(root / newer, (3000, 3000))
        words = [dict(changed).get(word, word) for word in command(here, prefix_here if packages else prefix, "attentive/")]
        words[-4:-4] = ["-MD", "-MT", "attentive/src/a.cpp.o", "-MF", "attentive/src/a.cpp.o.d"]
        pair = f"{prefix}={prefix_here}" if packages else "="
        subprocess.run([sys.executable, LAUNCHER, f"{build}={here}", pair, "env" if launched else "", *words],
                       cwd=here.parent, check=True)
        return (here / "src/a.cpp.o").read_text(encoding="utf-8").strip()


assert made() == "built"
assert made(object_there=False) == "compiled"
assert made(commands_there=False) == "compiled"
assert made(object_there=False, launched=True) == "compiled"
assert made(newer="src/a.cpp") == "compiled"
for word, other in (("-O0", "-O2"), ("-O0", "-O0 "), ('-DNAME="a b"', '-DNAME="a"'), ("-c", "-S")):
    assert made([(word, other)]) == "compiled", (word, other)
same = {"a.h": "a", "b.h": "b"}
assert made(packages=(same, same)) == "built"
assert made(packages=(same, same), newer="package/include/x/b.h") == "compiled"
for other in ({"a.h": "a"}, {**same, "c.h": ""}, {"a.h": "a", "b.h": "c"}):
    assert made(packages=(same, other)) == "compiled" and made(packages=(other, same)) == "compiled", other
print("built_objects: takes what the same command made, compiles everything else")
