"""Stages volumes: converts each once, reads it back, and lists all in ``volumes.json``, which is written last."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.formats.volume_chunks import touched_ratio
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.overlap import refuse_shared
from flatout.stage.destination.space import check_room
from flatout.stage.progress import Progress
from flatout.volumes.array_folders import (
    COUNTS,
    NOTE,
    claim,
    complete_layout,
    make_folder,
    partial_folder,
    reopen,
    replace_folder,
    resumed_layout,
    size_of,
    source_hash,
)
from flatout.volumes.cases import IMAGE, LABEL, Case, hidden_volumes
from flatout.volumes.convert import convert
from flatout.volumes.layout import METADATA, Layout, read_layout
from flatout.volumes.patch_reader import ShardedVolume
from flatout.volumes.plan import (
    Planned,
    SourceFile,
    VolumeOptions,
    chosen_codec,
    names_below,
    plan,
    plan_case,
    with_own_labels,
)
from flatout.volumes.readback import (
    LabelCounts,
    compare_files,
    compare_source,
    damaged_shards,
    intensities,
    label_counts,
)
from flatout.volumes.slabs import Slabs, staged_ignore
from flatout.volumes.sources.open import may_hold_labels
from flatout.volumes.staged import StagedCase, StagedSet
from flatout.volumes.statistics import Intensities, summarize
from flatout.volumes.stored_cases import StoredCases

FOREGROUND = "foreground.npy"
FETCHED = ".source"  # below the destination: files of the case that is being converted


@dataclass
class VolumeProgress:
    """Counters of a staging that is running; voxels of all arrays."""

    total: int = 0
    written: int = 0
    kept: int = 0
    checked: int = 0
    began: float = 0.0


@dataclass(frozen=True, kw_only=True)
class VolumeSummary:
    """The result of a staging of volumes."""

    source: str
    destination: str
    n_cases: int
    n_labelled: int
    n_arrays: int
    n_arrays_kept: int  # of these, complete already
    voxels: int
    staged_bytes: int
    classes: tuple[int, ...]
    ignore: int | None
    intensity: dict[str, float]
    patch: tuple[int, int, int]
    chunk: tuple[int, int, int]
    read_per_patch_byte: float  # computed: bytes of the chunks a random patch touches
    codecs: dict[str, int]  # arrays by their packing
    duration_s: float

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def stage_volumes(
    root: Path | StoredCases,
    destination: Path,
    options: VolumeOptions,
    show: Callable[[VolumeProgress], None],
    report: Callable[[str], None],
    show_copy: Callable[[Progress], None] = lambda progress: None,
) -> VolumeSummary:
    """Convert what is not converted yet.

    Args:
        root: folder of cases, a file, or cases that are fetched one after the other.
        destination: folder; made if it is missing.
        options: of the staging.
        show: called as it goes on.
        report: called with lines that stay.
        show_copy: called while a case is fetched.

    Raises:
        UsageError: of the source.
        DiskFull: there is no room. Whole shards are kept.
        StagingFailed: what was written reads back otherwise, or a case could not be fetched.
    """
    began = time.monotonic()
    planned = list(plan(root, options)) if isinstance(root, Path) else []
    if isinstance(root, Path):
        refuse_shared(root, destination)
        hidden = hidden_volumes(names_below(root)) if root.is_dir() else []
        if hidden:
            report(f"left out, as hidden: {hidden[0]}" + (f" and {len(hidden) - 1:,} more" if hidden[1:] else ""))
    make_folder(destination)
    with destination_lock(destination, options.wait, report):
        claim(destination)
        progress = VolumeProgress(total=sum(part.voxels for part in planned), began=began)
        staging = _Staging(destination, options, progress, show, report)
        if isinstance(root, Path):
            staging.need_room(planned)
            for part in planned:
                staging.array(part)
        else:
            for case in root.cases:
                planned += staging.stored_case(root, case, show_copy)
            shutil.rmtree(destination / FETCHED, ignore_errors=True)
        staged = staging.finish(planned)
    layouts = [part.layout for part in staging.done]
    return VolumeSummary(
        source=str(root) if isinstance(root, Path) else root.address,
        destination=str(destination),
        n_cases=len(staged.cases),
        n_labelled=sum(case.label is not None for case in staged.cases),
        n_arrays=len(planned),
        n_arrays_kept=staging.n_kept,
        voxels=sum(part.voxels for part in planned if part.role == IMAGE),
        staged_bytes=sum(size_of(destination / part.folder) for part in planned),
        classes=staged.classes,
        ignore=staged.ignore,
        intensity=staged.intensity,
        patch=options.patch,
        chunk=layouts[0].chunk,
        read_per_patch_byte=touched_ratio(options.patch, layouts[0].chunk),
        codecs={name: sum(layout.codec == name for layout in layouts) for name in {x.codec for x in layouts}},
        duration_s=time.monotonic() - began,
    )


class _Staging:
    """The steps of one staging."""

    def __init__(
        self,
        destination: Path,
        options: VolumeOptions,
        progress: VolumeProgress,
        show: Callable[[VolumeProgress], None],
        report: Callable[[str], None],
    ) -> None:
        self.destination, self.options = destination, options
        self.progress, self._show, self._report = progress, show, report
        self.n_kept = 0
        self.done: list[Planned] = []

    def need_room(self, planned: list[Planned]) -> None:
        """Refuse a staging for which there is no room, before anything is written."""
        needed = 0
        for part in planned:
            there = 0
            for folder in (self.destination / part.folder, partial_folder(self.destination / part.folder)):
                there += size_of(folder)
            needed += max(part.voxels * part.layout.dtype.itemsize - there, 0)
        check_room(self.destination, needed, self.options.min_free, "choose another disk, or stage fewer volumes")

    def stored_case(self, source: StoredCases, case: Case, show_copy: Callable[[Progress], None]) -> list[Planned]:
        """Fetch a case and convert it, unless it is complete; its files are removed at the end."""
        files = source.files(case)
        planned = self._complete_case(case, files)
        if not planned:
            folder = self.destination / FETCHED / case.id
            source.fetch(case, folder, show_copy, self._report)
            found = plan_case(folder, with_own_labels(folder, case), self.options)
            planned = [replace(part, files=files) for part in found]
            self.need_room(planned)
        self.progress.total += sum(part.voxels for part in planned)
        for part in planned:
            self.array(part)
        shutil.rmtree(self.destination / FETCHED / case.id, ignore_errors=True)
        return planned

    def _complete_case(self, case: Case, files: tuple[SourceFile, ...]) -> list[Planned]:
        """The arrays of a case as they were staged; empty: one is missing, or made from other files or options."""
        has_own_labels = (self.destination / case.id / f"{LABEL}.zarr").exists()
        if case.label is None and may_hold_labels(case.image):
            if not has_own_labels:  # only the file shows whether there are any
                return []
            case = replace(case, label=case.image)
        found = []
        for role in (IMAGE, LABEL) if case.label is not None else (IMAGE,):
            folder = self.destination / case.id / f"{role}.zarr"
            try:
                was = read_layout(folder)
            except (OSError, ValueError, KeyError, TypeError, UsageError):
                was = None
            if was is None:
                return []
            layout = Layout.of(was.shape, was.dtype, self.options.patch, spacing=was.spacing)
            part = Planned(folder, case, role, layout, self.options, files)
            complete = complete_layout(folder, source_hash(part))
            if complete is None or damaged_shards(folder, complete):
                return []
            found.append(part)
        return found

    def array(self, part: Planned) -> None:
        """Convert an array, unless it is complete."""
        folder = self.destination / part.folder
        note = source_hash(part)
        layout = complete_layout(folder, note)
        damaged = damaged_shards(folder, layout) if layout is not None else []
        if damaged:
            self._report(
                f"{damaged[0]}: it is missing or not what was staged"
                + (f", and {len(damaged) - 1:,} more" if damaged[1:] else "")
                + ": written anew"
            )
            reopen(folder, damaged)
            layout = None
        if layout is not None:
            self.n_kept += 1
            self.progress.kept += part.voxels
            self.progress.checked += part.voxels
        else:
            with part.slabs() as slabs:
                layout = self._convert(part, slabs, note)
            replace_folder(partial_folder(folder), folder)
        self.done.append(replace(part, layout=layout))

    def _convert(self, part: Planned, slabs: Slabs, note: str) -> Layout:
        partial = partial_folder(self.destination / part.folder)
        layout = resumed_layout(partial, note)
        if layout is None:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            layout = replace(part.layout, codec=chosen_codec(slabs, part.layout, self.options))
            write_atomically(partial / METADATA, json.dumps(layout.as_zarr(), indent=1) + "\n")
            write_atomically(partial / NOTE, json.dumps({"source": note}) + "\n")
        crcs = convert(slabs, partial, layout, self.options.memory_bytes, self._written)
        compare_files(partial, layout, crcs)
        volume = ShardedVolume(partial, layout)
        compare_source(slabs, volume)
        if part.role == IMAGE:
            intensities(volume, self._checked).save(partial / COUNTS)
        else:
            label_counts(volume, self._checked).save(partial / COUNTS)
        return layout

    def finish(self, planned: list[Planned]) -> StagedSet:
        """Write the indexes of the labels and the list."""
        labels = {
            part.case.id: LabelCounts.load(self.destination / part.folder / COUNTS)
            for part in planned
            if part.role == LABEL
        }
        ignore = staged_ignore(self.options.ignore, any(part.case.ignore for part in planned))
        found = {value for counts in labels.values() for value in counts.values} - {ignore}
        classes = (0, *sorted(found - {0})) if labels else ()
        for name, counts in labels.items():
            rows = counts.index(classes)
            if not len(rows):
                raise UsageError(f"case {name}: every voxel of its labels is ignored ({ignore}): take its labels away")
            path = self.destination / name / FOREGROUND
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            np.save(path, rows)
        parts = {(part.case.id, part.role): part for part in planned}
        cases = tuple(
            StagedCase(
                part.case.id,
                part.folder,
                f"{part.case.id}/{LABEL}.zarr" if (part.case.id, LABEL) in parts else None,
                part.layout.shape,
                part.layout.spacing,
                f"{part.case.id}/{FOREGROUND}" if part.case.id in labels else None,
            )
            for part in planned
            if part.role == IMAGE
        )
        # Of what is trained on, where anything is: volumes without labels may be those of a test.
        counted = [part for part in planned if part.role == IMAGE and (part.case.id in labels or not labels)]
        images = [Intensities.load(self.destination / part.folder / COUNTS) for part in counted]
        staged = StagedSet(self.destination, cases, summarize(images), classes, ignore, planned[0].layout.chunk)
        staged.write()
        return staged

    def _written(self, voxels: int) -> None:
        self.progress.written += voxels
        self._show(self.progress)

    def _checked(self, voxels: int) -> None:
        self.progress.checked += voxels
        self._show(self.progress)
