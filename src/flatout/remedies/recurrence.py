"""Recurrent layers that take a whole sequence in one call."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.step_changes import whole_sequences
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause

_CELL = "Cell"


@remedy(("stepwise_recurrence",), NUMERICS, risk="medium")
def whole_sequence(context: Context, cause: Cause) -> Proposal | None:
    """Call the layer once with all time steps."""
    layers = context.run.stepwise_layers
    if not layers:
        return None
    first = layers[0]
    change, least, most = whole_sequences(context, layers)
    how = "outputs, state = layer(torch.stack(inputs), state): all inputs first, then one call, then what follows once"
    if first.kind.endswith(_CELL):
        layer = first.kind.removesuffix(_CELL)
        how = f"nn.{layer} in place of nn.{first.kind}, which has the same weights: {how}"
    return Proposal(
        title=f"call {first.name} once with all {first.calls:,} time steps",
        change=change,
        least=least,
        most=most,
        how=f"{how}. Dropout draws other numbers, and BatchNorm in the loop takes its statistics over all of them",
        basis="both passes of the layer, measured step by step and in one call; half of what else both passes take is "
        "taken to stand in the loop, and to gain as much",
        memory_bytes=None,
    )
