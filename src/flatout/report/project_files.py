"""Files of somebody's project: read as they are, and replaced so that nothing of them is lost."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from flatout.atomic_file import replacing
from flatout.errors import UsageError

BOM = "\ufeff"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link to itself"),
)


@dataclass(frozen=True)
class Change:
    """A file before and after.

    Attributes:
        path: of the file; its target, where it is a link.
        before: its text; None: there is none.
        after: its text.
        note: what a person has to know of it, in a line.
    """

    path: Path
    before: str | None
    after: str
    note: str = ""

    @property
    def diff(self) -> str:
        """What changes, as a unified diff; empty: nothing does."""
        before = (self.before or "").splitlines(keepends=True)
        name = str(self.path)
        return "".join(difflib.unified_diff(before, self.after.splitlines(keepends=True), name, name))

    def check(self) -> None:
        """See whether the file may be written, as far as its permissions say.

        Raises:
            UsageError: it is read-only; for root too, who could write it all the same.
        """
        if self.before is None or self.before == self.after:
            return
        mode = self.path.stat().st_mode
        if not mode & 0o222 or not os.access(self.path, os.W_OK):
            raise UsageError(
                f"{self.path}: it is read-only (mode {stat.S_IMODE(mode):04o}); nothing was changed: "
                f"chmod u+w {shlex.quote(str(self.path))} lets it be written"
            )

    def write(self) -> Path | None:
        """Write the file, with the mode it had; returns where the one before was copied to, if it changes.

        Raises:
            UsageError: it cannot be written.
        """
        self.check()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.before is None:
                with replacing(self.path) as file:
                    file.write(self.after.encode())
                return None
            backup = None if self.before == self.after else _copy(self.path, self.before)
            now = self.path.stat()
            with replacing(self.path) as file:
                file.write(self.after.encode())
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), now.st_uid, now.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(now.st_mode))
            return backup
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written ({error.strerror}); it stays as it was") from None


def inside(project: Path, name: Path) -> Path:
    """The file of that name in a project; a link is followed as long as it stays in there.

    Raises:
        UsageError: a link leads out of the project.
    """
    path = project / name
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(project.resolve()):
        raise UsageError(
            f"{path}: a link leads to {target}, outside of {project}; nothing was changed: use --install for its folder"
        )
    linked = path.is_symlink() or path.parent.resolve() != target.parent
    return target if linked else path


def read(path: Path) -> str | None:
    """The text of a file with its own line ends; None: there is none.

    Raises:
        UsageError: it is no file (reading a FIFO would never end), or no UTF-8 text, or cannot be read.
    """
    try:
        mode = path.stat(follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            kind = next((kind for is_it, kind in _KINDS if is_it(mode)), "no regular file")
            raise UsageError(f"{path}: it is {kind}, where a file is needed; nothing was changed: move it away")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"{path}: cannot be read ({why}); nothing was changed") from None


def line_end(text: str) -> str:
    """How the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


def _copy(path: Path, text: str) -> Path:
    """Copy the file before to a name that nothing has, not even a link that leads nowhere."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.before-flatout{f'-{number}' if number else ''}")
        try:
            with backup.open("xb") as file:
                file.write(text.encode())
        except FileExistsError:
            number += 1
            continue
        shutil.copystat(path, backup)
        return backup
