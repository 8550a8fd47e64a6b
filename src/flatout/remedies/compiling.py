"""Changes that let compiled code stay as it was compiled, and in one piece."""

from __future__ import annotations

import re

from flatout.measure.compiling import Compiling
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import DATA, NUMERICS, Proposal, remedy
from flatout.results import Cause

# How torch words a guard on a shape; all others are on values: numbers, attributes, identities.
_ON_SHAPE = re.compile(r"mismatch at index|size\(\)|\.shape\b|stride|\bs\d+\b|dispatch key set|tensor rank|symbolic")
_BASIS = "measured time in compilations again"
_LIMITED = "; after torch's limit a longer training spends less on them, and computes uncompiled"


@remedy(("recompilation",), NUMERICS, risk="low")
def dynamic_shapes(context: Context, cause: Cause) -> Proposal | None:
    """Compile once for all sizes."""
    compiling = _compiling(context)
    if compiling is None or not _ON_SHAPE.search(_reason(compiling)):
        return None
    return Proposal(
        title="compile once for all sizes",
        # Code for all sizes is slower than code for one: how much is not known.
        change=_without(cause, context, 0.9),
        least=_without(cause, context, 0.5),
        most=_without(cause, context, 1.0),
        how="torch.compile(model, dynamic=True); or torch._dynamo.mark_dynamic(inputs, 1) before the call",
        basis=_basis(compiling),
        memory_bytes=0,
    )


@remedy(("recompilation",), DATA, risk="medium")
def fixed_shapes(context: Context, cause: Cause) -> Proposal | None:
    """Give the compiled model batches of one shape, or of a few."""
    compiling = _compiling(context)
    if compiling is None or not _ON_SHAPE.search(_reason(compiling)):
        return None
    return Proposal(
        title="give the model batches of one shape, or of a few",
        # Padding adds computation.
        change=_without(cause, context, 0.9),
        least=_without(cause, context, 0.3),
        most=_without(cause, context, 1.0),
        how="DataLoader(..., drop_last=True); pad to the longest sample, or to the next multiple of 64",
        basis=_basis(compiling) + "; what padding adds is not known",
        memory_bytes=None,
    )


@remedy(("recompilation",), NUMERICS, risk="low")
def steady_values(context: Context, cause: Cause) -> Proposal | None:
    """Give numbers that change to the compiled function as tensors."""
    compiling = _compiling(context)
    if compiling is None or _ON_SHAPE.search(_reason(compiling)):
        return None
    reason = _reason(compiling)
    return Proposal(
        title="keep what compiled code depends on unchanged" + (f": {reason}" if reason else ""),
        change=_without(cause, context, 0.95),
        least=_without(cause, context, 0.5),
        most=_without(cause, context, 1.0),
        how="pass a number that changes as a tensor, torch.tensor(value); count steps outside the compiled function",
        basis=_basis(compiling),
        memory_bytes=0,
    )


@remedy(("graph_breaks",), NUMERICS, risk="medium")
def whole_graphs(context: Context, cause: Cause) -> Proposal | None:
    """Move what breaks the graph out of the compiled function."""
    compiling = _compiling(context)
    if compiling is None or isinstance(compiling.calls, str) or not compiling.breaks:
        return None
    line = compiling.breaks[0].line
    return Proposal(
        title=f"move what breaks the graph out of the compiled function ({line.file}:{line.line})",
        # A part of the Python between the pieces may have to run elsewhere.
        change=_without(cause, context, 0.7),
        least=Change(),
        most=_without(cause, context, 1.0),
        how="no print, .item(), NumPy or data-dependent branch in forward; torch.compile(model, fullgraph=True) names "
        "each of them",
        basis="measured time between compiled graphs; what larger graphs gain is not known",
        memory_bytes=0,
    )


def _compiling(context: Context) -> Compiling | None:
    found = context.run.compiling
    return None if isinstance(found, str) else found


def _reason(compiling: Compiling) -> str:
    """The guard that failed most, of the function that takes most time to compile again."""
    reasons = compiling.functions[0].reasons if compiling.functions else ()
    return reasons[0] if reasons else ""


def _without(cause: Cause, context: Context, part: float) -> Change:
    """This part of the cause's time is saved."""
    return shorter_step(part * cause.share * context.model.now.total_s)


def _basis(compiling: Compiling) -> str:
    return _BASIS + (_LIMITED if any(one.limited for one in compiling.functions) else "")
