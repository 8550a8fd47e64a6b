"""Quicker ways to what a CPU computes one element after the other."""

from __future__ import annotations

from flatout.measure.slow_kernels import SlowKernel, SlowKernels
from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward
from flatout.remedies.proposal import DATA, NUMERICS, Proposal, remedy
from flatout.results import Cause

_LEAST_CALLED = 0.5  # of the time that they take, by calls that the setting replaces


@remedy(("dropout_masks",), DATA, risk="low")
def quick_dropout(context: Context, cause: Cause) -> Proposal | None:
    """Cut whole words of random bits into elements, in place of a random number for each."""
    return _proposal(
        context,
        _slow(context).masks,
        "quick_dropout",
        title="draw the masks of dropout from fewer random bits",
        how="words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-2**63, None); "
        "keep = words.view(torch.int16)[:x.numel()].view(x.shape) >= round(p * 65536) - 32768; x * keep / (1 - p). "
        "Other random numbers, of the same distribution to 1/65536",
        basis="measured time of bernoulli_ in the traced steps, and of both ways on this device",
    )


@remedy(("bce_of_probabilities",), NUMERICS, risk="low")
def quick_bce(context: Context, cause: Cause) -> Proposal | None:
    """Compute the loss with logarithms of whole vectors, or from the scores that the sigmoid takes."""
    return _proposal(
        context,
        _slow(context).bce,
        "quick_bce",
        title="compute binary cross-entropy with logarithms of whole vectors",
        how="BCEWithLogitsLoss()(scores, target) in place of BCELoss()(sigmoid(scores), target): it takes no logarithm "
        "of 0",
        basis="measured time of binary_cross_entropy in the traced steps, and of both ways on this device",
    )


def _slow(context: Context) -> SlowKernels:
    operators = context.run.operators
    return SlowKernels() if isinstance(operators, str) else operators.slow


def _proposal(
    context: Context, kernel: SlowKernel | None, setting: str, title: str, how: str, basis: str
) -> Proposal | None:
    operators = context.run.operators
    if isinstance(operators, str) or kernel is None:
        return None
    by_setting = kernel.called >= _LEAST_CALLED
    part = kernel.called if by_setting else 1.0
    return Proposal(
        title=title,
        change=less_in_forward(context, operators.in_kernels_s(part * kernel.saved_s)),
        least=less_in_forward(context, operators.in_kernels_s(0.6 * part * kernel.saved_s)),
        most=less_in_forward(context, operators.in_kernels_s(kernel.seconds)),
        how=how,
        settings={setting: True} if by_setting else None,
        basis=basis,
        memory_bytes=0,
    )
