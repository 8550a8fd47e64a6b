"""Which files are a case: its image, its labels, and where there are none.

Three ways to lay them out are known: ``images/`` and ``labels/`` (also imagesTr and labelsTr, train_images and
train_labels, ignores), a folder a case with ``image`` and ``label`` in it, and volumes beside each other, of which
those named ``…_label`` (mask, seg, ignore) belong to the volume named before, and ``segmentation-…`` to ``volume-…``.
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
_OTHER_CHANNEL = re.compile(r"(.+)_00\d\d$")
_PREFIXED = re.compile(r"([a-zA-Z]+)[-_](.+)$")  # LiTS: volume-0, segmentation-0


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
    prefixed = {case for case, role in map(_prefixed, volumes) if role in (LABEL, IGNORE)}
    for name in volumes:
        case, role = _prefixed(name)
        if case not in prefixed:
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
    _refuse_channels(cases)
    return cases


def hidden_volumes(names: Iterable[str]) -> list[str]:
    """Volumes that are not taken, since their name or that of a folder above begins with a dot."""
    hidden = (name for name in names if any(part.startswith(".") for part in PurePosixPath(name).parts))
    # Beside each file, macOS leaves one named ._file on other disks.
    return sorted(name for name in hidden if suffix_of(name) and not PurePosixPath(name).name.startswith("._"))


def _refuse_channels(cases: list[Case]) -> None:
    """Refuse nnU-Net's further channels of a case, which would look like cases without labels."""
    first = {_stem(case.image): case for case in cases if _CHANNEL.search(_stem(case.image))}
    for case in cases:
        channel = _OTHER_CHANNEL.fullmatch(_stem(case.image))
        of = first.get(f"{channel[1]}_0000") if channel else None
        if of is None or of is case or case.label is not None:
            continue
        if of.label is not None or PurePosixPath(case.image).parent.name.lower().startswith("imagest"):
            raise UsageError(
                f"{case.image}: it is another channel of case {of.id}, and several channels cannot be trained: take"
                f" all but one of {of.image} and its like away"
            )


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


def _stem(name: str) -> str:
    """The name with its folders, without its suffix."""
    return name[: len(name) - len(suffix_of(name))] or name


def _prefixed(name: str) -> tuple[str, str]:
    """Case and role of a volume whose name begins with its role, or has none; a folder's role comes first."""
    *folders, last = PurePosixPath(_stem(name)).parts or (name,)
    found = _PREFIXED.fullmatch(last)
    role = _role(found[1]) if found else None
    rest = found[2] if found and role else last
    of_folder = next(filter(None, map(_role, reversed(folders))), None)
    return "/".join([*(part for part in folders if not _role(part)), rest]), of_folder or role or IMAGE


def _role(word: str) -> str | None:
    return next((role for role, words in _ROLES.items() if word.lower() in words), None)


def _case_and_role(name: str) -> tuple[str, str]:
    path = PurePosixPath(_stem(name))
    parts = [*path.parts[:-1], _CHANNEL.sub("", path.name)]  # ".": the root is one volume
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
