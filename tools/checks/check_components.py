#!/usr/bin/env python3
"""Checks that the pages list the same components as the build, and that each component's header includes all of its headers.

    tools/checks/check_components.py [ROOT]        prints a line per difference; exit status 1 if there is any
    tools/checks/check_components.py --self-test   breaks each rule in a made-up tree and wants it reported
"""

import re
from pathlib import Path

import tree_check

TABLE = "cmake/attentive_component_table.cmake"
ARCHITECTURE = "docs/architecture.md"
SHIPPING = "docs/guide/shipping.md"
ALWAYS = "attention"  # the one component without a switch
# | `files` | `files/` | `attention` | `ATTENTIVE_BUILD_FILES` |
ROW = re.compile(r"^\| `(\w+)` \| ((?:`\w+/`(?:, )?)+) \| ([^|]+) \| ([^|]+) \|$", re.M)


def built(root):
    """The components of the build with the components that each links, in the build's order."""
    text = (root / TABLE).read_text(encoding="utf-8")
    names = re.search(r"set\(attentive_components ([\w ]+)\)", text)[1].split()
    needs = dict(re.findall(r'set\(attentive_(\w+)_needs (?:""|([\w ]+))\)', text))
    return {name: needs[name].split() for name in names}


def wrong_includes(root, name, expected):
    """The headers that the header of this name lacks, or includes without belonging to it, as text."""
    header = root / f"include/attentive/{name}.h"
    if not header.is_file():
        return [f"{name} has no header include/attentive/{name}.h"]
    included = set(re.findall(r"^#include <attentive/([^>]+)>", header.read_text(encoding="utf-8"), re.M))
    return [f"include/attentive/{name}.h does not include {path}" for path in sorted(expected - included)] + [
        f"include/attentive/{name}.h includes {path}, which does not belong to it" for path in sorted(included - expected)]


def faults_in(root):
    """All differences, as text, and the number of components."""
    components = built(root)
    faults = []
    rows = {name: (folders, links, switch) for name, folders, links, switch
            in ROW.findall((root / ARCHITECTURE).read_text(encoding="utf-8"))}
    if list(rows) != list(components):
        faults.append(f"{ARCHITECTURE}: the rows are {', '.join(rows)}; {TABLE} has {', '.join(components)}")
    for name in components.keys() & rows.keys():
        folders, links, switch = rows[name]
        for folder in re.findall(r"`(\w+)/`", folders):
            if not (root / "src" / folder).is_dir():
                faults.append(f"{ARCHITECTURE}: {name}: there is no src/{folder}/")
        linked = re.findall(r"`(\w+)`", links)
        if linked != components[name]:
            faults.append(f"{ARCHITECTURE}: {name} links {linked}; {TABLE} says {components[name]}")
        wanted = "always built" if name == ALWAYS else f"`ATTENTIVE_BUILD_{name.upper()}`"
        if switch != wanted:
            faults.append(f"{ARCHITECTURE}: the switch of {name} is {switch}; expected {wanted}")
        include = root / "include/attentive"
        headers = {str(path.relative_to(include)) for folder in re.findall(r"`(\w+)/`", folders)
                   for path in (include / folder).glob("*.h")}
        faults += wrong_includes(root, name, headers | ({"version.h"} if name == ALWAYS else set()))
    usual = re.search(r"set\(attentive_usual_components ([\w ]+)\)", (root / TABLE).read_text(encoding="utf-8"))[1].split()
    faults += wrong_includes(root, "attentive", {f"{name}.h" for name in usual})
    page = (root / SHIPPING).read_text(encoding="utf-8")
    on_page = re.findall(r"^\| `ATTENTIVE_BUILD_(\w+)` \|", page, re.M)
    switches = [name.upper() for name in components if name != ALWAYS]
    if on_page != switches:
        faults.append(f"{SHIPPING}: the switches are {on_page}; expected {switches}")
    return faults, len(components)


def self_test():
    """Tests a correct tree, then one fault at a time."""
    right = {
        TABLE: "set(attentive_components attention files)\nset(attentive_attention_needs \"\")\nset(attentive_files_needs attention)\n"
               "set(attentive_usual_components attention files)\n",
        ARCHITECTURE: "| `attention` | `core/` | LibTorch | always built |\n"
                      "| `files` | `files/` | `attention` | `ATTENTIVE_BUILD_FILES` |\n",
        SHIPPING: "| `ATTENTIVE_BUILD_FILES` | `AUTO` | readers |\n",
        "src/core/a.cpp": "", "src/files/a.cpp": "",
        "include/attentive/core/a.h": "", "include/attentive/files/a.h": "",
        "include/attentive/attention.h": "#include <attentive/core/a.h>\n#include <attentive/version.h>\n",
        "include/attentive/files.h": "#include <attentive/files/a.h>\n",
        "include/attentive/attentive.h": "#include <attentive/attention.h>\n#include <attentive/files.h>\n",
    }
    wrong = {
        "a component more": (TABLE, right[TABLE].replace("attention files", "attention files text") + 'set(attentive_text_needs "")\n'),
        "another need": (TABLE, right[TABLE].replace("files_needs attention", "files_needs text")),
        "a row more": (ARCHITECTURE, right[ARCHITECTURE] + "| `text` | `files/` | LibTorch | `ATTENTIVE_BUILD_TEXT` |\n"),
        "a row less": (ARCHITECTURE, right[ARCHITECTURE].splitlines()[0] + "\n"),
        "another switch": (ARCHITECTURE, right[ARCHITECTURE].replace("BUILD_FILES", "BUILD_FILE")),
        "a folder that is not there": (ARCHITECTURE, right[ARCHITECTURE].replace("`files/`", "`io/`")),
        "no header": ("include/attentive/files.h", None),
        "a header that the component's lacks": ("include/attentive/files/b.h", ""),
        "a header of another component": ("include/attentive/files.h", "#include <attentive/files/a.h>\n#include <attentive/core/a.h>\n"),
        "a component that attentive.h lacks": ("include/attentive/attentive.h", "#include <attentive/attention.h>\n"),
        "a switch that the page lacks": (SHIPPING, ""),
        "a switch more on the page": (SHIPPING, right[SHIPPING] + "| `ATTENTIVE_BUILD_TEXT` | `AUTO` | text |\n"),
    }
    return tree_check.report_self_test(f"{len(wrong)} broken rules", tree_check.missed_of(faults_in, right, wrong))


if __name__ == "__main__":
    tree_check.main("components", "components", faults_in, self_test)
