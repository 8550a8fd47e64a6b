"""``volumes.json``: the list of what was staged, written last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple

FILE = "volumes.json"


@dataclass(frozen=True)
class StagedCase:
    """A volume with its labels; paths are relative to the data set's folder.

    Attributes:
        label: None where there are no labels.
        foreground: the counts of classes by block; None where there are no labels.
    """

    id: str
    image: str
    label: str | None
    shape: Triple
    spacing: tuple[float, float, float]
    foreground: str | None


@dataclass(frozen=True)
class StagedSet:
    """A staged data set.

    Attributes:
        intensity: mean, std, p0_5, p99_5, min and max of the images' voxels.
        classes: values of the labels in the order of their columns in the foreground index, 0 first.
        ignore: value of voxels without a label; None: all have one.
        block: edges of the blocks of the foreground index, voxels.
    """

    folder: Path
    cases: tuple[StagedCase, ...]
    intensity: dict[str, float]
    classes: tuple[int, ...]
    ignore: int | None
    block: Triple = (32, 32, 32)

    def write(self) -> None:
        """Write the list."""
        content = {
            "cases": [asdict(case) for case in self.cases],
            "intensity": self.intensity,
            "classes": list(self.classes),
            "ignore": self.ignore,
            "block": list(self.block),
        }
        write_atomically(self.folder / FILE, json.dumps(content, indent=1) + "\n")


def read_staged(folder: str | Path) -> StagedSet:
    """Read the list of a staged data set.

    Raises:
        UsageError: there is none (the staging did not end), or it is damaged.
    """
    path = Path(folder) / FILE
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        cases = tuple(_case(case) for case in found["cases"])
        ignore = None if found["ignore"] is None else int(found["ignore"])
        classes = tuple(int(value) for value in found["classes"])
        z, y, x = (int(edge) for edge in found["block"])
        intensity = {name: float(value) for name, value in found["intensity"].items()}
    except FileNotFoundError:
        raise UsageError(f"{path}: there is none: stage by flatout stage SOURCE {folder} --volumes") from None
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: it cannot be read ({error!r}): stage again, complete volumes are kept") from None
    return StagedSet(Path(folder), cases, intensity, classes, ignore, (z, y, x))


def _case(found: dict[str, Any]) -> StagedCase:
    z, y, x = (int(size) for size in found["shape"])
    sz, sy, sx = (float(size) for size in found["spacing"])
    for name in ("id", "image", "label", "foreground"):
        if found[name] is not None and (Path(found[name]).is_absolute() or ".." in Path(found[name]).parts):
            raise ValueError(f"{name} points out of the folder: {found[name]}")
    return StagedCase(str(found["id"]), found["image"], found["label"], (z, y, x), (sz, sy, sx), found["foreground"])
