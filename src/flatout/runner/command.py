"""The user's command: checked before it is started, and its environment."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flatout.probe
from flatout.errors import CommandError, UsageError
from flatout.probe.contract import RUN_VARIABLE, SETTINGS_VARIABLE

PROBE_FOLDER = str(Path(flatout.probe.__file__).parent / "on_pythonpath")
# Options of GNU env, in words of their own, and what it sets.
_WITH_VALUE = re.compile("-[iv0]*[uCa]|--unset|--chdir|--argv0")
_SPLIT = ("-S", "-vS", "--split-string")
_PATH, _PATH_WITHIN = re.compile("^PYTHONPATH="), re.compile(r"(?:^|(?<=\s))PYTHONPATH=")


def check_command(command: Sequence[str] | None, invocation: str = "flatout profile") -> tuple[str, ...]:
    """Refuse a command that cannot be started.

    Args:
        command: the user's command.
        invocation: the words before the ``--``, for messages, such as "flatout fix".

    Returns:
        The words of the command, one at least.

    Raises:
        UsageError: there is no command, or flatout is already recording around it.
        CommandError: it is not found or not executable (exit codes 127 and 126, as in shells).
    """
    if not command:
        raise UsageError(f"no training command: write it after `--`, such as `{invocation} -- python train.py`")
    if os.environ.get(RUN_VARIABLE):
        raise UsageError(
            f"this command is itself being recorded (into {os.environ[RUN_VARIABLE]}): "
            "leave out the flatout inside it, or the one around it"
        )
    program = command[0]
    if shutil.which(program):
        return tuple(command)
    path = Path(program)
    if path.suffix == ".py" and path.is_file():
        raise CommandError(f"{program} is a script, not a program: write `{invocation} -- python {program}`", 126)
    if path.is_file():
        raise CommandError(f"{program} is not executable: `chmod +x` it, or start it with its interpreter", 126)
    raise CommandError(f"command not found: {program!r} is neither on PATH nor a file here", 127)


def probed_environment(run: Path) -> dict[str, str]:
    """The environment that loads the probe into every Python process of the command."""
    environment = injecting_environment()
    environment[RUN_VARIABLE] = str(run)
    return environment


def injecting_environment(settings: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The environment in which every Python process of the command finds the probe's start file.

    Args:
        settings: name -> value, injected into the training; None: those of the current environment, usually none.
    """
    environment = dict(os.environ)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = PROBE_FOLDER + (os.pathsep + before if before else "")
    if settings is not None:
        environment[SETTINGS_VARIABLE] = json.dumps(dict(settings))
    return environment


def with_probe(command: Sequence[str]) -> tuple[str, ...]:
    """The words to start: `env PYTHONPATH=...` would keep the probe out, so that its folder is put in front there.

    Args:
        command: the user's. Only what `env` itself is told is changed, also of one that another `env` starts.
    """
    words, at = list(command), 0
    while at < len(words) and os.path.basename(words[at]) == "env":
        at += 1
        while at < len(words) and (words[at].startswith("-") or "=" in words[at]):
            option, words[at] = words[at], _PATH.sub(_in_front, words[at], count=1)
            at += 2 if _WITH_VALUE.fullmatch(option) else 1
            if option in _SPLIT and at < len(words):  # the command is in the next word
                words[at] = _PATH_WITHIN.sub(_in_front, words[at])
                return tuple(words)
    return tuple(words)


def _in_front(found: re.Match[str]) -> str:
    return f"{found[0]}{PROBE_FOLDER}{os.pathsep if found.string[found.end() :][:1].strip() else ''}"


@functools.cache
def _given_descriptors() -> tuple[tuple[int, int], ...]:
    """Descriptors above standard error that this process was started with, each with its inode."""
    found = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        number = int(name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append((number, os.fstat(number).st_ino))
        except OSError:  # the one that listed the folder
            continue
    return tuple(sorted(found))


def inherited_descriptors() -> tuple[int, ...]:
    """Descriptors for the command besides the standard three: those that the user's shell gave, as ``<(command)`` does.

    Python's own are never inherited. First called before any library can open one implicitly.
    """
    kept = []
    for number, inode in _given_descriptors():
        try:
            if os.fstat(number).st_ino == inode and os.get_inheritable(number):
                kept.append(number)
        except OSError:
            continue
    return tuple(kept)
