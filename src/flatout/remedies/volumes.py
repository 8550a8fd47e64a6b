"""Remedies for trainings on patches of volumes: what a patch is read from, and where it is augmented."""

from __future__ import annotations

import shlex

from flatout.formats.volume_chunks import chunk_edge, touched_ratio
from flatout.measure.array_reads import patch_shape
from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import TRANSFORM_GROUPS, read_ratio, reading_less, unpacked_ratio, without_groups
from flatout.remedies.proposal import DATA, IDENTICAL, Proposal, remedy
from flatout.results import Cause

# A reader of chunks costs up to twice a copy of what it touches (docs/measurements/volumes.md).
_CHUNK_READER = 2.0


def cut_from_volumes(loader: LoaderStats) -> bool:
    """True if samples are patches with depth, of volumes that libraries were seen to read whole."""
    return patch_shape(loader.delivery) is not None and unpacked_ratio(loader) is not None


@remedy(("read_amplification",), IDENTICAL, risk="medium")
def staged_volumes(context: Context, cause: Cause) -> Proposal | None:
    """Convert whole volumes once into chunks that a patch is read from."""
    loader = context.run.loading
    if loader is None or not cut_from_volumes(loader):
        return None
    patch, ratio = patch_shape(loader.delivery) or (), unpacked_ratio(loader) or 0.0
    ratio = max(ratio, read_ratio(context.run, loader) or 0.0)
    touched = touched_ratio(patch, (chunk_edge(patch),) * 3)
    if ratio <= touched * _CHUNK_READER:
        return None
    source = shlex.quote(loader.storage.data_folder or "FOLDER")
    edges = ",".join(map(str, patch)) if len(set(patch)) > 1 else str(patch[0])
    return Proposal(
        title="convert the volumes once into chunks that a patch can be read from",
        change=reading_less(loader, 1.0 - touched * _CHUNK_READER / ratio),
        # Another disk, or zstd: a fourth of what reading and unpacking take now stays.
        least=reading_less(loader, min(0.75, 1.0 - touched * _CHUNK_READER / ratio)),
        most=reading_less(loader, 1.0 - 1.0 / ratio),
        how=f"flatout stage {source} DEST --volumes --patch {edges}; then flatout.volumes.open_volume(path)"
        ".read(z, y, x, dz, dy, dx) instead of the whole file",
        basis=f"measured time of reading and unpacking, which shrinks from {ratio:.0f} times a patch to "
        f"{touched:.2g} times (computed), read at up to twice the cost of a copy; at worst a fourth of it stays",
        memory_bytes=0,
    )


@remedy(("cpu_transform",), DATA, risk="medium")
def device_augmentation(context: Context, cause: Cause) -> Proposal | None:
    """Augment batches of patches on the GPU; workers only cut them out."""
    loader = context.run.loading
    if loader is None or not context.run.uses_gpu or patch_shape(loader.delivery) is None:
        return None
    return Proposal(
        title="augment batches of patches on the GPU; let workers only cut them out",
        change=without_groups(loader, TRANSFORM_GROUPS, 0.9),
        least=without_groups(loader, TRANSFORM_GROUPS, 0.5),
        most=without_groups(loader, TRANSFORM_GROUPS),
        how="images, labels = images.to(device), labels.to(device); flatout.segmentation.augment.augment(images, "
        "labels, draws, ignore), or a recipe: flatout recipes volume-residual-unet",
        basis="measured share of transforms; assumes that a tenth of it stays on the CPU, at worst half; "
        "what the GPU then takes for it is not included",
        memory_bytes=0,
    )
