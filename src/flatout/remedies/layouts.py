"""One memory layout throughout the model."""

from __future__ import annotations

from flatout.measure.layouts import converting_lines
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause


@remedy(("layout_conversions",), NUMERICS, risk="medium")
def one_layout(context: Context, cause: Cause) -> Proposal | None:
    """Keep tensors in one memory layout from the input to the loss."""
    operators = context.run.operators
    if isinstance(operators, str) or not operators.conversions_s:
        return None
    lines = converting_lines(context.run)
    where = f" ({lines[0].file}:{lines[0].line})" if lines else ""
    removed_s = cause.share * context.model.now.total_s
    return Proposal(
        title=f"keep tensors in one memory layout{where}",
        change=shorter_step(0.5 * removed_s),
        least=Change(),
        most=shorter_step(removed_s),
        how="model.to(memory_format=torch.channels_last) and the batches once, without .contiguous() in the blocks; "
        "normalise over the dimension in place; torch.einsum instead of permute and matmul",
        basis="measured time of the conversions: an upper bound, half of it is predicted",
        memory_bytes=0,
    )
