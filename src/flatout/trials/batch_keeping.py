"""How a training gets a batch size for good: as its own command has it, else injected."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.trials.locations import SettingLocations
from flatout.trials.settings import keep_command


@dataclass(frozen=True)
class Keeping:
    """What to do.

    Attributes:
        command: to run from now on.
        edits: key -> value to write into the config file first.
        config: that file; None: nothing to write.
    """

    command: str
    edits: Mapping[str, Any] = field(default_factory=dict)
    config: Path | None = None


def keeping(words: Sequence[str], locations: SettingLocations | None, settings: Mapping[str, Any]) -> Keeping:
    """For a command and settings.

    Args:
        words: the user's command.
        locations: of settings in it; None: they are injected.
        settings: by name.
    """
    if locations is None:
        return Keeping(keep_command(words, settings))
    in_config = {name: value for name, value in settings.items() if name in locations.keys}
    optional = {name: value for name, value in settings.items() if name in locations.options}
    injected = {name: value for name, value in settings.items() if name not in in_config and name not in optional}
    made = locations.command_with(optional, Path())
    command = keep_command(made, injected) if injected else shlex.join(made)
    config = locations.config.path if locations.config is not None and in_config else None
    return Keeping(command, locations.values(in_config), config)
