"""Layers of one input, computed as one."""

from __future__ import annotations

from flatout.diagnose.causes.unmerged_layers import kind
from flatout.predict.context import Context
from flatout.predict.step_changes import merged_layers
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause


@remedy(("unmerged_layers",), NUMERICS, risk="low")
def merge_layers(context: Context, cause: Cause) -> Proposal | None:
    """Compute the layers as one, and split what it gives."""
    layers = context.run.unmerged_layers
    if not layers:
        return None
    first = layers[0]
    change, least, most = merged_layers(context, layers)
    how = "nn.Linear(inputs, n * outputs), then .chunk(n, -1)"
    if first.operator == "convolution":
        how = "nn.Conv2d(channels, n * outputs, ...), then .chunk(n, 1)"
    return Proposal(
        title=f"compute the {first.layers} {kind(first.operator)} of one input as one",
        change=change,
        least=least,
        most=most,
        how=f"{how}; its weight is torch.cat([layer.weight for layer in layers]), which an older checkpoint gives, and "
        "as which it can also be put together in each forward pass",
        basis="both passes of the layers one after the other and of one with the weights put together, measured on "
        "tensors of their shapes",
        memory_bytes=0,
    )
