"""The remedy for what a step computes again."""

from __future__ import annotations

from pathlib import PurePath

from flatout.predict.context import Context
from flatout.predict.step_changes import without_repeated_work
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause

_ONCE = {
    "parametrization": "with torch.nn.utils.parametrize.cached(): around what uses the module more than once in a step",
    "gradient": "grad = torch.autograd.grad(u.sum(), x, create_graph=True)[0] once, and all its columns from there",
    "": "keep the first result in a variable: logits = model(x), then logits.detach() for the metric; masks and tables "
    "that do not change belong into __init__",
}


@remedy(("repeated_work",), NUMERICS, risk="low")
def compute_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what a step has computed, in place of computing it again."""
    work = context.run.repeated_work
    if work is None:
        return None
    first = work.lines[0]
    where = f" ({PurePath(first.file).name}:{first.line})" if first.file else ""
    return Proposal(
        title=f"compute {first.operator}{where} once in a step",
        change=without_repeated_work(context, work.with_backward),
        least=without_repeated_work(context, 0.7 * work.with_backward),
        most=without_repeated_work(context, min(1.2 * work.with_backward, 1.0)),
        how=_ONCE[first.reason],
        basis="measured time of operators that ran with the same inputs before in one step, and of their backward "
        "passes",
        memory_bytes=0,
    )
