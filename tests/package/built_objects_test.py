"""built_objects.py takes an object from the other build if the command is the same, and compiles otherwise."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCHER = Path(__file__).with_name("built_objects.py")
COMPILER = """#!/bin/sh
for word; do [ "$last" = -o ] && echo compiled > "$word"; last=$word; done
"""


def made(changed=(), launched=False, *, object_there=True):
    """The content of the object after a command in which some words are replaced."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        build, here = root / "build", root / "build/package/parent/attentive"
        for place in (build / "src", here / "src"):
            place.mkdir(parents=True)
        compiler = root / "c++"
        compiler.write_text(COMPILER, encoding="utf-8")
        compiler.chmod(0o755)

        def command(place, prefix):
            return [str(compiler), "-DNAME=\"a b\"", f"-I{root}/include", "-O0", "-include-pch", f"{place}/src/header.pch",
                    "-o", f"{prefix}src/a.cpp.o", "-c", f"{root}/src/a.cpp"]

        text = " ".join(f"'{word}'" for word in command(build, ""))
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "command": text.replace("-O0", "-O1"), "file": f"{root}/src/a.cpp"},
             {"directory": str(build), "command": text, "file": f"{root}/src/a.cpp"}]), encoding="utf-8")
        if object_there:
            (build / "src/a.cpp.o").write_text("built\n", encoding="utf-8")
        words = [dict(changed).get(word, word) for word in command(here, "attentive/")]
        words[-4:-4] = ["-MD", "-MT", "attentive/src/a.cpp.o", "-MF", "attentive/src/a.cpp.o.d"]
        subprocess.run([sys.executable, LAUNCHER, build, here, "env" if launched else "", *words], cwd=here.parent, check=True)
        return (here / "src/a.cpp.o").read_text(encoding="utf-8").strip()


assert made() == "built"
assert made(object_there=False) == "compiled"
assert made(object_there=False, launched=True) == "compiled"
for word, other in (("-O0", "-O2"), ("-O0", "-O0 "), ('-DNAME="a b"', '-DNAME="a"'), ("-c", "-S")):
    assert made([(word, other)]) == "compiled", (word, other)
print("built_objects: takes what the same command made, compiles everything else")
