"""tools/checks/check_warnings on a project of its own, one wrong source at a time: check_warnings_test.py ROOT COMPILER…"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, *COMPILERS = sys.argv[1:]
CLEAN = '#include <string>\n#include <vector>\nstd::size_t NAME(const std::string& text) { return text.size(); }\n'
COMPARES = 'bool below(T x) { std::vector<int> row(3); return x < row.size(); }\n'
RIGHT = {
    **{f"clean{i}.cpp": CLEAN.replace("NAME", f"clean{i}") for i in range(5)},
    "generic.h": "#pragma once\ntemplate <class T>\nT twice(T x) { return x + x; }\n",
    "generic.cpp": '#include "generic.h"\nint four() { return twice(2); }\n',
    "other.cpp": '#include "generic.h"\nint six() { return twice(3); }\n',
    "own.cpp": "#include <vector>\ntemplate <class T>\nbool same(T x) { return x == x + 0; }\nbool f() { return same(1); }\n",
}
# A source or a header, its content, and the warning.
WRONG = {
    "unused": ("clean3.cpp", CLEAN.replace("NAME", "clean3") + "void f() { int never_used = 1; }\n", "-Wunused-variable"),
    "compared": ("clean4.cpp", "#include <vector>\n" + COMPARES.replace("T", "int"), "-Wsign-compare"),
    "an own template": ("own.cpp", f"#include <vector>\ntemplate <class T>\n{COMPARES}bool f() {{ return below(1); }}\n",
                        "-Wsign-compare"),
    "a header's template": ("generic.h", "#pragma once\n#include <vector>\ntemplate <class T>\nT twice(T x) "
                            "{ std::vector<int> row(3); return x < row.size() ? x : x + x; }\n", "-Wsign-compare"),
    "no C++": ("clean2.cpp", "int f() { return }\n", "error: expected"),
}
ONLY_OF_GCC = {
    "a field left out": ("clean1.cpp", "struct Pair { int a; int b; };\nPair one() { return {.a = 1}; }\n",
                         "-Wmissing-field-initializers"),
}


GENERATED = "int written_by_the_build() { return 1; }\n"


def check(compiler, changed=None, generated=GENERATED, *options):
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        for name, text in {**RIGHT, **(changed or {}), "generated.txt": generated}.items():
            (tree / name).write_text(text, encoding="utf-8")
        build = tree / "build"
        build.mkdir()
        (build / "build.ninja").write_text("rule copy\n command = cp $in $out\nbuild generated.cpp: copy ../generated.txt\n")
        sources = [tree / name for name in RIGHT if name.endswith(".cpp")] + [build / "generated.cpp"]
        flags = "-std=c++20 -O2 -Wall -Wextra -Wpedantic"
        (build / "compile_commands.json").write_text(json.dumps([
            {"directory": str(build), "file": str(path), "command": f"ccache {compiler} {flags} -o {path.stem}.o -c {path}"}
            for path in sources]))
        done = subprocess.run([f"{ROOT}/tools/checks/check_warnings", "--database", str(build / "compile_commands.json"),
                               "--compiler", compiler, *options], text=True, capture_output=True)
        return done, len(sources)


for compiler in COMPILERS:
    done, count = check(compiler)
    assert done.returncode == 0 and f"{count} sources parsed" in done.stdout and "; 0 with warnings" in done.stdout, done
    cases = {**WRONG, **({} if "clang" in compiler else ONLY_OF_GCC)}
    for name, (file, text, said) in cases.items():
        done, _ = check(compiler, {file: text})
        assert done.returncode == 1 and said in done.stdout and file in done.stdout, (compiler, name, done)
    done, _ = check(compiler, None, "int f() { int never_used = 1; return 0; }\n")
    assert done.returncode == 1 and "generated.cpp" in done.stdout and "never_used" in done.stdout, (compiler, done)
    if "clang" not in compiler:  # only the optimiser detects this one
        unset = {"clean0.cpp": "int g(int);\nint f(bool b) { int x; if (b) x = g(1); return g(2) ? x : 0; }\n"}
        assert check(compiler, unset)[0].returncode == 0
        done, _ = check(compiler, unset, GENERATED, "--optimised")
        assert done.returncode == 1 and "-Wmaybe-uninitialized" in done.stdout, done
# A batch belongs to the folders of the sources that it includes.
with tempfile.TemporaryDirectory() as folder:
    tree = Path(folder).resolve()
    (tree / "one").mkdir()
    (tree / "two").mkdir()
    (tree / "build").mkdir()
    (tree / "one/clean.cpp").write_text("int g() { return 1; }\n")
    (tree / "two/unused.cpp").write_text("int h() { int never_used = 1; return 0; }\n")
    for name, source in (("first.cxx", "one/clean.cpp"), ("second.cxx", "two/unused.cpp")):
        (tree / "build" / name).write_text(f'#include "{tree / source}"\n')
    (tree / "build/compile_commands.json").write_text(json.dumps([
        {"directory": str(tree / "build"), "file": str(tree / "build" / name), "command": f"{COMPILERS[0]} -Wall -o {name}.o -c {name}"}
        for name in ("first.cxx", "second.cxx")]))
    for wanted, said in (("one", "0 with warnings"), ("two", "1 with warnings")):
        done = subprocess.run([f"{ROOT}/tools/checks/check_warnings", "--database", str(tree / "build/compile_commands.json"), str(tree / wanted)],
                              text=True, capture_output=True)
        assert "1 sources parsed" in done.stdout and said in done.stdout, (wanted, done)
    # Sources that another build compiles with -Werror, in batches of its own, are left out; others are not.
    other = tree / "other"
    other.mkdir()
    (other / "batch.cxx").write_text(f'#include "{tree / "two/unused.cpp"}"\n')
    for flags, said in (("-Wall -Werror", "1 sources are left out"), ("-Wall", "2 sources parsed")):
        (other / "compile_commands.json").write_text(json.dumps([
            {"directory": str(other), "file": str(other / "batch.cxx"), "command": f"{COMPILERS[0]} {flags} -o b.o -c batch.cxx"}]))
        done = subprocess.run([f"{ROOT}/tools/checks/check_warnings", "--database", str(tree / "build/compile_commands.json"), "--but", str(other)],
                              text=True, capture_output=True)
        assert said in done.stdout and done.returncode == ("parsed" in said), (flags, done)
print("check_warnings: all as expected")
