"""Patch and batch of a segmentation of volumes for a card: the largest patch of which a batch of two fits.

The memory of a step is tracked on tensors without content (``flatout.segmentation.fake_step``), for each patch that is
looked at; what grows with the batch is told by the kinds of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatout.errors import UsageError
from flatout.predict.step_memory import CONTEXT_BYTES, FRAGMENTATION, StepMemory, fit_steps
from flatout.recipes.optimization import optimizer_states
from flatout.recipes.volume_pipeline import build_network
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.fake_step import tracked_step
from flatout.segmentation.networks import LEAST_SIDE, Size
from flatout.units import size

SIDES = (32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
LEAST_BATCH = 2  # normalisation and Dice of one patch alone are noisy
USED = 0.9  # of a card: drivers and error correction keep some of it
# A step sees at most this share of all voxels, as in nnU-Net: more would be the same ones again and again.
MOST_SEEN = 0.05
MOST_LEFT = 16  # voxels along an axis at the network's lowest resolution: what is farther apart it sees apart


@dataclass(frozen=True)
class PatchChoice:
    """What fits, and why.

    Attributes:
        patch: voxels (z, y, x).
        batch_size: patches a step.
        stages: of the network; fewer than the recipe's where the patch cannot be halved that often.
        needed_bytes: of the card, predicted.
        lines: the arithmetic.
    """

    patch: Size
    batch_size: int
    stages: int
    needed_bytes: int
    lines: tuple[str, ...]


def choose_patch(
    recipe: VolumeRecipe,
    card: str,
    memory_bytes: int,
    *,
    classes: int = 2,
    shapes: Sequence[Size] = (),
    report: Callable[[str], None] = lambda line: None,
) -> PatchChoice:
    """Choose patch and batch for a card.

    Args:
        recipe: whose network, optimizer and precision count.
        card: its name, for the arithmetic.
        memory_bytes: in all.
        classes: of the labels.
        shapes: of the volumes, voxels; none: not known, patches are cubes.
        report: called with each patch that is looked at.

    Raises:
        UsageError: not even the smallest patch fits.
    """
    room = int(USED * memory_bytes)
    largest = MOST_LEFT << len(recipe.network.features) - 1
    patches = sorted({_within(side, shapes) for side in SIDES if side <= largest}, key=math.prod)
    lines = [f"{card}: {size(memory_bytes)}, of which {USED:.0%} are used: {size(room)}"]
    seen: dict[Size, tuple[StepMemory, int]] = {}

    def fits(number: int) -> bool:
        patch = patches[number]
        if patch not in seen:
            report(f"a step on {LEAST_BATCH} patches of {_size(patch)} voxels, tracked")
            seen[patch] = _memory(recipe, patch, classes)
            line, stages = seen[patch]
            lines.append(
                f"{_size(patch)}, {stages} stages: {size(line.passes.base_bytes)} + {size(line.passes.slope_bytes)} x"
                f" batch of tensors: at most {line.largest(room):,}"
            )
        return seen[patch][0].largest(room) >= LEAST_BATCH

    if not fits(0):
        raise UsageError(
            f"--gpu {card}: not even {LEAST_BATCH} patches of {_size(patches[0])} voxels fit: give the recipe fewer"
            " network.features, or set network.gradient_checkpointing"
        )
    low, high = 0, len(patches) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    patch = patches[low]
    line, stages = seen[patch]
    batch = line.largest(room)
    voxels = sum(map(math.prod, shapes))
    if voxels:
        batch = max(min(batch, int(MOST_SEEN * voxels // math.prod(patch))), LEAST_BATCH)
    needed = line.at(batch)
    lines.append(
        f"chosen: {batch} of {_size(patch)}: {size(needed)}, predicted, with {FRAGMENTATION - 1:.0%} for fragmentation"
        f" and {size(CONTEXT_BYTES)} for CUDA; never measured on this card"
    )
    return PatchChoice(patch, batch, stages, needed, tuple(lines))


def _within(side: int, shapes: Sequence[Size]) -> Size:
    """A cube, cut to the median volume, rounded up to what can be halved four times."""
    middle = [sorted(shape[axis] for shape in shapes)[len(shapes) // 2] for axis in range(3)] if shapes else [side] * 3
    z, y, x = (min(side, -(-length // 16) * 16) for length in middle)
    return z, y, x


def with_patch(recipe: VolumeRecipe, patch: Size) -> VolumeRecipe:
    """The recipe on other patches, with as many of its stages as these can be halved for."""
    network = recipe.network
    for stages in range(len(network.features), 0, -1):
        divisor = 2 ** (stages - 1)
        if all(side % min(divisor, _halvings(side)) == 0 for side in patch) and max(patch) >= LEAST_SIDE * divisor:
            break
    cut = network.model_copy(update={"features": network.features[:stages], "blocks": network.blocks[:stages]})
    patches = recipe.patches.model_copy(update={"size": patch})
    return recipe.model_copy(update={"network": cut, "patches": patches})


def _halvings(side: int) -> int:
    """The largest power of two by which a side may be divided and keep ``LEAST_SIDE`` voxels."""
    return 1 << max(int(math.log2(side / LEAST_SIDE)), 0)


def _memory(recipe: VolumeRecipe, patch: Size, classes: int) -> tuple[StepMemory, int]:
    cut = with_patch(recipe, patch)
    half = recipe.training.precision in ("auto", "bf16", "fp16")
    adaptive = optimizer_states(recipe.optimizer) > 1
    step = tracked_step(build_network(cut, classes), classes, patch, LEAST_BATCH, half=half, adaptive=adaptive)
    return fit_steps([step]), len(cut.network.features)


def _size(patch: Size) -> str:
    return f"{patch[0]}³" if len(set(patch)) == 1 else " × ".join(map(str, patch))
