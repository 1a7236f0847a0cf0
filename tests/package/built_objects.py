"""A compiler launcher: takes an object from another build folder where exactly this command has made it, or compiles.

    built_objects.py BUILD HERE LAUNCHER(may be empty) COMPILER ARGUMENT…

The command is the same if it names the folder HERE where the other one names BUILD, and differs in nothing else.
"""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path


def same_words(words, folder):
    """The words of a command that determine its object: without the output and the list of dependencies, and with one
    common name for the build folder."""
    kept = []
    words = iter(words)
    for word in words:
        if word in ("-o", "-MT", "-MF"):
            next(words)
        elif word != "-MD":
            kept.append(word.replace(folder, "BUILD"))
    return kept


def built_object(build, here, command):
    """The object that the other build made with this command, or None."""
    wanted = same_words(command, here)
    for entry in json.loads(Path(build, "compile_commands.json").read_text(encoding="utf-8")):
        if entry["file"].replace(build, "BUILD") == wanted[-1]:
            words = shlex.split(entry["command"])
            made = Path(entry["directory"], words[words.index("-o") + 1])
            if same_words(words, build) == wanted and made.is_file():
                return made
    return None


def main():
    build, here, launcher, *command = sys.argv[1:]
    made = built_object(build, here, command)
    if not made:
        command = [launcher, *command] if launcher else command
        os.execvp(command[0], command)
    after = dict(zip(command, command[1:]))
    shutil.copyfile(made, after["-o"])
    Path(after["-MF"]).write_text(f"{after['-MT']}:\n", encoding="utf-8")


if __name__ == "__main__":
    main()
