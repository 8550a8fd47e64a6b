"""Layers in a form that takes less time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from flatout.measure.layer_forms import BothForms
from flatout.predict.context import Context
from flatout.predict.step_changes import as_timed
from flatout.probe.settings import SETTINGS
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.remedies.reporting import listed, setting_name
from flatout.results import Cause

_BASIS = "both passes in both forms, measured on tensors of the same shapes"


@remedy(("unmerged_layers",), NUMERICS, risk="low")
def merge_layers(context: Context, cause: Cause) -> Proposal | None:
    """Compute the layers as one, and split what it gives."""
    layers = context.run.unmerged_layers
    if not layers:
        return None
    first = layers[0]
    how = "nn.Linear(inputs, n * outputs), then .chunk(n, -1)"
    if first.operator == "convolution":
        how = "nn.Conv2d(channels, n * outputs, ...), then .chunk(n, 1)"
    return _proposal(
        context,
        layers,
        title=f"compute the {first.layers} {first.kind} of one input as one",
        how=f"{how}; its weight is torch.cat([layer.weight for layer in layers]), which an older checkpoint gives, and "
        "as which it can also be put together in each forward pass",
    )


@remedy(("spanning_kernels",), NUMERICS, risk="low")
def quick_conv(context: Context, cause: Cause) -> Proposal | None:
    """Take the dimension that the kernel spans for channels."""
    convolutions = context.run.spanning_kernels
    return _proposal(
        context,
        convolutions,
        title="compute convolutions as wide as their input in one dimension",
        how="nn.Conv1d(width, n, k)(x.transpose(1, 2)) in place of nn.Conv2d(1, n, (k, width))(x[:, None]); "
        "its weight is conv.weight.squeeze(1).transpose(1, 2)",
        settings={"quick_conv": True},
        # Each keeps a copy of its input in that form until its backward pass; four bytes for each value.
        memory_bytes=sum(4 * one.uses * math.prod(one.shape) for one in convolutions),
    )


@remedy(("unfused_functions",), NUMERICS, risk="low")
def fuse_functions(context: Context, cause: Cause) -> Proposal | None:
    """Call torch's own functions."""
    functions = context.run.unfused_functions
    places = dict.fromkeys((one.lines[0].file, one.lines[0].function) for one in functions if one.lines)
    codes = dict.fromkeys(f"{one.lines[0].function}: return {one.code}" for one in functions if one.lines)
    names = dict.fromkeys(f"F.{one.name}" for one in functions)
    text = ",".join(setting_name(*place) for place in places)
    return _proposal(
        context,
        functions,
        title=f"call {listed(list(names), 'and')} in place of what gives the same",
        how="; ".join(codes),
        settings={"fused_functions": text} if re.fullmatch(SETTINGS["fused_functions"].form, text) else None,
    )


@remedy(("coo_products",), NUMERICS, risk="low")
def csr_products(context: Context, cause: Cause) -> Proposal | None:
    """Multiply by the rows of a sparse matrix."""
    products = context.run.coordinate_products
    return _proposal(
        context,
        products,
        title="multiply by sparse matrices row by row (CSR)",
        how="adj.coalesce().to_sparse_csr() once, before the training, and adj.t().coalesce().to_sparse_csr() for the "
        "backward pass, in a torch.autograd.Function as flatout explain coo_products shows it: without that, a step "
        "may take longer than before",
        settings={"csr_products": True},
        # By rows and by columns: an index and a value each.
        memory_bytes=sum(2 * 16 * one.values for one in products),
    )


@remedy(("unfused_attention",), NUMERICS, risk="low")
def fuse_attention(context: Context, cause: Cause) -> Proposal | None:
    """Call torch's own attention."""
    attention = context.run.unfused_attention
    if not attention:
        return None
    mask = ", attn_mask=mask" if attention[0].masked else ""
    dropout = ", dropout_p=p if self.training else 0.0" if attention[0].dropout else ""
    how = f"F.scaled_dot_product_attention(q, k, v{mask}{dropout})"
    if attention[0].masked:
        how += "; a mask of True and False is True for what takes part, any other is added; is_causal=True takes none"
    return _proposal(
        context,
        attention,
        title="call F.scaled_dot_product_attention in place of softmax(q @ k.T) @ v",
        how=f"{how}; nn.MultiheadAttention calls it with need_weights=False, models of transformers with "
        "attn_implementation='sdpa'; it does not give the weights themselves",
    )


@remedy(("broadcast_pairs",), NUMERICS, risk="low")
def pairs_by_product(context: Context, cause: Cause) -> Proposal | None:
    """Compute pairs of rows by a product of matrices."""
    pairs = context.run.broadcast_pairs
    if not pairs:
        return None
    how = {
        "products": "x @ y.transpose(-2, -1), or torch.einsum",
        "distances": "torch.cdist(x, y), squared where squares are wanted; it multiplies matrices from 25 rows on, and "
        "rows that are nearly the same lose digits",
        "cosines": "F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).transpose(-2, -1) of the rows before unsqueeze()",
    }
    return _proposal(
        context,
        pairs,
        title=f"compute the {pairs[0].kind} of all pairs by a product of matrices",
        how=how.get(pairs[0].kind, how["products"]),
        settings={"quick_cosine": True} if pairs[0].kind == "cosines" else None,
    )


@remedy(("gathered_weights",), NUMERICS, risk="low")
def sort_rows(context: Context, cause: Cause) -> Proposal | None:
    """Multiply all rows of a matrix at once."""
    return _proposal(
        context,
        context.run.gathered_weights,
        title="sort the rows by their matrix, and multiply those of each at once",
        how="order = index.argsort(); parts = x[order].split(index.bincount(minlength=n).tolist()); "
        "y = torch.cat([part @ w for part, w in zip(parts, weights)]), and y[order.argsort()] is as before; weights "
        "that are sums of a few bases need not be made at all: multiply by the bases, and add up",
    )


@remedy(("stepwise_products",), NUMERICS, risk="low")
def product_after_loop(context: Context, cause: Cause) -> Proposal | None:
    """Collect what a layer is given in a loop, and call it once."""
    products = context.run.stepwise_products
    # Until then, what comes out of all steps is there at once: in the loop it was as well, for the backward pass.
    return _proposal(
        context,
        products,
        title="call the layer once after the loop, with all of its inputs",
        how="outputs.append(hidden) in the loop, and logits = self.out(torch.stack(outputs, 1)) after it; the loss of "
        "all steps is then one call, too",
    )


def _proposal(
    context: Context,
    layers: Sequence[BothForms],
    title: str,
    how: str,
    settings: dict[str, Any] | None = None,
    memory_bytes: int = 0,
) -> Proposal | None:
    if not layers:
        return None
    change, least, most = as_timed(context, layers)
    return Proposal(
        title=title,
        change=change,
        least=least,
        most=most,
        how=how,
        settings=settings,
        basis=_BASIS,
        memory_bytes=memory_bytes,
    )
