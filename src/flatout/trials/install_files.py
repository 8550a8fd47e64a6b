"""Put changed files in place, and become a command. Standard library only; runs as a script in a private view.

``python -I install_files.py LIST -- COMMAND...``: LIST is a JSON file of paths with the copies to put there, null to
delete. Exit code 125 with one line on standard error means that a folder is the real one; nothing was changed then.
"""

# untested: runs as python -I, and so without coverage.py

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

REFUSED = 125
READ_BEFORE_S = 1.0  # the time of access of a file that was put in place and not read since is before this
_AHEAD_S = 2  # no compiled file can hold this time of change, so that none of another version is taken for this one's


def install(entries: Sequence[Any]) -> None:
    """Make all the changes.

    Raises:
        OSError: a folder is the real one, or a file cannot be written.
    """
    for entry in entries:
        about = os.stat(entry["real"]["folder"])
        if (about.st_dev, about.st_ino) == (entry["real"]["device"], entry["real"]["inode"]):
            raise OSError(0, f"{entry['path']} cannot be changed apart from the real file: its folder is not private")
    for entry in entries:
        path, copy = entry["path"], entry["copy"]
        if copy is None:
            os.unlink(path)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(copy, path)
        shutil.copymode(copy, path)
        changed_s = time.time() + _AHEAD_S
        os.utime(path, (0, changed_s))


def main(arguments: Sequence[str]) -> None:
    """Install, and become the command."""
    cut = arguments.index("--")
    with open(arguments[0], encoding="utf-8") as file:
        entries = json.load(file)
    try:
        install(entries)
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        sys.exit(REFUSED)
    command = arguments[cut + 1 :]
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(sys.argv[1:])
