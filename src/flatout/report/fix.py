"""The outcome of a fix as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flatout.measure.thresholds import NOISE_SHARE
from flatout.report.layout import wrap
from flatout.report.ratios import bounds, faster
from flatout.terminal_text import one_line, shell_line
from flatout.trials.export import Export
from flatout.trials.result import KEPT, UNCONFIRMED, UNMEASURED, FixResult, Proof, Trial
from flatout.trials.sequential import clears
from flatout.trials.settings import keep_command
from flatout.units import duration, factor, interval, size

WIDTH = 80
OUTCOMES = {
    KEPT: "kept",
    "dropped": "dropped",
    UNCONFIRMED: "not confirmed",
    UNMEASURED: "not measured",
    "too_short": "too few steps to compare",
    "oom": "out of memory",
    "guarded": "ended by a guard",
    "failed": "failed",
    "refused": "could not be set",
    "stalled": "stalled",
}


_MEDIANS = "medians of all runs; the factor is of pairs of runs, one right after the other, which compare better"


def lines(fixed: FixResult, kept: Export | None = None, plans: Mapping[str, Export] | None = None) -> list[str]:
    """For a terminal."""
    text = [*_wrapped(f"{verdict(fixed)} {fixed.crowded}", 0), ""]
    text += _proof(fixed) if fixed.proof else [f"  {'before':10}{fixed.before:12,.1f} {fixed.unit}"]
    if fixed.tried:
        text += ["", "Tried one at a time, each on top of the remedies kept before it", ""]
        for trial in fixed.tried:
            text += _trial(trial)
    if fixed.untried:
        text += ["", "Not tried", ""]
        for title, why in fixed.untried:
            text += [*_wrapped(title, 2), *_reason(why, fixed.command)]
    if fixed.kept:
        keep = kept or Export(keep_command(fixed.command, fixed.settings))
        text += ["", "To keep it, run", "", f"  {keep.command}", ""]
        if keep.diff:
            text += ["or apply this patch", "", f"  {keep.apply}", ""]
            text += [*(f"  {line}" for line in keep.diff.splitlines()), ""]
        if keep.note:
            text += [*_wrapped(keep.note, 2), ""]
        text += ["or write", ""]
        for how in {trial.remedy: trial.how for trial in fixed.kept}.values():  # the last value of each remedy
            text += _wrapped(how, 2)
    text += _plans(fixed, plans or {})
    notes = " ".join((fixed.ended, fixed.isolation, _took(fixed)))
    return [one_line(line) for line in (*text, "", *_wrapped(notes, 0))]


def _reason(why: str, command: Sequence[str]) -> list[str]:
    """Why a remedy was not tried; a command in it is whole, on a line of its own."""
    reason, begins, settings = why.partition(": flatout apply ")
    if not begins:
        return _wrapped(why, 4)
    whole = f"flatout apply {settings}".replace("-- COMMAND", f"-- {shell_line(command)}")
    return [*_wrapped(f"{reason}:", 4), f"    {whole}"]


def _took(fixed: FixResult) -> str:
    took = duration(fixed.seconds)
    if fixed.resumed_after is None:
        return f"It took {took}."
    made = "1 trial was" if fixed.resumed_after == 1 else f"{fixed.resumed_after} trials were"
    return f"It took {took} since it was resumed. Before, {made} made, with the rates of then."


def _plans(fixed: FixResult, ways: Mapping[str, Export]) -> list[str]:
    """Each plan with its prediction; what was proved is shown above."""
    text: list[str] = []
    proved = {plan.name for plan in fixed.plans if fixed.settings and dict(plan.settings) == fixed.settings}
    for plan in fixed.plans:
        if plan.name not in ways or plan.name in proved:
            continue
        memory = (
            "memory not known"
            if plan.memory_bytes is None
            else f"{size(abs(plan.memory_bytes))} {'less' if plan.memory_bytes < 0 else 'more'} host memory"
        )
        head = f"{plan.name}: predicted {interval(plan.gain)}, {memory}, {plan.risk} risk"
        text += ["", *_wrapped(head, 2), *_wrapped("; ".join(plan.remedies), 4)]
        text.append(f"    {ways[plan.name].command}")
    return ["", "Plans for the training as it was, predicted and not measured", *text] if text else []


def verdict(fixed: FixResult) -> str:
    """One sentence."""
    if fixed.proof is not None:
        return _proved(fixed.proof)
    if fixed.kept:
        return "Remedies were kept, but their combination was not proved: the trials below show what each gave."
    if fixed.promising:
        best = fixed.promising[0]
        clear = best.ratio is not None and clears(best.ratio)
        return f"Nothing is proved yet. {_capital(best.title)}{' is promising' if clear else ''}: {best.why}."
    if not fixed.tried:
        return "Nothing was tried, so nothing was measured besides the training as it is."
    if not any(trial.ratio for trial in fixed.tried):
        return "Nothing was kept: no trial could be measured."
    if any(trial.ratio and clears(trial.ratio) for trial in fixed.tried):
        return "Nothing was kept: with what made this training faster, its losses were others."
    return "Nothing was kept: no trial made this training faster beyond noise."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _proved(proof: Proof) -> str:
    ratio = proof.ratio
    span = f"{bounds(ratio)}, 90% interval"
    if ratio.low <= 1.0:
        return f"Not proved: {factor(ratio.factor)} ({span}) is within noise, though trials gained."
    if ratio.distorted:
        return f"Not proved: {factor(ratio.factor)} ({span}): {ratio.disturbed}."
    if not proof.loss_passed:
        return f"Faster, {factor(ratio.factor)} ({span}), but the losses do not agree: {proof.loss}."
    return f"Proved: {faster(ratio)}."


def _proof(fixed: FixResult) -> list[str]:
    proof = fixed.proof
    assert proof is not None, "asked for only when there is one"
    differ = abs(proof.after / proof.before / proof.ratio.factor - 1) > NOISE_SHARE
    noise = "; ".join(said for said in (proof.ratio.differing, proof.ratio.disturbed) if said)
    pairs = f"{proof.ratio.pairs} pairs of runs, A B B A" if proof.ratio.pairs > 1 else "one pair of runs"
    return [
        f"  {'before':10}{proof.before:12,.1f} {proof.unit}",
        f"  {'after':10}{proof.after:12,.1f} {proof.unit}   {pairs}",
        *(_wrapped(f"rates     {_MEDIANS}", 2) if differ else ()),
        *_wrapped(f"loss      {proof.loss}", 2),
        *(_wrapped(f"noise     {noise}", 2) if noise else ()),
    ]


def _trial(trial: Trial) -> list[str]:
    measured = f" {factor(trial.ratio.factor)}" if trial.ratio else ""
    head = f"{OUTCOMES.get(trial.outcome, trial.outcome)}{measured}: {trial.title}"
    stalled = f" {trial.stalled} pair left out: the machine stalled." if trial.stalled else ""
    loss = f"; loss: {trial.loss}" if trial.loss and trial.loss not in trial.why else ""
    detail = f"predicted {interval(trial.predicted)}; {trial.why}{loss}.{stalled}"
    restarted = f"Started anew for each run: {trial.restarted}." if trial.restarted else ""
    return [*_wrapped(head, 2), *_wrapped(f"{detail} {restarted}".strip(), 6)]


def _wrapped(text: str, indent: int) -> list[str]:
    return [" " * indent + line for line in wrap(text, WIDTH - indent)]


def to_dict(fixed: FixResult, kept: Export | None = None, plans: Mapping[str, Export] | None = None) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "command": list(fixed.command),
        "verdict": verdict(fixed),
        "diagnosis": fixed.verdict,
        "proof": fixed.proof.to_dict() if fixed.proof else None,
        "before": fixed.before,
        "unit": fixed.unit,
        "kept": [trial.to_dict() for trial in fixed.kept],
        "tried": [trial.to_dict() for trial in fixed.tried],
        "untried": [{"title": title, "why": why} for title, why in fixed.untried],
        "settings": fixed.settings,
        "keep": kept.to_dict() if kept else None,
        "plans": [
            {
                **asdict(plan),
                "keep": plans[plan.name].to_dict() if plans and plan.name in plans else None,
            }
            for plan in fixed.plans
        ],
        "ended": fixed.ended,
        "crowded": fixed.crowded or None,
        "isolation": fixed.isolation,
        "folder": fixed.folder,
        "seconds": fixed.seconds,
        "interrupted": fixed.interrupted is not None,
        "resumed_after": fixed.resumed_after,
    }
