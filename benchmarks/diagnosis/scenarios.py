"""The scripts with their truth, and the variants of one that a seed draws."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ORIGINAL, FIXED, USUAL = "original", "fixed", "usual"
# Sets of scripts, each a folder with a YAML file of the same name.
TUNED = "scripts"
SETS = (TUNED, "unseen", *(f"unseen{number}" for number in range(2, 21)))


@dataclass(frozen=True)
class Scenario:
    """One script; scripts.yaml says what the keys mean."""

    name: str
    kind: str
    cause: str | None = None
    also: tuple[str, ...] = ()
    second: str | None = None
    draw: dict[str, list[int]] = field(default_factory=dict)
    serve: dict[str, Any] | None = None
    args: tuple[str, ...] = ()
    fix: dict[str, str] = field(default_factory=dict)
    fix_args: tuple[str, ...] | None = None
    remedy: str | None = None
    usual: dict[str, str] = field(default_factory=dict)
    ranks: int = 0
    crowd: int = 0
    folder: str = TUNED

    @property
    def healthy(self) -> bool:
        """Nothing was planted."""
        return self.cause is None

    @property
    def on_framework(self) -> bool:
        """Whether the loop is Lightning's or transformers', which some tools see without a change of code."""
        text = (HERE / self.folder / self.name).with_suffix(".py").read_text()
        return "pytorch_lightning" in text or "transformers" in text

    def variants(self) -> list[str]:
        """What can be run of it."""
        fixable = self.fix or self.fix_args is not None
        return [ORIGINAL, *([FIXED] if fixable else []), *([USUAL] if self.usual else [])]

    def numbers(self, seed: int) -> dict[str, int]:
        """Constant -> its value under a seed; delay_ms and mbps are the server's."""
        draw = random.Random(f"{self.name} {seed}")
        ranges = {**self.draw, **{key: value for key, value in (self.serve or {}).items() if key != "folder"}}
        return {key: draw.randint(*value) if len(value) == 2 else draw.choice(value) for key, value in ranges.items()}

    def write(self, folder: Path, seed: int, variant: str) -> Path:
        """Write the script, with a seed's constants and a variant's changes; gives back the file to run.

        Raises:
            ValueError: a constant or a text to replace is not there, so the truth does not fit the script.
        """
        source = HERE / self.folder / self.name
        if source.parent != HERE / self.folder:
            shutil.copytree(source.parent, folder, dirs_exist_ok=True)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source.with_suffix(".py"), folder)
        texts = {path: path.read_text() for path in folder.glob("*.py")}
        for name in self.draw:
            self._replace(texts, re.compile(rf"^{name} = .*$", re.MULTILINE), f"{name} = {self.numbers(seed)[name]}")
        for old, new in {ORIGINAL: {}, FIXED: self.fix, USUAL: self.usual}[variant].items():
            self._replace(texts, re.compile(re.escape(old)), new)
        for path, text in texts.items():
            path.write_text(text)
        return folder / f"{source.name}.py"

    def _replace(self, texts: dict[Path, str], old: re.Pattern[str], new: str) -> None:
        found = [path for path, text in texts.items() if old.search(text)]
        if len(found) != 1:
            raise ValueError(f"{self.name}: {old.pattern!r} is in {len(found)} files")
        texts[found[0]] = old.sub(lambda _: new, texts[found[0]])


def load(folder: str = TUNED) -> list[Scenario]:
    """All of one set, in the order of its YAML file."""
    entries = yaml.safe_load((HERE / f"{folder}.yaml").read_text())
    lists = ("also", "args", "fix_args")
    return [
        Scenario(
            name,
            folder=folder,
            **{key: tuple(value) if key in lists else value for key, value in entry.items() if key != "fault"},
        )
        for name, entry in entries.items()
    ]
