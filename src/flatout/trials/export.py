"""Exports of what a fix proved: the command, the changed config file, and a patch of the script."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.probe.settings import SETTINGS
from flatout.trials.locations import SettingLocations
from flatout.trials.result import FixResult
from flatout.trials.settings import keep_command
from flatout.trials.source_patch import left_out, named_values, patched

_MARK = "\ufeff"  # of the order of bytes, at the beginning of some files


@dataclass(frozen=True)
class Export:
    """Ways to keep what was proved.

    Attributes:
        command: the command that trains with it.
        config: the changed config file; None: the command names no config file.
        diff: of the config or of the script, unified; empty: of neither.
        apply: the command that applies the diff, which lies in a file.
        note: what to change besides the diff of the script, or instead of one.
    """

    command: str
    config: str | None = None
    diff: str = ""
    apply: str = ""
    note: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, Any], locations: SettingLocations, folder: Path) -> Export:
        """The command with these settings, and the changed config, which is written into ``folder``."""
        words = locations.command_with(settings, folder.absolute())
        located = locations.located(settings)
        injected = {name: value for name, value in settings.items() if name not in located and SETTINGS[name].injector}
        command = keep_command(words, injected) if injected else " ".join(shlex.quote(word) for word in words)
        if locations.config is None or not any(name in locations.keys for name in settings):
            return cls(command)
        config = folder.absolute() / locations.config.path.name
        diff, apply = _patch(locations.config.text, config.read_text(), locations.config.path, folder)
        return cls(command, str(config), diff, apply)

    # untested: only by serial tests, which run without coverage.py
    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def write_kept(fixed: FixResult, locations: SettingLocations, folder: Path) -> Export | None:
    """Write the changed config into ``folder``; None if nothing was kept."""
    settings = fixed.settings
    if not settings:
        return None
    kept = Export.of(settings, locations, folder / "proved")
    if kept.diff:
        return kept
    injected = {name: value for name, value in settings.items() if name not in locations.located(settings)}
    try:
        diff, apply, note = _source_diff(fixed, injected, folder / "proved")
        return replace(kept, diff=diff, apply=apply, note=note)
    except UsageError as error:
        return replace(kept, note=f"No patch of the script was written: {error}")


def write_plans(fixed: FixResult, locations: SettingLocations, folder: Path) -> dict[str, Export]:
    """The plans of the first diagnosis as commands, each with its own config file if the command names one."""
    return {plan.name: Export.of(plan.settings, locations, folder / plan.name) for plan in fixed.plans}


def _source_diff(fixed: FixResult, settings: Mapping[str, Any], folder: Path) -> tuple[str, str, str]:
    """A patch of the script's DataLoader, the command that applies it, and what to set instead of it.

    All are empty if it is not clear which call is meant.

    Raises:
        UsageError: packages are missing.
    """
    path = Path(str(fixed.loader.get("site") or "").rpartition(":")[0])
    try:
        text = path.read_bytes().decode()  # with its own ends of lines
    except (OSError, UnicodeDecodeError):
        return "", "", ""
    source = text.removeprefix(_MARK)
    changed = patched(source, settings)
    if changed is None:
        said = (*named_values(source, settings), left_out(source, settings))
        return "", "", " ".join(filter(None, said))
    mark = text[: len(text) - len(source)]
    return *_patch(text, f"{mark}{changed}", path, folder), left_out(source, settings)


def _patch(before: str, after: str, path: Path, folder: Path) -> tuple[str, str]:
    """A unified diff, which is written into ``folder``, and the command that applies it from the working directory."""
    file = folder.absolute() / f"{path.name}.patch"
    real = path.resolve()  # neither git nor patch follows a link, or takes ".." in a name
    try:
        name = real.relative_to(Path.cwd().resolve()).as_posix()
        old, new, apply = f"a/{name}", f"b/{name}", f"patch -p1 < {shlex.quote(str(file))}"
    except ValueError:  # it lies elsewhere: `patch` takes no absolute name from a patch
        old = new = str(real)
        apply = f"patch {shlex.quote(old)} {shlex.quote(str(file))}"
    if " " in old:  # as git writes it
        old, new = f"{old}\t", f"{new}\t"
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new, n=3)
    diff = "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_bytes(diff.encode())
    return diff, apply


def _lines(text: str) -> list[str]:
    """Lines with their ends, as ``patch`` counts them: str.splitlines() ends some at other characters, too."""
    found: list[str] = re.findall(r"[^\n]*\n|[^\n]+", text)
    return found
