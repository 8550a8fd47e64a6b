"""Config files in YAML, JSON or TOML: their keys, and an edited text that keeps comments and order."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.extras import require


@dataclass(frozen=True)
class Config:
    """A config file.

    Attributes:
        path: of the file.
        text: as it was read.
        values: dotted key -> value, scalars only, in order.
    """

    path: Path
    text: str
    values: Mapping[str, Any]

    def edited(self, changes: Mapping[str, Any]) -> str:
        """The text with other values.

        Args:
            changes: dotted key -> value; every key is one of ``values``.
        """
        tree = _parse(self.path, self.text)
        for key, value in changes.items():
            *parents, last = key.split(".")
            owner = tree
            for parent in parents:
                owner = owner[int(parent)] if isinstance(owner, list) else owner[parent]
            owner[int(last) if isinstance(owner, list) else last] = value
        return _written(self.path, tree, self.text)


def read_config(path: Path) -> Config:
    """Read a file.

    Raises:
        UsageError: the file is not of the three kinds, or cannot be read.
    """
    if path.suffix.lower() not in (".yaml", ".yml", ".json", ".toml"):
        raise UsageError(f"--config {path}: a .yaml, .yml, .json or .toml file is needed")
    if path.suffix.lower() != ".json":
        require("config")
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"--config {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--config {path}: cannot be read ({error})") from None
    tree = _parse(path, text)
    if not isinstance(tree, Mapping):
        raise UsageError(f"--config {path}: holds no keys")
    return Config(path, text, dict(_flat(tree)))


def _flat(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    pairs = enumerate(tree) if isinstance(tree, list) else tree.items()
    found: list[tuple[str, Any]] = []
    for key, value in pairs:
        if isinstance(value, Mapping | list):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _parse(path: Path, text: str) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text)
        if path.suffix.lower() == ".toml":
            import tomlkit

            return tomlkit.parse(text)
        return _yaml().load(text)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # each parser has its own exception
        raise UsageError(f"--config {path}: cannot be parsed: {' '.join(str(error).split())}") from None


def _written(path: Path, tree: Any, before: str) -> str:
    if path.suffix.lower() == ".json":
        indent = next((len(line) - len(line.lstrip()) for line in before.splitlines() if line.startswith(" ")), None)
        return json.dumps(tree, indent=indent) + "\n"
    if path.suffix.lower() == ".toml":
        import tomlkit

        return tomlkit.dumps(tree)
    stream = io.StringIO()
    _yaml().dump(tree, stream)
    return stream.getvalue()


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096  # do not rewrap lines
    return yaml
