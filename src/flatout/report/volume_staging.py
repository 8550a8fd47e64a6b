"""Stagings of volumes as lines for a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flatout.terminal_text import folded, one_line
from flatout.units import duration, size

if TYPE_CHECKING:
    from flatout.volumes.outlook import VolumeOutlook
    from flatout.volumes.readback import VolumeCheck
    from flatout.volumes.staging import VolumeProgress, VolumeSummary

SHOWN = 20  # damaged files
_LEAST_SHARE = 0.02  # of the voxels, before the time left is estimated


def state_line(progress: VolumeProgress) -> str:
    """One line of at most 80 columns: voxels done, rate, time left."""
    seconds = max(time.monotonic() - progress.began, 1e-9)
    done = progress.written + progress.checked  # each voxel is written, and read back
    total = 2 * (progress.total - progress.kept)
    new = done - progress.kept
    share = new / total if total else 1.0
    text = f"{share:.0%} of {_voxels(progress.total)}  {new / 2e6 / seconds:,.0f} million/s"
    if share > _LEAST_SHARE:
        text += f"  {duration(seconds * (1 - share) / share)} left"
    return text


def summary_lines(summary: VolumeSummary) -> str:
    """The result of a staging."""
    kept = f"; arrays complete already: {summary.n_arrays_kept}" if summary.n_arrays_kept else ""
    lines = [
        f"{_volumes(summary.n_cases)} staged in {duration(summary.duration_s)}, {summary.n_labelled} with labels{kept}",
        f"  {one_line(summary.source)} → {one_line(summary.destination)}",
        f"  {_voxels(summary.voxels)} in {size(summary.staged_bytes)}: {_codecs(summary.codecs)}",
        f"  chunks of {_edges(summary.chunk)} for patches of {_edges(summary.patch)}: "
        f"{summary.read_per_patch_byte:.2g} bytes read per byte of a patch (computed)",
    ]
    if summary.classes:
        ignore = f"; {summary.ignore} is ignored" if summary.ignore is not None else ""
        lines.append(f"  labels {', '.join(map(str, summary.classes))}{ignore}")
    found = summary.intensity
    lines.append(
        f"  intensities {found['min']:.6g} to {found['max']:.6g}, mean {found['mean']:.4g}, "
        f"standard deviation {found['std']:.4g}, 99% within {found['p0_5']:.6g} to {found['p99_5']:.6g}"
    )
    if summary.n_arrays_kept < summary.n_arrays:
        lines.append("  every file that was written was read back and compared, three slices once more with the source")
    if summary.n_arrays_kept:
        lines.append("  of arrays that were complete, files that changed since were compared with their checksums")
    return _wrapped(lines)


def outlook_lines(outlook: VolumeOutlook) -> str:
    """The prediction of ``--dry-run``."""
    lines = [
        one_line(outlook.source),
        f"  {_volumes(outlook.n_cases)}, {outlook.n_labelled} with labels, {size(outlook.source_bytes)}"
        + (f": {_voxels(outlook.voxels)}" if outlook.voxels is not None else ""),
    ]
    if outlook.staged_bytes is None or outlook.chunk is None:
        lines.append("  size and time when staged: not known, because the smallest volume is too large to fetch for it")
        lines.append(f"  free at the destination: {size(outlook.free_bytes)}")
        return _wrapped([*lines, "Nothing was converted."])
    packing = f": {_codecs(outlook.codecs)}" if outlook.codecs else ""
    lines += [
        f"  about {size(outlook.staged_bytes)} when staged{packing}",
        f"  free at the destination: {size(outlook.free_bytes)}: {'it fits' if outlook.fits else 'too little'}",
        f"  chunks of {_edges(outlook.chunk)} for patches of {_edges(outlook.patch)}: "
        f"{outlook.read_per_patch_byte:.2g} bytes read per byte of a patch (computed)",
    ]
    if outlook.predicted_s is not None:
        fetched = bool(outlook.fetched_bytes)
        lines.append(
            f"  about {duration(outlook.predicted_s)} to {'fetch, ' if fetched else ''}read and pack them: a prediction"
            f" from {outlook.tried_share:.1%} of the voxels; writing and reading back come on top"
        )
        if fetched:
            lines.append(
                f"  the smallest ({size(outlook.fetched_bytes)}) was fetched; the others are predicted by their bytes"
            )
    return _wrapped([*lines, "Nothing was converted."])


def _wrapped(lines: list[str]) -> str:
    return "\n".join(part for line in lines for part in folded(line))


def check_lines(found: VolumeCheck) -> str:
    """The result of ``--check``."""
    lines = [
        f"{found.files:,} files checked in {duration(found.duration_s)}: {len(found.damaged):,} damaged or missing"
    ]
    lines += [f"  {one_line(path)}" for path in found.damaged[:SHOWN]]
    if len(found.damaged) > SHOWN:
        lines.append(f"  and {len(found.damaged) - SHOWN:,} more")
    return "\n".join(lines)


def _volumes(count: int) -> str:
    return f"{count:,} volume{'s' if count != 1 else ''}"


def _edges(edges: tuple[int, int, int]) -> str:
    return f"{edges[0]}³" if len(set(edges)) == 1 else " × ".join(map(str, edges))


def _codecs(codecs: dict[str, int]) -> str:
    words = {"none": "unpacked", "zstd": "packed with zstd"}
    counts = sorted(codecs.items())
    return ", ".join(f"{count:,} array{'s' if count != 1 else ''} {words[name]}" for name, count in counts)


def _voxels(count: int) -> str:
    """Write a number of voxels: "6.45 million voxels", "1.07 billion voxels"."""
    if count >= 1e9:
        return f"{count / 1e9:.3g} billion voxels"
    return f"{count / 1e6:.3g} million voxels" if count >= 1e6 else f"{count:,} voxels"
