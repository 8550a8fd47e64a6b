"""What tools are given, checked: commands, folders, numbers. Nothing goes through a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

from flatout.errors import UsageError

MOST_WORDS, MOST_CHARACTERS = 500, 32_000
MOST_WORD = 128 << 10  # bytes: MAX_ARG_STRLEN of Linux
MOST_PATCH = 4 << 20
_SHELL = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"}


def command_words(command: str | list[str]) -> list[str]:
    """A training's command as words; a text is split as a shell would, and nothing else of a shell is done.

    Raises:
        UsageError: it is empty, too long, badly quoted, or needs a shell.
    """
    if len(command if isinstance(command, str) else "".join(command)) > MOST_CHARACTERS:
        raise UsageError(f"command is longer than {MOST_CHARACTERS:,} characters; put it into a script")
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise UsageError(f"command: {error}; give a list of words instead") from None
    if not words or not words[0].strip():
        raise UsageError('command is empty; give the training as you start it, such as "python train.py"')
    if len(words) > MOST_WORDS:
        raise UsageError(f"command has {len(words):,} words; at most {MOST_WORDS} are allowed")
    if isinstance(command, str) and (wrong := next((word for word in words if word in _SHELL), None)):
        raise UsageError(f"command has {wrong!r}, which needs a shell, and none is used; put it into a script")
    return plain(*words)


def plain(*words: str) -> list[str]:
    """Words that can be given to a program.

    Raises:
        UsageError: one has a null character or half a character, or is too long.
    """
    for word in words:
        if "\0" in word:
            raise UsageError("an argument has a null character")
        size = len(word.encode("utf-8", "surrogatepass"))
        if size >= MOST_WORD:
            raise UsageError(f"an argument has {size:,} bytes; programs take less than {MOST_WORD:,}")
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise UsageError("an argument has half a character (\\ud800 to \\udfff)")
    return list(words)


def folder_below(root: Path, folder: str) -> Path:
    """The working directory of a tool.

    Raises:
        UsageError: it does not exist, or lies outside the root.
    """
    try:
        path = (root / folder).resolve()
        inside, there = path.is_relative_to(root), path.is_dir()
    except (OSError, ValueError):
        inside, there = True, False
    if not inside:
        raise UsageError(f"folder {folder[:200]!r} is outside of {root}, where the server was started")
    if not there:
        raise UsageError(f"folder {folder[:200]!r}: there is no such folder below {root}")
    return path


def path_below(root: Path, folder: Path, path: str) -> str:
    """A file or folder that a tool reads or writes.

    Raises:
        UsageError: it lies outside the root.
    """
    plain(path)
    try:
        resolved = (folder / path).resolve()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path[:200]!r}: {error}") from None
    if not path or not resolved.is_relative_to(root):
        raise UsageError(f"{path[:200]!r} is outside of {root}, where the server was started")
    return str(resolved)


def not_an_option(name: str, value: str) -> str:
    """A value that stands where an option could.

    Raises:
        UsageError: it begins with a dash, or is empty.
    """
    if not value or value.startswith("-"):
        raise UsageError(f"{name} is {value[:60]!r}; it must not be empty or begin with a dash")
    return plain(value)[0]


def run_below(name: str, root: Path, folder: Path, run: str) -> str:
    """A recorded run or a log: an id, or a path below the root.

    Raises:
        UsageError: it is empty, begins with a dash, or is a path outside the root.
    """
    not_an_option(name, run)
    return path_below(root, folder, run) if "/" in run or run in (".", "..") else run


def seconds(name: str, value: float | None) -> float | None:
    """A positive time.

    Raises:
        UsageError: it is none.
    """
    if value is not None and not 0 < value <= 30 * 86400:
        raise UsageError(f"{name} is {value:g}; it must be above 0, and at most 30 days (in seconds)")
    return value


def patch_bytes(patch: str) -> bytes:
    """A diff to be read from standard input.

    Raises:
        UsageError: it is empty, or too large.
    """
    content = patch.encode("utf-8", "replace")
    if not content.strip() or len(content) > MOST_PATCH:
        raise UsageError(
            f"patch has {len(content):,} bytes; give the text of `git diff`, at most {MOST_PATCH >> 20} MiB"
        )
    return content
