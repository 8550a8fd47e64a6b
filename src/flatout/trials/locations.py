"""The user's own settings in a config file or in the command's options, where trials change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.probe.settings import SETTINGS
from flatout.trials.configs import Config, read_config

# Words in the names of loaders and settings that are not the training's.
NOT_TRAINING = frozenset({"val", "valid", "validation", "eval", "test", "dev", "predict"})


@dataclass(frozen=True)
class SettingLocations:
    """The location of each setting that the user has.

    Attributes:
        command: the user's.
        config: its config file; None: the command names none.
        keys: setting -> key of the config, as "training.workers".
        options: setting -> option of the command, as "--num-workers".
    """

    command: tuple[str, ...]
    config: Config | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def located(self, settings: Mapping[str, Any]) -> set[str]:
        """Names of the settings that have a location; the others are injected."""
        return {name for name in settings if name in self.keys or name in self.options}

    def command_with(self, settings: Mapping[str, Any], folder: Path) -> list[str]:
        """The command that trains with these settings; a changed config is written into ``folder``."""
        words = list(self.command)
        for name in sorted(self.located(settings)):
            if name in self.options:
                words = _replaced(words, self.options[name], _value(name, settings[name], self._present(name)))
        changed = self.values(settings)
        if self.config is None or not changed:
            return words
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / self.config.path.name
        copy.write_text(self.config.edited(changed))
        return [_renamed(word, self.config.path, copy) for word in words]

    def values(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Key of the config -> its value with these settings."""
        return {
            self.keys[name]: _value(name, value, self._present(name))
            for name, value in settings.items()
            if name in self.keys
        }

    def present(self, name: str) -> Any:
        """The value where the user has it, text where it is an option; None: it has no location."""
        return self._present(name) if self.located({name: None}) else None

    def _present(self, name: str) -> Any:
        if name in self.options:
            return _option(self.command, self.options[name])
        assert self.config is not None, "a key belongs to a config"
        return self.config.values[self.keys[name]]


def find_locations(command: Sequence[str], config: Path | None, given: Sequence[str]) -> SettingLocations:
    """Find the settings by their names.

    Args:
        command: the user's.
        config: a YAML, JSON or TOML file that the command names.
        given: locations by the user, "num_workers=training.workers" or "num_workers=--jobs".

    Raises:
        UsageError: the config is not in the command or cannot be read, a given location does not exist, or a name fits
            two keys.
    """
    read = read_config(config) if config is not None else None
    if read is not None and not any(_same(word, read.path) for word in command):
        raise UsageError(f"--config {config}: the command does not name this file, so a changed copy would not be read")
    keys: dict[str, str] = {}
    options: dict[str, str] = {}
    for text in given:
        name, _, location = text.partition("=")
        if name not in SETTINGS or not location:
            unknown = f"there is no setting {name!r}; " if location else ""
            raise UsageError(
                f"--setting {text!r}: {unknown}write SETTING=KEY or SETTING=--option, with SETTING from "
                "`flatout apply --list`"
            )
        if location.startswith("-"):
            _option(command, location)
            options[name] = location
        elif read is None or location not in read.values:
            known = ", ".join(list(read.values)[:12]) if read else "none: --config names no file"
            raise UsageError(f"--setting {text!r}: there is no such key; there are {known}")
        else:
            keys[name] = location
    for name, setting in SETTINGS.items():
        if name in keys or name in options:
            continue
        option = next((word.partition("=")[0] for word in command if _is_option(word, setting.aliases)), None)
        if option is not None:
            options[name] = option
        elif read is not None and (key := _key(name, setting.aliases, read)):
            keys[name] = key
    return SettingLocations(tuple(command), read, keys, options)


def _key(name: str, aliases: Sequence[str], config: Config) -> str | None:
    found = [key for key in config.values if _plain(key.rpartition(".")[2]) in aliases]
    of_training = [key for key in found if not set(_plain(key).replace(".", "_").split("_")) & NOT_TRAINING]
    found = of_training or found
    if len(found) > 1:
        raise UsageError(
            f"--config {config.path}: {name} could be {' or '.join(found)}: say which with --setting {name}={found[0]}"
        )
    return found[0] if found else None


def _plain(text: str) -> str:
    return text.lower().replace("-", "_")


def _is_option(word: str, aliases: Sequence[str]) -> bool:
    return word.startswith("-") and _plain(word.partition("=")[0].lstrip("-")) in aliases


def _option(command: Sequence[str], option: str) -> str:
    for number, word in enumerate(command):
        if word == option and number + 1 < len(command):
            return command[number + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    raise UsageError(
        f"--setting: the command has no option {option} with a value: add it with the value it has by default"
    )


def _replaced(words: Sequence[str], option: str, value: Any) -> list[str]:
    made = list(words)
    for number, word in enumerate(made):
        if word == option and number + 1 < len(made):
            made[number + 1] = str(value)
        elif word.startswith(option + "="):
            made[number] = f"{option}={value}"
    return made


def _value(name: str, wanted: Any, present: Any) -> Any:
    """The wanted value, or the present one multiplied by it."""
    number = SETTINGS[name].multiplies
    if number is None:
        return wanted
    return round(float(present) * wanted) if number is int else float(present) * wanted


def _same(word: str, path: Path) -> bool:
    text = word.partition("=")[2] or word
    return Path(text).absolute() == path.absolute()


def _renamed(word: str, path: Path, copy: Path) -> str:
    if not _same(word, path):
        return word
    option, separator, _ = word.partition("=")
    return f"{option}={copy}" if separator else str(copy)
