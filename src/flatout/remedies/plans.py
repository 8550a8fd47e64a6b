"""Plans: remedies bundled by how much they may change, each with the model's prediction for the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel
from flatout.probe.settings import SETTINGS, combined
from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, OPTIMISATION, Proposal
from flatout.results import Remedy, RemedyBundle

# name -> classes and risks that it takes; each plan holds the one before it.
PLANS: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = (
    ("conservative", frozenset({IDENTICAL}), frozenset({"low"})),
    ("moderate", frozenset({IDENTICAL, NUMERICS}), frozenset({"low", "medium"})),
    ("aggressive", frozenset({IDENTICAL, NUMERICS, DATA, OPTIMISATION}), frozenset({"low", "medium", "high"})),
)
_FIXED = {name for name, setting in SETTINGS.items() if setting.injector is None}  # only the user's own options have it
_LARGER_BATCH = {"batch_size", "accumulate"}  # samples to an update: twice of both would be four times as many
_TWO_WAYS = [(name, setting.instead_of) for name, setting in SETTINGS.items() if setting.instead_of]
_RISKS = ("low", "medium", "high")
# The least gain in throughput that a remedy has to add to those before it: trials do not resolve less.
_LEAST_ADDED = 0.01


def bundle(model: RateModel, found: Sequence[tuple[Remedy, Proposal]]) -> tuple[RemedyBundle, ...]:
    """The three plans, without those that add nothing to the previous one.

    Only remedies that can be injected into a training, and that add to those before them, are bundled. Their changes
    are applied to the model together, so that two remedies for one cause are not counted twice.

    Args:
        model: fitted to the run.
        found: remedies with their proposals, largest predicted gain first.
    """
    plans: list[RemedyBundle] = []
    for name, classes, risks in PLANS:
        chosen = [
            (remedy, proposal)
            for remedy, proposal in found
            if remedy.settings
            and not _FIXED & remedy.settings.keys()
            and proposal.change != Change()
            and remedy.semantic_class in classes
            and remedy.risk in risks
        ]
        chosen, changes = _adding(model, chosen)
        if not chosen or (plans and len(chosen) == len(plans[-1].remedies)):
            continue
        memory = [remedy.memory_bytes for remedy, _ in chosen]
        plans.append(
            RemedyBundle(
                name=name,
                settings=combined(*(remedy.settings for remedy, _ in chosen)),
                remedies=tuple(remedy.title for remedy, _ in chosen),
                gain=model.gain(*changes),
                memory_bytes=None if None in memory else sum(each for each in memory if each is not None),
                risk=max((remedy.risk for remedy, _ in chosen), key=_RISKS.index),
            )
        )
    return tuple(plans)


def with_overlaps(model: RateModel, found: Sequence[tuple[Remedy, Proposal]]) -> list[tuple[Remedy, Proposal]]:
    """The same remedies, each with the first one before it that leaves nothing for it to give.

    Args:
        model: fitted to the run.
        found: remedies with their proposals, largest predicted gain first.
    """
    marked: list[tuple[Remedy, Proposal]] = []
    for remedy, proposal in found:
        before = (one.id for one, theirs in marked if _leaves_nothing(model, (one, theirs), (remedy, proposal)))
        marked.append((replace(remedy, adds_nothing_to=next(before, "")), proposal))
    return marked


def _leaves_nothing(model: RateModel, first: tuple[Remedy, Proposal], second: tuple[Remedy, Proposal]) -> bool:
    if _stands_in(second[0], [first]):
        return True
    change, other = first[1].change, second[1].change
    if Change() in (change, other) or model.factor(other) < 1 + _LEAST_ADDED:  # what they change is not modelled
        return False
    return model.factor(change.and_then(other, model.now.step_s)) < (1 + _LEAST_ADDED) * model.factor(change)


def _stands_in(remedy: Remedy, chosen: Sequence[tuple[Remedy, Proposal]]) -> bool:
    """True if a remedy does in another way what one of those chosen does, or gives the same choice another value."""
    theirs = {name: value for one, _ in chosen for name, value in one.settings.items()}
    shared = theirs.keys() & remedy.settings.keys()
    one_of = [name for name in shared if SETTINGS[name].choices and not SETTINGS[name].several]
    if any(theirs[name] != remedy.settings[name] for name in one_of):
        return True
    if _LARGER_BATCH & theirs.keys() and _LARGER_BATCH & remedy.settings.keys():
        return True
    return any({one, other} & theirs.keys() and {one, other} & remedy.settings.keys() for one, other in _TWO_WAYS)


def _adding(
    model: RateModel, found: Sequence[tuple[Remedy, Proposal]]
) -> tuple[list[tuple[Remedy, Proposal]], tuple[Change, Change, Change]]:
    """The remedies that add to those before them, and their changes together: the likely one, the least, the most."""
    chosen: list[tuple[Remedy, Proposal]] = []
    together = (Change(), Change(), Change())
    factor = 1.0
    for remedy, proposal in found:
        if _stands_in(remedy, chosen):
            continue
        steps = (proposal.change, proposal.least or proposal.change, proposal.most or proposal.change)
        likely, least, most = (one.and_then(step, model.now.step_s) for one, step in zip(together, steps, strict=True))
        with_it = model.factor(likely)
        if with_it >= (1 + _LEAST_ADDED) * factor:
            chosen.append((remedy, proposal))
            together, factor = (likely, least, most), with_it
    return chosen, together
