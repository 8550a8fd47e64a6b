"""A patch, applied to copies of the files that it names: ``git apply`` does it, or ``patch`` where there is no git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.trials.file_changes import FileChanges, difference
from flatout.trials.isolation import remove

# Names in a patch: of `diff -u`, of `git diff`, and of renames without other changes.
_NAME = re.compile(rb'^(?:--- |\+\+\+ |(?:rename|copy) (?:from|to) )("(?:[^"\\]|\\.)*"|[^\t\r\n]+)', re.M)
_HEADER = re.compile(rb'^diff --git ("?a/.+"?) ("?b/.+"?)\r?$', re.M)
_PAIR = re.compile(rb"^--- ([^\t\r\n]+)(.*)\n\+\+\+ ([^\t\r\n]+)", re.M)
_OCTAL = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_NOTHING = b"/dev/null"
MOST_BYTES = 16 << 20  # of a patch
_SECONDS = 60.0
# Patches written by hand or by a program: counts in headers that are wrong, no context, other line ends.
_TOLERANT = ("--recount", "--unidiff-zero", "--ignore-whitespace")


@dataclass(frozen=True)
class Patch:
    """A patch as it was read.

    Attributes:
        name: as the user wrote it, for messages.
        text: its bytes.
    """

    name: str
    text: bytes

    @classmethod
    def read(cls, name: str, given: bytes | None = None) -> Patch:
        """Read a file; ``given`` are the bytes that were read already, of standard input.

        Raises:
            UsageError: it cannot be read, is empty, or holds no patch.
        """
        if given is None:
            try:
                with Path(name).open("rb") as file:
                    given = file.read(MOST_BYTES + 1)
            except OSError as error:
                raise UsageError(
                    f"--patch {name}: cannot be read ({error.strerror}); write it with `git diff`"
                ) from None
        if len(given) > MOST_BYTES:
            raise UsageError(f"--patch {name}: larger than {MOST_BYTES >> 20} MiB: is it a patch?")
        if not given.strip():
            raise UsageError(f"--patch {name}: is empty, so it changes nothing; write it with `git diff` or `diff -u`")
        if not _NAME.search(given) and not _HEADER.search(given):
            raise UsageError(
                f"--patch {name}: names no file (no lines `--- FILE`, `+++ FILE`); write it with `git diff`"
            )
        return cls(name, given)

    def names(self) -> list[str]:
        """All names in it, with the prefixes that they have there."""
        found = [match[1] for match in _NAME.finditer(self.text)]
        found += [name for match in _HEADER.finditer(self.text) for name in match.groups()]
        return list(dict.fromkeys(os.fsdecode(_unquoted(name)) for name in found if name.strip() != _NOTHING))


def apply_patch(patch: Patch, folder: Path, here: Path, before: FileChanges | None = None) -> tuple[FileChanges, bool]:
    """What a patch changes, without touching the files that it names.

    Args:
        patch: to apply.
        folder: for the changed copies; it need not exist.
        here: the folder in which the command runs. Names in the patch are relative to it or to the repository's root.
        before: changes to apply it on top of.

    Returns:
        The changes, and whether they lead back: the files have the patch already, and the changes take it out.

    Raises:
        UsageError: it does not apply, in neither direction, or changes nothing.
    """
    said = ""
    for backward in (False, True) if before is None else (False,):
        for root in _roots(here):
            for text, options in _attempts(patch.text):
                for strip in (1, 0):
                    copied = _copy_named(patch, root, strip, folder, before)
                    failure = _apply(_paired(text, folder, strip), folder, strip, options, backward)
                    if failure is None:
                        changes = difference(folder, root, copied, before)
                        if not changes.files:
                            raise UsageError(f"--patch {patch.name}: changes nothing: every file is as it was")
                        return changes, backward
                    said = said or (failure if copied else "")
                    remove(folder)
    if not said:
        roots = " nor in ".join(str(root) for root in _roots(here))
        said = f"it names {', '.join(patch.names()[:3])}, and there is no such file in {roots}"
    raise UsageError(f"--patch {patch.name}: does not apply: {said}")


def _roots(here: Path) -> list[Path]:
    """The folders that names in a patch may be relative to: the current one, and the root of its repository."""
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return list(dict.fromkeys((here, top)))


def _attempts(text: bytes) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """The patch as it is, strictly; then more tolerantly, and with other line ends."""
    yield text, ()
    yield text, _TOLERANT
    if b"\r\n" in text:
        yield text.replace(b"\r\n", b"\n"), _TOLERANT
    if not text.endswith(b"\n"):
        yield text + b"\n", _TOLERANT


def _copy_named(patch: Patch, root: Path, strip: int, folder: Path, before: FileChanges | None) -> list[Path]:
    """Make a folder with the files that the patch names, as they are after ``before``; their relative paths."""
    remove(folder)
    folder.mkdir(parents=True)
    copied = []
    for name in patch.names():
        parts = Path(name).parts[strip:]
        if not parts or Path(name).is_absolute() or ".." in parts:
            continue
        source, copy = root.joinpath(*parts), folder.joinpath(*parts)
        real = before.now(source) if before is not None else source
        try:
            if real is not None and real.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(real, copy)
                copied.append(Path(*parts))
        except OSError as error:
            raise UsageError(f"--patch {patch.name}: {source} cannot be read ({error.strerror})") from None
    return copied


def _paired(text: bytes, copies: Path, strip: int) -> bytes:
    """The patch of a file against its copy (`diff -u train.py train_b.py`) as one of the file that exists."""

    def paired(match: re.Match[bytes]) -> bytes:
        old, end, new = match.groups()
        if _NOTHING in (old, new) or old.startswith(b'"'):
            return match[0]
        present = [name for name in (old, new) if _stripped(name, copies, strip).is_file()]
        if _stripped(old, copies, strip) == _stripped(new, copies, strip) or not present:
            return match[0]
        chosen = min(present, key=lambda name: (name.count(b"/"), not _is_original(name, old, new), name != old))
        return b"--- " + chosen + end + b"\n+++ " + chosen

    return text if _HEADER.search(text) else _PAIR.sub(paired, text)


def _is_original(name: bytes, *both: bytes) -> bool:
    """True for ``train.py`` beside ``train.py.orig`` or ``train_b.py``: the other one is named after it."""
    other = next((one for one in both if one != name), name)
    mine, theirs = os.path.basename(name), os.path.basename(other)
    return len(mine) < len(theirs) and theirs.startswith(os.path.splitext(mine)[0])


def _stripped(name: bytes, copies: Path, strip: int) -> Path:
    return copies.joinpath(*Path(os.fsdecode(name)).parts[strip:])


def _apply(text: bytes, copies: Path, strip: int, options: tuple[str, ...], backward: bool) -> str | None:
    """Apply it in a folder; None, or the last line of why it does not apply."""
    if shutil.which("git"):
        words = ["git", "apply", f"-p{strip}", "--whitespace=nowarn", *options, *["--reverse"] * backward, "-"]
    elif shutil.which("patch"):
        words = ["patch", f"-p{strip}", "--batch", "--binary", "--fuzz=0", "--reject-file=-", "--no-backup-if-mismatch"]
        words += ["--reverse"] if backward else ["--forward"]
    else:
        raise UsageError("--patch: applying a patch needs git or patch, and neither is on PATH: install one of them")
    # A repository around the copies, and the user's own options of git, have no part in this.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CEILING_DIRECTORIES": str(copies.parent), "GIT_CONFIG_GLOBAL": os.devnull}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, input=text, cwd=copies, env=environment, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"{words[0]} took more than {_SECONDS:.0f} s"
    lines = [line.strip() for line in (done.stderr + done.stdout).decode(errors="replace").splitlines() if line.strip()]
    if done.returncode == 0:
        return None
    return "; ".join(line.removeprefix("error: ") for line in lines[:2]) or f"{words[0]} failed"


def _unquoted(name: bytes) -> bytes:
    """A name without the quotes and escapes that git puts around unusual characters."""
    name = name.rstrip(b"\r")
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name
    return _OCTAL.sub(
        lambda match: bytes([int(match[1], 8)]) if match[1].isdigit() else _ESCAPED.get(match[1], match[1]), name[1:-1]
    )
