"""Cut the picture to its final size before working on its pixels."""

from __future__ import annotations

from flatout.measure.loader_stats import TransformCost
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import DATA, Context, Proposal, RemedySpec

# A step that leaves more than this part of the pixels is not worth moving.
_SHRINKS = 0.5
# The cost of a transform that keeps the size grows with the pixels; what every call costs whatever its size is not
# known: the lower bound grants this much of the saving.
_LEAST_SAVED = 0.75


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or not len(loading.item_s):
        return None
    found = too_early(loading.transforms)
    if found is None:
        return None
    cut, before = found
    saved_s = sum(part.calls * part.mean_s * (1.0 - cut.pixels_out / part.pixels_in) for part in before)
    share = min(saved_s / float(loading.item_s.mean()), 1.0)
    names = ", ".join(part.name for part in before)
    return Proposal(
        title=f"put {cut.name} before {names}",
        change=Change(fetch_cpu_factor=1.0 - share),
        least=Change(fetch_cpu_factor=1.0 - _LEAST_SAVED * share),
        how=f"Compose([{cut.name}(...), {', '.join(f'{part.name}(...)' for part in before)}, ...])",
        basis=(
            f"the measured time of each transform, and pixels from {before[0].pixels_in:,.0f} "
            f"to {cut.pixels_out:,.0f}; takes their cost to grow with the pixels"
        ),
        memory_bytes=0,
    )


def too_early(parts: tuple[TransformCost, ...]) -> tuple[TransformCost, list[TransformCost]] | None:
    """The first part that shrinks the picture, with the size-keeping ones before it; None when there are none.

    Args:
        parts: the pipeline, in order.
    """
    before: list[TransformCost] = []
    for part in parts:
        if part.pixels_in and part.pixels_out and part.pixels_out <= _SHRINKS * part.pixels_in:
            return (part, before) if before else None
        if part.pixels_in and part.pixels_out == part.pixels_in:
            before.append(part)
    return None


ENTRY = RemedySpec("crop_first", ("cpu_transform",), DATA, "low", _propose)
