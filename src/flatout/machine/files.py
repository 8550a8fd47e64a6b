"""Reading the kernel's small text files below a root folder."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The file's text; None if it is missing or may not be read.

    The kernel's files may hold any bytes (a mount point, a process name); those that are
    not UTF-8 survive as surrogates.
    """
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The file's only number; None when it is missing, unreadable or not a number."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_fields(text: str) -> dict[str, int]:
    """Lines of ``name value``, as in cgroup ``*.stat`` files; other lines are left out."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            fields[name] = int(value)
    return fields


def parse_cpu_list(text: str) -> set[int]:
    """The cores named by a kernel list such as ``0-3,8``.

    Raises:
        ValueError: The text is not such a list.
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return cores
