"""Settings as text: those of ``--set``, and the command line that reproduces what was proved."""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.errors import UsageError
from flatout.probe.settings import MOST, SETTINGS, Setting

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_INJECTED = {name: setting for name, setting in SETTINGS.items() if setting.injector}


def list_settings() -> list[str]:
    """One line for each setting that ``--set`` takes: name, type and help."""
    return [f"{name:20}{setting.type.__name__:7}{setting.help}" for name, setting in _INJECTED.items()]


def keep_command(command: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The command line that trains with these settings from now on."""
    sets = " ".join(f"--set {shlex.quote(f'{name}={_written(value)}')}" for name, value in settings.items())
    return f"flatout apply {sets} -- {' '.join(shlex.quote(word) for word in command)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs.

    Raises:
        UsageError: an unknown name, or a value of the wrong type.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        near = (
            difflib.get_close_matches(name, _INJECTED, n=1, cutoff=0.8) if separator and name not in _INJECTED else []
        )
        if near:
            raise UsageError(f"--set {text!r}: there is no setting {name}; did you mean {near[0]}?")
        if not separator or name not in _INJECTED:
            raise UsageError(f"--set {text!r}: write NAME=VALUE, with NAME one of {', '.join(_INJECTED)}")
        found[name] = _value(name, value)
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
    if setting.form and not re.fullmatch(setting.form, text):
        form, _, what = setting.help.partition(": ")
        raise UsageError(f"--set {name}={text}: write {name}={form}, {what}")
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
