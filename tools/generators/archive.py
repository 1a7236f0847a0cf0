"""Writes the files of a folder as a tar archive whose bytes depend only on their names and contents.

    python tools/generators/archive.py FOLDER ARCHIVE.tar
"""

import pathlib
import sys
import tarfile


def write_archive(folder, archive):
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())  # of the year 1970, and nobody's
            entry.size = path.stat().st_size
            with open(path, "rb") as file:
                tar.addfile(entry, file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_archive(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
