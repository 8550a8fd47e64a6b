"""What ``flatout try`` judges: patches, settings, variables, config keys and commands that somebody proposes."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.probe.contract import VARIABLE_PREFIX
from flatout.probe.settings import combined
from flatout.runner.command import PROBE_FOLDER, check_command
from flatout.trials.configs import Config, read_config
from flatout.trials.file_changes import FileChanges, write_copy
from flatout.trials.patches import Patch, apply_patch
from flatout.trials.settings import read_settings

_CONFIGS = (".yaml", ".yml", ".json", ".toml")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True)
class Candidate:
    """One proposed change.

    Attributes:
        title: as the user gave it.
        settings: to inject.
        environment: variables to set.
        command: to run instead; None: the unchanged one.
        files: changed.
        taken_out: files of the runs without the change, where the real files have it already.
    """

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] | None = None
    files: FileChanges = field(default_factory=FileChanges)
    taken_out: FileChanges = field(default_factory=FileChanges)

    @property
    # untested: only by serial tests, which run without coverage.py
    def patched(self) -> FileChanges:
        """The files that differ between the runs with it and without it."""
        return self.files if self.files.files else self.taken_out


@dataclass(frozen=True)
class Given:
    """The options of the command line, as written.

    Attributes:
        patches: files.
        settings: NAME=VALUE.
        variables: NAME=VALUE.
        keys: KEY=VALUE of a config file.
        commands: command lines.
        together: they are one candidate.
    """

    patches: Sequence[Patch] = ()
    settings: Sequence[str] = ()
    variables: Sequence[str] = ()
    keys: Sequence[str] = ()
    commands: Sequence[str] = ()
    together: bool = False


def read_candidates(given: Given, words: tuple[str, ...], folder: Path, here: Path) -> list[Candidate]:
    """The candidates, patches applied to copies.

    Args:
        given: the options.
        words: the unchanged command.
        folder: for changed files.
        here: where the command runs.

    Raises:
        UsageError: there is none, or one of them cannot be made.
        CommandError: a command cannot be started.
    """
    together, found = given.together, list[Candidate]()
    for patch in given.patches:
        before = joined(found).files if together and found else None
        found.append(_patched(patch, folder / str(len(found)), here, before))
    found += [Candidate(f"--set {text}", settings=read_settings([text])) for text in given.settings]
    found += [Candidate(f"--env {text}", environment=_variable(text)) for text in given.variables]
    for text in given.keys:
        before = joined(found).files if together and found else FileChanges()
        found.append(
            Candidate(f"--config-key {text}", files=_config_key(text, words, folder / str(len(found)), before))
        )
    found += [Candidate(f"--command {text!r}", command=_command(text)) for text in given.commands]
    if not found:
        raise UsageError("nothing to try: give a change, such as --patch change.diff, --set num_workers=4 or --command")
    if together:
        if len(given.commands) > 1:
            raise UsageError(f"--together: {len(given.commands)} commands cannot be one candidate: give one --command")
        return [joined(found)]
    if len(found) > 1 and any(one.taken_out.files for one in found):
        title = next(one.title for one in found if one.taken_out.files)
        raise UsageError(
            f"{title}: your files have this change already, so the other candidates would be compared with it "
            "taken out: take it out (`git apply -R`), or try it alone"
        )
    if len({one.title for one in found}) < len(found):
        raise UsageError("the same change is given twice: each candidate is measured once; leave one out")
    return found


def joined(candidates: Sequence[Candidate]) -> Candidate:
    """All of them as one."""
    one = candidates[0]
    for other in candidates[1:]:
        one = replace(
            one,
            title=f"{one.title} {other.title}",
            settings=combined(one.settings, other.settings),
            environment={**one.environment, **other.environment},
            command=other.command or one.command,
            files=one.files.on_top(other.files),
            taken_out=one.taken_out.on_top(other.taken_out),
        )
    return one


def _patched(patch: Patch, folder: Path, here: Path, before: FileChanges | None) -> Candidate:
    changes, backward = apply_patch(patch, folder, here, before)
    title = f"--patch {patch.name}"
    return Candidate(title, taken_out=changes) if backward else Candidate(title, files=changes)


def _variable(text: str) -> dict[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not _VARIABLE.fullmatch(name):
        raise UsageError(f"--env {text!r}: write NAME=VALUE, such as --env OMP_NUM_THREADS=4")
    if name.startswith(VARIABLE_PREFIX):
        raise UsageError(f"--env {text!r}: flatout sets the variables {VARIABLE_PREFIX}… itself; leave it out")
    if name == "PYTHONPATH":  # the folder that loads the probe stays in front
        return {name: f"{PROBE_FOLDER}:{value}"}
    return {name: value}


def _command(text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--command {text!r}: {error}; close its quotes") from None
    if not words:
        raise UsageError('--command is empty: write it in quotes, such as --command "python train_b.py"')
    return check_command(words, "flatout try")


def _config_key(text: str, words: Sequence[str], folder: Path, before: FileChanges) -> FileChanges:
    """The command's config file with another value."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--config-key {text!r}: write KEY=VALUE, such as --config-key optimizer.lr=0.01")
    paths = {Path(word.partition("=")[2] or word) for word in words if word.lower().endswith(_CONFIGS)}
    files = sorted(path for path in paths if path.is_file())
    if not files:
        raise UsageError(
            f"--config-key {text!r}: the command names no config file that exists ({', '.join(_CONFIGS)}): "
            "a key can only be changed in one"
        )
    configs = {path: _read(path, before) for path in files}
    found = {path: name for path, config in configs.items() for name in _matching(key, config)}
    names = [name for config in configs.values() for name in _matching(key, config)]
    if len(names) > 1:
        raise UsageError(f"--config-key {text!r}: could be {' or '.join(names)}: write the whole key")
    if not found:
        known = list(dict.fromkeys(name for config in configs.values() for name in config.values))
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:8])}"
        raise UsageError(f"--config-key {text!r}: no such key in {', '.join(map(str, files))}; {hint}")
    ((path, name),) = found.items()
    present, wanted = configs[path].values[name], _value(value)
    if present == wanted and isinstance(present, bool) == isinstance(wanted, bool):
        raise UsageError(f"--config-key {text!r}: {name} is {value} already in {path}: give another value")
    return write_copy(folder, path, configs[path].edited({name: wanted}))


def _read(path: Path, before: FileChanges) -> Config:
    """The config as it is after earlier changes, which have the same name."""
    now = before.now(path)
    return read_config(now if now is not None else path)


# untested: only by serial tests, which run without coverage.py
def _matching(key: str, config: Config) -> list[str]:
    """The key itself, or the keys whose last part it is."""
    return [key] if key in config.values else [name for name in config.values if name.rpartition(".")[2] == key]


def _value(text: str) -> Any:
    """A number, a truth value or null where it reads as one; else the text itself."""
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
