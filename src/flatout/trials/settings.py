"""Settings as text: those of ``--set``, and the command line that reproduces what was proved."""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.probe.settings import MOST, SETTINGS, Setting, combined

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_OF_FOLDERS = ("read_from", "read_through")  # their values begin with one
_LISTED = "`flatout apply --list` lists the settings"
_INJECTED = {name: setting for name, setting in SETTINGS.items() if setting.injector}


def list_settings() -> list[str]:
    """One line for each setting that ``--set`` takes: name, type and help."""
    return [f"{name:24}{setting.type.__name__:7}{setting.help}" for name, setting in _INJECTED.items()]


def keep_command(command: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The command line that trains with these settings from now on."""
    sets = " ".join(f"--set {shlex.quote(f'{name}={_written(value)}')}" for name, value in settings.items())
    return f"flatout apply {sets} -- {' '.join(shlex.quote(word) for word in command)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs.

    Raises:
        UsageError: an unknown name, a value of the wrong type, or two values where a setting takes one.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text!r}: write NAME=VALUE, such as num_workers=4; {_LISTED}")
        if name not in _INJECTED:
            near = difflib.get_close_matches(name, _INJECTED, n=1, cutoff=0.8)
            raise UsageError(
                f"--set {text!r}: there is no setting {name!r}; {f'did you mean {near[0]}?' if near else _LISTED}"
            )
        read = _value(name, value)
        if not SETTINGS[name].several and found.get(name, read) != read:
            raise UsageError(f"--set {name} is given twice, as {_written(found[name])} and as {value}: give it once")
        found = combined(found, {name: read})
    return found


def _value(name: str, text: str) -> Any:
    setting = _INJECTED[name]
    if setting.type is bool:
        if text.lower() not in _WORDS:
            raise UsageError(f"--set {name}={text}: {name} is true or false ({setting.help})")
        return _WORDS[text.lower()]
    parts = text.split(",") if setting.several else [text]
    if unknown := [part for part in parts if setting.choices and part not in setting.choices]:
        raise UsageError(f"--set {name}={text}: {unknown[0]!r} is none of {', '.join(setting.choices)}")
    form, _, what = setting.help.partition(": ")
    if setting.form and not re.fullmatch(setting.form, text):
        raise UsageError(f"--set {name}={text}: write {name}={form} ({what})")
    if name in _OF_FOLDERS and not Path(folder := text.partition("=")[0]).is_dir():
        raise UsageError(f"--set {name}={text}: {folder!r} is no folder; write {name}={form}")
    try:
        value = _whole(text) if setting.type is int else setting.type(text)
    except ValueError:
        kind = "whole number" if setting.type is int else "number"
        raise UsageError(f"--set {name}={text}: {name} is a {kind}, {_range(setting)} ({setting.help})") from None
    least = setting.least if setting.type is int else math.ulp(0.0)
    if setting.type in (int, float) and not least <= value <= setting.most:
        raise UsageError(f"--set {name}={text}: {name} cannot be {text}, but {_range(setting)} ({setting.help})")
    return value


def _range(setting: Setting) -> str:
    """The values of a number that are allowed, in words."""
    if setting.type is not int:
        return "above 0, below 2^63"
    if setting.most < MOST:
        return f"{setting.least:,} to {setting.most:,}"
    return f"{setting.least} or more, below 2^63"


def _whole(text: str) -> int:
    """An int, also one that is written as ``8e9``.

    Raises:
        ValueError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)
