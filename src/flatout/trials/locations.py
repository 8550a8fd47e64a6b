"""Where the user's own settings live: in a config file, or in the options of the command. Trials change them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.trials.configs import Config, read_config
from flatout.trials.settings import PLACED_ONLY, SETTINGS

# Names that trainings give to settings; compared without case, "-" is "_".
ALIASES: dict[str, tuple[str, ...]] = {
    "num_workers": ("num_workers", "workers", "n_workers", "nworkers", "dataloader_num_workers", "loader_workers", "j"),
    "prefetch_factor": ("prefetch_factor", "prefetch", "dataloader_prefetch_factor"),
    "persistent_workers": ("persistent_workers", "dataloader_persistent_workers"),
    "pin_memory": ("pin_memory", "pin_mem", "dataloader_pin_memory"),
    "batch_size": ("batch_size", "train_batch_size", "per_device_train_batch_size", "batchsize"),
    "lr_factor": ("lr", "learning_rate", "base_lr"),
    "accumulate": ("accumulate_steps", "accumulate", "accumulate_grad_batches", "gradient_accumulation_steps"),
    "validation_factor": (
        "check_val_every_n_epoch",
        "eval_every",
        "val_every",
        "validate_every",
        "eval_interval",
        "val_interval",
        "eval_steps",
    ),
    "log_every": ("log_every_n_steps", "logging_steps", "log_every", "log_interval", "print_freq"),
}
# What these ask for is so many times what is there.
_TIMES = ("accumulate", "log_every", "validation_factor")
# Keys of what is no training are no candidates while another one is there.
_OTHERS = ("val", "valid", "validation", "eval", "test", "predict")


@dataclass(frozen=True)
class SettingLocations:
    """Where each setting is found.

    Attributes:
        command: the user's command.
        config: its config file; None: none was named.
        keys: setting -> key of the config, as "training.workers".
        options: setting -> option of the command, as "--num-workers".
    """

    command: tuple[str, ...]
    config: Config | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def placed(self, settings: Mapping[str, Any]) -> set[str]:
        """Those that have a place of their own; the others are injected."""
        return {name for name in settings if name in self.keys or name in self.options}

    def command_with(self, settings: Mapping[str, Any], folder: Path) -> list[str]:
        """The command that trains with these settings; a changed config is written into ``folder``."""
        words = list(self.command)
        for name in sorted(self.placed(settings)):
            if name in self.options:
                words = _replaced(words, self.options[name], _value(name, settings[name], self._now(name)))
        changed = {
            self.keys[name]: _value(name, value, self._now(name))
            for name, value in settings.items()
            if name in self.keys
        }
        if self.config is None or not changed:
            return words
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / self.config.path.name
        copy.write_text(self.config.edited(changed))
        return [_renamed(word, self.config.path, copy) for word in words]

    def _now(self, name: str) -> Any:
        if name in self.options:
            return _option(self.command, self.options[name])
        assert self.config is not None, "a key belongs to a config"
        return self.config.values[self.keys[name]]


def find_locations(command: Sequence[str], config: Path | None, knobs: Sequence[str]) -> SettingLocations:
    """Look for settings by their names.

    Args:
        command: the user's.
        config: a YAML, JSON or TOML file that the command names.
        knobs: "num_workers=training.workers" or "num_workers=--jobs", which need no looking.

    Raises:
        UsageError: the config is not in the command or cannot be read, a knob names nothing, or a name fits two keys.
    """
    read = read_config(config) if config is not None else None
    if read is not None and not any(_same(word, read.path) for word in command):
        raise UsageError(f"--config {config}: the command does not name this file, so a changed copy would not be read")
    keys: dict[str, str] = {}
    options: dict[str, str] = {}
    for knob in knobs:
        name, _, place = knob.partition("=")
        if name not in {**SETTINGS, **PLACED_ONLY} or not place:
            raise UsageError(
                f"--setting {knob!r}: write SETTING=KEY or SETTING=--option, with SETTING from `flatout apply --list`"
            )
        if place.startswith("-"):
            _option(command, place)
            options[name] = place
        elif read is None or place not in read.values:
            known = ", ".join(list(read.values)[:12]) if read else "none: --config names no file"
            raise UsageError(f"--setting {knob!r}: there is no such key; there are {known}")
        else:
            keys[name] = place
    for name, aliases in ALIASES.items():
        if name in keys or name in options:
            continue
        option = next((word.partition("=")[0] for word in command if _is_option(word, aliases)), None)
        if option is not None:
            options[name] = option
        elif read is not None and (key := _key(name, aliases, read)):
            keys[name] = key
    return SettingLocations(tuple(command), read, keys, options)


def _key(name: str, aliases: Sequence[str], config: Config) -> str | None:
    found = [key for key in config.values if _plain(key.rpartition(".")[2]) in aliases]
    of_training = [key for key in found if not set(_plain(key).replace(".", "_").split("_")) & set(_OTHERS)]
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


def _value(name: str, wanted: Any, now: Any) -> Any:
    """A factor on what is there; any other value as it is."""
    if name in _TIMES:
        return round(float(now) * wanted)
    return float(now) * wanted if name == "lr_factor" else wanted


def _same(word: str, path: Path) -> bool:
    text = word.partition("=")[2] or word
    return Path(text).absolute() == path.absolute()


def _renamed(word: str, path: Path, copy: Path) -> str:
    if not _same(word, path):
        return word
    option, separator, _ = word.partition("=")
    return f"{option}={copy}" if separator else str(copy)
