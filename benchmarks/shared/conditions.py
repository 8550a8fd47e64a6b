"""The head of a page of measurements: the command, the machine and the versions under which the figures hold."""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata

from flatout.machine.snapshot import take_snapshot


def head(title: str, script: str, packages: Iterable[str], compared: dict[str, str], trained_on: str = "") -> list[str]:
    """Title, command with its time, machine and versions.

    Args:
        title: Of the page.
        script: The benchmark, as "benchmarks/loader/run.py".
        packages: Whose installed versions count.
        compared: Rival -> version.
        trained_on: The device, where it matters.
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = take_snapshot()
    versions = {"Python": platform.python_version(), **{name: metadata.version(name) for name in packages}, **compared}
    where = f"; trained on {trained_on}" if trained_on else ""
    return [
        f"# {title}",
        "",
        f"`{shlex.join(['python', script, *sys.argv[1:]])}`, {now}",
        "",
        f"- Machine: {machine.one_line()}; {machine.cores.model or 'processor not known'}{where}",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
    ]
