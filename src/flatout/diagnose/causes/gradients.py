"""Causes inside the step: gradients that nothing uses."""

from __future__ import annotations

from pathlib import PurePath

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.measure.gradients import DiscardedGradients, DiscardingLine, UnusedGradients
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import without_gradients
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent


def _computes_in_vain(context: Context, found: Cause) -> str:
    return f"{found.title[:1].upper()}{found.title[1:]}: they take {percent(found.share)} of the time."


@cause("training", sentence=_computes_in_vain)
def unused_gradients(context: Context) -> Found | Lacks | None:
    """Backward passes compute gradients of parameters that are in no optimizer."""
    gradients = context.run.unused_gradients
    if context.fitted is None:
        return Lacks(NO_STEP)
    if gradients is None or isinstance(gradients, str):
        return None if gradients is None else Lacks(gradients)
    share = context.model.recovered(without_gradients(context, gradients))
    if share < NOISE_SHARE:
        return None
    return Found(
        title=f"no optimizer uses the gradients of {_named(gradients.modules)}",
        share=share,
        confidence=0.9 if gradients.tried is not None else 0.5,
        evidence=(
            Evidence(
                f"{gradients.elements:,} of {gradients.of:,} parameters that get a gradient are in no optimizer, "
                "and keep their values",
                {"elements": gradients.elements, "of": gradients.of},
            ),
            _cost(gradients),
        ),
    )


def _named(modules: tuple[str, ...]) -> str:
    if not modules:
        return "some parameters"
    first, *others = modules
    return f"{first} and {counted(len(others), 'other module')}" if others else first


def _cost(gradients: UnusedGradients | DiscardedGradients) -> Evidence:
    one = gradients.tried
    if one is None:
        text = f"what they cost is estimated from the number of parameters, since {gradients.not_tried}"
        return Evidence(text, {"part": gradients.part})
    text = (
        f"{counted(one.blocks, 'block')} of {counted(one.steps, 'step')} without these gradients took "
        f"{duration(one.changed_s)} a step, as it is {duration(one.unchanged_s)}"
    )
    return Evidence(text, {"changed_s": one.changed_s, "unchanged_s": one.unchanged_s, "gain": one.gain})


def _discards(context: Context, found: Cause) -> str:
    return f"{found.title[:1].upper()}{found.title[1:]}: computing them takes {percent(found.share)} of the time."


@cause("training", sentence=_discards)
def discarded_gradients(context: Context) -> Found | Lacks | None:
    """Gradients are computed, and set to zero before anything uses them."""
    gradients = context.run.discarded_gradients
    if context.fitted is None:
        return Lacks(NO_STEP)
    if gradients is None or isinstance(gradients, str):
        return None if gradients is None else Lacks(gradients)
    share = context.model.recovered(without_gradients(context, gradients))
    if share < NOISE_SHARE:
        return None
    return Found(
        title=f"gradients of {_discarded(gradients)} are set to zero before they are used",
        share=share,
        confidence=0.9 if gradients.tried is not None and gradients.tried.proven else 0.5,
        evidence=(*map(_seen, gradients.lines), _cost(gradients)),
    )


def _discarded(gradients: DiscardedGradients) -> str:
    return _named(tuple(dict.fromkeys(name for line in gradients.lines for name in line.modules)))


def _seen(line: DiscardingLine) -> Evidence:
    return Evidence(
        f"{counted(line.passes, 'backward pass', 'backward passes')} from {PurePath(line.file).name}:{line.line} "
        f"computed gradients of {line.of:,} parameters, {line.elements:,} of them in vain ({_named(line.modules)})",
        {"file": line.file, "line": line.line, "passes": line.passes, "elements": line.elements, "of": line.of},
    )
