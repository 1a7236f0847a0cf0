"""Runs a test in Python whose programs are started once, and not for every command line.

    with_started.py CLIENT PRELOAD SCRIPT ARGUMENT...

Each ARGUMENT that is a program becomes a client (client.cpp), which has a copy of the waiting program (preload.cpp) run its
command line. With another environment than this one's the client executes the program itself.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile


def is_program(argument):
    path = pathlib.Path(argument)
    if not path.is_file() or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def start(program, folder, preload):
    """Returns the client's path and the waiting process."""
    client = folder / program.name
    (folder / f"{program.name}.program").symlink_to(program)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{client}.socket")
        listening.listen(64)
        environment = {**os.environ, "LD_PRELOAD": str(preload), "ATTENTIVE_STARTED_SOCKET": str(listening.fileno())}
        return str(client), subprocess.Popen([program], env=environment, pass_fds=[listening.fileno()])


def main():
    client, preload, script, *arguments = sys.argv[1:]
    waiting = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            for index, argument in enumerate(arguments):
                if is_program(argument):
                    arguments[index], process = start(pathlib.Path(argument), folder, preload)
                    shutil.copy(client, arguments[index])
                    waiting.append(process)
            # The command python3 may be a script that changes the environment.
            return subprocess.run([sys.executable, script, *arguments], check=False).returncode
        finally:
            for process in waiting:
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
