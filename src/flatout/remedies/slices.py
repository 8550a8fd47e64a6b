"""Parts of tensors that are taken or written all at once."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause


@remedy(("slice_gradients",), IDENTICAL, risk="low")
def unbind(context: Context, cause: Cause) -> Proposal | None:
    """Take all slices with one call, whose backward pass joins their gradients once."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.slices is None:
        return None
    saved_s = operators.of_slices_s
    dimension = operators.slices.dimension
    title = f"take the slices with one call before the loop: unbind({dimension})"
    how = (
        f"for part in x.unbind({dimension}): ..., not x[:, t] in the loop; x.split(n, {dimension}) for ranges; "
        "x.gather(1, index[..., None].expand(-1, -1, x.size(2))) for x[i][index[i]]"
    )
    if dimension is None:
        title = "take all parts with one call: one index, or a product with a matrix of the indices"
        how = (
            "x[:, all_indices] once, then split(); or adjacency @ x in place of a loop over x[:, neighbours].mean(1), "
            "where adjacency[i, neighbours[i]] = 1 / len(neighbours[i])"
        )
    return Proposal(
        title=title,
        change=shorter_step(0.9 * saved_s),
        least=shorter_step(0.5 * saved_s),
        most=shorter_step(saved_s),
        how=how,
        basis="measured time of the gradients of slices in the traced steps; assumes that joining them takes a tenth",
        memory_bytes=0,
    )


@remedy(("slice_writes",), IDENTICAL, risk="low")
def write_at_once(context: Context, cause: Cause) -> Proposal | None:
    """Collect the parts in a list, or write with one mask or index."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.writes is None:
        return None
    saved_s = operators.of_writes_s
    return Proposal(
        title=f"write the {operators.writes.writes:,} parts at once",
        change=shorter_step(0.8 * saved_s),
        least=shorter_step(0.4 * saved_s),
        most=shorter_step(saved_s),
        how="outputs.append(h) in the loop, torch.stack(outputs) after it, not outputs[t] = h; for rows of different "
        "lengths x.masked_fill(torch.arange(size)[None] >= lengths[:, None], value) in place of x[i, length:] = value",
        # Where the copies were 83% of a step by the trace, 48% went with them: they warm the caches for what follows.
        basis="measured time of the writes' backward passes in the traced steps, and the overhead of as many "
        "operators; a fifth of it is taken to stay",
        memory_bytes=0,
    )
