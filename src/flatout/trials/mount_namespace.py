"""Start a command in a private copy-on-write view of the file system. Standard library only; runs as a script.

``python -I enter.py SCRATCH KEEP... -- COMMAND...``: what the command writes anywhere on a disk lands in SCRATCH,
except below KEEP, which stay the real folders. The view is gone with the command's last process.

In a user namespace the command keeps its user id, and needs no privileges. Exit code 125 with one line on standard
error means that the kernel refused; the command was not started then.
"""

# untested: runs as python -I -S, and so without coverage.py

import ctypes
import os
import shutil
import sys
from collections.abc import Sequence

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000
REFUSED = 125
# Kernel interfaces, sockets and shared memory: not places where a training leaves files.
SHARED = ("/proc", "/sys", "/dev", "/run")
MOST_ENTRIES = 500  # of a folder that must be recreated
_libc = ctypes.CDLL(None, use_errno=True)


def enter(scratch: str, keep: Sequence[str]) -> None:
    """Move this process into the view.

    Args:
        scratch: an existing, empty folder on a disk that can carry an overlay.
        keep: real folders to leave as they are.

    Raises:
        OSError: the kernel refuses a step.
    """
    here = os.getcwd()
    user, group = os.getuid(), os.getgid()
    options = ""
    if user != 0 or not _unshare(NEW_MOUNTS):
        _checked(_unshare(NEW_MOUNTS | NEW_USER), "a private mount namespace")
        options = ",userxattr"
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    _mount(None, "/", None, RECURSIVE | PRIVATE, None)
    view = _View(scratch, _mounts(), options)
    view.add("/")
    for place in keep:
        _mount(place, view.root + place, None, BIND | RECURSIVE, None)
    os.chroot(view.root)
    os.chdir(here)


class _View:
    """A tree of mounts below ``root`` that looks like the real one.

    An overlay shows one file system. A folder in which others are mounted is therefore rebuilt, entry by entry.
    """

    def __init__(self, scratch: str, mounts: Sequence[str], options: str) -> None:
        self.scratch, self.mounts, self.options = scratch, mounts, options
        self.root = os.path.join(scratch, "root")
        self.overlays = 0
        os.makedirs(self.root)

    def add(self, place: str) -> None:
        """Put one folder of the real tree, and all that is below it, into the view."""
        inside = self.root + place
        if place in SHARED:
            _mount(place, inside, None, BIND | RECURSIVE, None)
        elif any(mount != place and _below(mount, place) for mount in self.mounts):
            self._rebuild(place)
        elif os.access(place, os.W_OK) or place not in self.mounts:
            self._overlay(place, inside)
        else:
            _mount(place, inside, None, BIND | RECURSIVE, None)

    def _rebuild(self, place: str) -> None:
        with os.scandir(place) as entries:
            found = list(entries)
        if len(found) > MOST_ENTRIES:
            raise OSError(0, f"{place} holds a mounted file system and {len(found)} entries, more than {MOST_ENTRIES}")
        for entry in found:
            inside = self.root + entry.path
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), inside)
            elif entry.is_dir():
                os.mkdir(inside)
                self.add(entry.path)
            elif entry.is_file():
                # A separate file: writes to it do not reach the real one.
                shutil.copy(entry.path, inside)

    def _overlay(self, place: str, inside: str) -> None:
        self.overlays += 1
        upper, work = (os.path.join(self.scratch, str(self.overlays), name) for name in ("upper", "work"))
        os.makedirs(upper)
        os.makedirs(work)
        data = f"lowerdir={place},upperdir={upper},workdir={work}{self.options}"
        _mount("overlay", inside, "overlay", 0, data)


def _mounts() -> list[str]:
    """Mount points, outer ones first."""
    with open("/proc/self/mountinfo") as lines:
        places = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    return sorted(places, key=lambda place: (place.count("/"), place))


def _below(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _unshare(flags: int) -> bool:
    return bool(_libc.unshare(flags) == 0)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    done = _libc.mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode()) == 0
    _checked(done, f"mounting {target}")


def _checked(done: bool, what: str) -> None:
    if not done:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main(arguments: Sequence[str]) -> None:
    """Enter, and become the command."""
    cut = arguments.index("--")
    (scratch, *keep), command = arguments[:cut], arguments[cut + 1 :]
    try:
        enter(scratch, keep)
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        sys.exit(REFUSED)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(sys.argv[1:])
