"""Compiling the model, with or without CUDA graphs."""

from __future__ import annotations

from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.fusion import Fusible
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration, size

# Of the time around kernels, what graphs save: from one training, a small GPT on an H200, which hardly had any left.
_LIKELY_IN_GRAPHS, _MOST_IN_GRAPHS = 0.85, 0.98


@remedy(("overhead_bound", "compute_bound", "small_batch"), NUMERICS, risk="medium")
def compile_model(context: Context, cause: Cause) -> Proposal | None:
    """Compile the model."""
    if context.run.process.compiled is not False:
        return None
    likely_s, most_s, basis = _fused(context, cause)
    return Proposal(
        title="compile the model with torch.compile",
        change=shorter_step(likely_s),
        least=Change(),
        most=shorter_step(most_s),
        how="model = torch.compile(model)",
        settings={"compile": "default"},
        basis=f"{basis}; compiling costs minutes at the start, and again at new shapes",
        memory_bytes=0,
    )


@remedy(("overhead_bound", "small_batch"), NUMERICS, risk="medium")
def cuda_graphs(context: Context, cause: Cause) -> Proposal | None:
    """Launch the model's kernels as one CUDA graph."""
    operators, compiled = context.run.operators, context.run.process.compiled
    if isinstance(operators, str) or not operators.on_device or compiled is None:
        return None
    around_s = operators.overhead_s * _of_model(context)
    fused = operators.fusible
    likely_s, most_s = _LIKELY_IN_GRAPHS * around_s, _MOST_IN_GRAPHS * around_s
    if not compiled:
        likely_s, most_s = likely_s + fused.likely_s, most_s + fused.most_s
    return Proposal(
        title="launch the compiled model's kernels as CUDA graphs"
        if compiled
        else "compile the model into CUDA graphs",
        change=shorter_step(likely_s),
        least=Change(),
        most=shorter_step(most_s),
        how='torch.compile(model, mode="reduce-overhead"): shapes have to stay the same, and nothing in the model may '
        "read a value back",
        # A model that the script compiles itself cannot be compiled in another way from outside.
        settings=None if compiled else {"compile": "reduce-overhead"},
        basis=f"{duration(around_s)} of a step pass around the model's kernels, most of which graphs leave out; they "
        "hold the memory of their activations all the time",
        memory_bytes=None,
    )


def _of_model(context: Context) -> float:
    """Share of the computation that is not the optimizer's, which is not compiled with the model."""
    return 1.0 - context.run.seconds("optimizer") / context.run.seconds(*COMPUTE_ACCOUNTS)


def _fused(context: Context, cause: Cause) -> tuple[float, float, str]:
    """Seconds of a step that compiling the model is likely to save, and can save at most; what that rests on."""
    operators = context.run.operators
    if isinstance(operators, str):
        basis = "nothing but the share of computation: without a kernel trace, only a trial shows it"
        return 0.0, 0.5 * cause.share * context.model.now.step_s, basis
    around_s, saved = operators.overhead_s * _of_model(context), operators.fusible
    basis = _passed_on(saved)
    if around_s > 0:
        basis += f", and half of the {duration(around_s)} that pass around them is assumed to go"
    return 0.5 * around_s + saved.likely_s, 0.9 * around_s + saved.most_s, basis


def _passed_on(saved: Fusible) -> str:
    """A clause: what fused operators of the model need not write and read."""
    if not saved.bytes:
        return "the traced step, in which no pointwise operator of the model reads what another has written"
    return (
        f"what {saved.operators:,.0f} pointwise operators of the model pass to one another in the traced step: "
        f"{size(saved.bytes)}, which takes {duration(saved.most_s)}"
    )
