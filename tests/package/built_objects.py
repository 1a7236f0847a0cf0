"""A compiler launcher: takes an object from another build folder where exactly this command has made it, or compiles.

    built_objects.py BUILD=HERE PREFIX=PREFIX_HERE LAUNCHER(may be empty) COMPILER ARGUMENT…

The command is the same if it names the folder HERE where the other one names BUILD, and an installed package PREFIX_HERE where
the other one names PREFIX, and differs in nothing else. The headers of both packages must be equal, and older than the object,
as must be the source. Without packages the second argument is =.
"""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path


def same_words(words, folders):
    """The words of a command that determine its object: without the output and the list of dependencies, and with
    common names for the folders."""
    kept = []
    words = iter(words)
    for word in words:
        if word in ("-o", "-MT", "-MF"):
            next(words)
        elif word != "-MD":
            for name, folder in folders.items():
                word = word.replace(folder, name) if folder else word
            kept.append(word)
    return kept


def headers(prefix):
    """The text of each header of an installed package, and when the last one changed."""
    files = sorted(path for path in Path(prefix, "include").rglob("*") if path.is_file()) if prefix else []
    return ({path.relative_to(prefix): path.read_bytes() for path in files},
            max((path.stat().st_mtime for path in files), default=0))


def built_object(build, prefix, here, prefix_here, command):
    """The object that the other build made with this command, or None."""
    commands = Path(build, "compile_commands.json")
    known, changed = headers(prefix)
    if not commands.is_file() or known != headers(prefix_here)[0]:
        return None
    wanted = same_words(command, {"BUILD": here, "PREFIX": prefix_here})
    for entry in json.loads(commands.read_text(encoding="utf-8")):
        if entry["file"].replace(build, "BUILD") == wanted[-1]:
            words = shlex.split(entry["command"])
            made = Path(entry["directory"], words[words.index("-o") + 1])
            changed = max(changed, Path(entry["file"]).stat().st_mtime)
            if (same_words(words, {"BUILD": build, "PREFIX": prefix}) == wanted and made.is_file()
                    and made.stat().st_mtime > changed):
                return made
    return None


def main():
    (build, here), (prefix, prefix_here) = (pair.split("=") for pair in sys.argv[1:3])
    launcher, *command = sys.argv[3:]
    made = built_object(build, prefix, here, prefix_here, command)
    if not made:
        command = [launcher, *command] if launcher else command
        os.execvp(command[0], command)
    after = dict(zip(command, command[1:]))
    shutil.copyfile(made, after["-o"])
    Path(after["-MF"]).write_text(f"{after['-MT']}:\n", encoding="utf-8")


if __name__ == "__main__":
    main()
