"""Masks of dropout that take less time to draw."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward
from flatout.remedies.proposal import DATA, Proposal, remedy
from flatout.results import Cause

_LEAST_CALLED = 0.5  # of the time that masks take, by calls that the setting replaces


@remedy(("dropout_masks",), DATA, risk="low")
def quick_dropout(context: Context, cause: Cause) -> Proposal | None:
    """Cut whole words of random bits into elements, in place of a random number for each."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.masks is None:
        return None
    masks = operators.masks
    by_setting = masks.called >= _LEAST_CALLED
    part = masks.called if by_setting else 1.0
    return Proposal(
        title="draw the masks of dropout from fewer random bits",
        change=less_in_forward(context, operators.in_kernels_s(part * masks.saved_s)),
        least=less_in_forward(context, operators.in_kernels_s(0.6 * part * masks.saved_s)),
        most=less_in_forward(context, operators.in_kernels_s(masks.seconds)),
        how="words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-2**63, None); "
        "keep = words.view(torch.int16)[:x.numel()].view(x.shape) >= round(p * 65536) - 32768; x * keep / (1 - p). "
        "Other random numbers, of the same distribution to 1/65536",
        settings={"quick_dropout": True} if by_setting else None,
        basis="measured time of bernoulli_ in the traced steps, and of both ways on this device",
        memory_bytes=0,
    )
