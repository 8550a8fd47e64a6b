"""Which files are a case: its image, its labels, and where there are none.

Three ways to lay them out are known: ``images/`` and ``labels/`` (also imagesTr and labelsTr, train_images and
train_labels, ignores), a folder a case with ``image`` and ``label`` in it, and volumes beside each other, of which
those named ``…_label`` (mask, seg, ignore) belong to the volume named before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from flatout.errors import UsageError
from flatout.volumes.sources.chunked import ZARR_FILES
from flatout.volumes.sources.open import KNOWN, suffix_of
from flatout.volumes.sources.tif import SUFFIXES as TIF_SUFFIXES

IMAGE, LABEL, IGNORE = "image", "label", "ignore"
_ROLES = {
    LABEL: {"label", "labels", "labelstr", "mask", "masks", "seg", "segs", "segmentation", "segmentations", "gt"}
    | {"train_labels", "annotations", "inklabels"},
    IGNORE: {"ignore", "ignores", "ignored", "unlabelled", "unlabeled"},
    IMAGE: {"image", "images", "imagestr", "img", "imgs", "raw", "volume", "volumes", "train_images", "ct", "data"},
}
_CHANNEL = re.compile(r"_0000$")  # nnU-Net's name of the first channel


@dataclass(frozen=True)
class Case:
    """Names below the source's root.

    Attributes:
        label: None: there are no labels.
        ignore: volume whose voxels other than 0 have no label; None: there is none.
    """

    id: str
    image: str
    label: str | None = None
    ignore: str | None = None


def find_cases(names: Iterable[str], is_slice: Callable[[str], bool] = lambda name: True) -> list[Case]:
    """Find the cases.

    Args:
        names: of all files below the root, with forward slashes.
        is_slice: says of a tif file whether it has one page; the files beside it are then slices of one volume.

    Raises:
        UsageError: no volume is there, a case has two images, or labels belong to no image.
    """
    volumes = _volumes(list(names), is_slice)
    if not volumes:
        raise UsageError(f"no volume is there: known are {KNOWN}")
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name in volumes:
        case, role = _case_and_role(name)
        if role in found[case]:
            raise UsageError(
                f"{name} and {found[case][role]} are both the {role} of case {case or '.'}: keep one of them"
            )
        found[case][role] = name
    cases = []
    for case, roles in sorted(found.items(), key=lambda item: _natural(item[0])):
        if IMAGE not in roles:
            alone = next(iter(roles.values()))
            raise UsageError(
                f"{alone}: there is no image of case {case or '.'} for it: name both alike, or take it away"
            )
        cases.append(Case(case or "volume", roles[IMAGE], roles.get(LABEL), roles.get(IGNORE)))
    return cases


def _volumes(names: list[str], is_slice: Callable[[str], bool]) -> list[str]:
    """Files and folders that are one volume each."""
    stores = {str(PurePosixPath(name).parent) for name in names if PurePosixPath(name).name in ZARR_FILES}
    volumes: set[str] = set()
    tifs: dict[str, list[str]] = defaultdict(list)
    for name in names:
        path = PurePosixPath(name)
        above = [str(parent) for parent in reversed(path.parents)]
        store = next((folder for folder in above if folder in stores), None)
        if store is not None:  # the outermost: an OME picture, not its levels
            volumes.add(store)
        elif any(part.startswith(".") for part in path.parts):
            continue
        elif name.lower().endswith(TIF_SUFFIXES):
            tifs[str(path.parent)].append(name)
        elif suffix_of(name):
            volumes.add(name)
    for folder, files in tifs.items():
        if len(files) > 1 and is_slice(min(files)):
            volumes.add(folder)
        else:
            volumes.update(files)
    return sorted(volumes)


def _case_and_role(name: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    stem = path.name.removesuffix(path.name[len(path.name) - len(suffix_of(path.name)) :] or "\0")
    parts = [*path.parts[:-1], _CHANNEL.sub("", stem)]
    for role, words in _ROLES.items():
        # The nearest part that says what it is: images/a, a/image, or a_label.
        for at in range(len(parts) - 1, -1, -1):
            if parts[at].lower() in words:
                return "/".join(parts[:at] + parts[at + 1 :]), role
        head, _, tail = parts[-1].rpartition("_")
        if head and tail.lower() in words:
            return "/".join([*parts[:-1], head]), role
    return "/".join(parts), IMAGE


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
