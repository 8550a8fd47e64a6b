"""The intervals of validation if no framework reported them: its loader's, or its forward passes'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.forward_calls import FEW_STEPS, evaluation_calls, training_calls
from flatout.measure.timeline import Flags, Ints, Pieces, intervals, union
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Events, ends

EVAL, TRAIN = 0, 1  # arg of MODE, which older records have


def validation_regions(training: Training) -> Pieces:
    """Disjoint intervals of the training thread in which it validates."""
    events = training.events
    resumes = np.sort(events["start"][_training_events(training)]).astype(np.int64)
    by_loader = _by_loader(training, resumes)
    found = (by_loader, _by_mode(events), _by_forward(training, resumes), _unfinished(training))
    return union(np.concatenate([begin for begin, _ in found]), np.concatenate([finish for _, finish in found]))


@dataclass(frozen=True)
class ValidationCalls:
    """The model's forward passes inside validation.

    Attributes:
        seconds: they take, of the training thread.
        with_gradients: share of them that keeps what a backward pass would need; 0..1.
    """

    seconds: float = 0.0
    with_gradients: float = 0.0


def validation_calls(training: Training, regions: Pieces) -> ValidationCalls:
    """The forward passes inside these intervals."""
    passes = training.events[evaluation_calls(training.events)]
    passes = passes[intervals(regions.start, regions.end).at(passes["start"]) >= 0]
    if not len(passes):
        return ValidationCalls()
    return ValidationCalls(float(passes["duration"].sum()) / 1e9, float(np.mean(passes["a"] == 1)))


def _unfinished(training: Training) -> tuple[Ints, Ints]:
    """The one in which the recording was stopped."""
    begin = training.unfinished_validation_ns
    found = [] if begin is None else [begin]
    return np.array(found, np.int64), np.array([training.window_end_ns] * len(found), np.int64)


def _training_events(training: Training) -> Flags:
    """Events that only training has: the first one after a validation ends it."""
    events, kind = training.events, training.events["kind"]
    of_loader = np.isin(kind, (kinds.ITER_START, kinds.BATCH_WAIT)) & np.isin(events["arg"], training.loaders)
    trains = np.isin(kind, (kinds.BACKWARD, kinds.OPTIMIZER, kinds.ZERO_GRAD))
    forward = training_calls(events, training.process.names)
    # A checkpoint is no training, but it is no validation either.
    mode = (kind == kinds.MODE) & (events["arg"] == TRAIN)
    return np.asarray(of_loader | trains | forward | mode | (kind == kinds.CHECKPOINT))


def _by_loader(training: Training, resumes: Ints) -> tuple[Ints, Ints]:
    """From the first event of a validation loader to the next event of training."""
    events = training.events
    theirs = np.isin(events["kind"], (kinds.ITER_START, kinds.BATCH_WAIT)) & np.isin(
        events["arg"], training.other_loaders
    )
    seen = events[theirs]
    turn = np.searchsorted(resumes, seen["start"], "right")
    first = np.flatnonzero(np.concatenate(([True], np.diff(turn) > 0))) if len(seen) else np.empty(0, int)
    begin = seen["start"][first].astype(np.int64)
    finish = np.append(resumes, training.finish_ns)[turn[first]]
    if len(first):
        # An iterator was created but nothing was read from it: what follows is not validation.
        reads = np.add.reduceat((seen["kind"] == kinds.BATCH_WAIT).astype(int), first)
        finish = np.where(reads > 0, finish, ends(seen)[first])
        last_seen = np.maximum.reduceat(ends(seen), first)
        # Nothing of training follows: the processing of the last batch ends with the last span seen.
        tail = finish >= training.finish_ns
        finish = np.where(tail, np.maximum(last_seen, ends(events).max()), finish)
    return begin, np.asarray(finish, np.int64)


def _by_forward(training: Training, resumes: Ints) -> tuple[Ints, Ints]:
    """From a forward pass in evaluation mode to the next event of training.

    A model that makes such passes in many of the steps, as a teacher does, takes part in them; but not in those that
    follow an update and precede the next step, where a training of few long steps validates after each. The same holds
    for passes with gradients of the trained model itself, which a backward pass may follow.
    """
    events = training.events
    back = np.sort(events["start"][events["kind"] == kinds.BACKWARD])
    passes = events[evaluation_calls(events)]
    step = np.searchsorted(back, passes["start"])
    takes_part = passes["a"] == 1
    for name in np.unique(passes["arg"]):
        mine = passes["arg"] == name
        takes_part |= mine & (len(np.unique(step[mine])) > FEW_STEPS * len(back))
    passes = passes[~takes_part | _between_steps(training, passes)]
    turn = np.searchsorted(resumes, passes["start"], "right")
    within = turn < len(resumes)  # what follows the last event of training is no part of it
    begin, turn = passes["start"][within].astype(np.int64), turn[within]
    first = np.flatnonzero(np.concatenate(([True], np.diff(turn) > 0))) if len(turn) else np.empty(0, int)
    return begin[first], resumes[turn[first]]


def _between_steps(training: Training, passes: Events) -> Flags:
    """True for passes between an update of the weights and the first sign of the next step.

    That is a batch or zero_grad(); for a module that was trained by calls of its own, such a call too, and for calls in
    a row one of any module that is trained.
    """
    marks = training.events[_training_events(training)]
    marks = marks[marks["kind"] != kinds.CHECKPOINT]
    marks = marks[np.argsort(marks["start"], kind="stable")]
    if not len(marks):
        return np.zeros(len(passes), bool)
    following = np.searchsorted(marks["start"], passes["start"], "right")
    inside = (following > 0) & (following < len(marks))
    before, after = marks[np.maximum(following - 1, 0)], marks[np.minimum(following, len(marks) - 1)]
    batch = np.isin(after["kind"], (kinds.BATCH_WAIT, kinds.ITER_START))
    in_a_row = (passes["a"] == 1) & (passes["b"] == kinds.EVALUATES)  # else they were no evaluation
    own = (passes["b"] == kinds.HAS_TRAINED) & (after["arg"] == passes["arg"])
    same = (after["kind"] == kinds.FORWARD) & (own | in_a_row)
    updated = (before["kind"] == kinds.OPTIMIZER) & (batch | same | (after["kind"] == kinds.ZERO_GRAD))
    cleared = (before["kind"] == kinds.ZERO_GRAD) & batch & (passes["b"] == kinds.HAS_TRAINED)
    return np.asarray(inside & (updated | cleared))


def _by_mode(events: Events) -> tuple[Ints, Ints]:
    """From eval() to the next train(), when a forward pass or a batch lies between and no backward pass."""
    modes = events[events["kind"] == kinds.MODE]
    back = events["start"][np.isin(events["kind"], (kinds.BACKWARD, kinds.OPTIMIZER))]
    evals, trains = modes["start"][modes["arg"] == EVAL], modes["start"][modes["arg"] == TRAIN]
    following = np.searchsorted(trains, evals, "left")
    evals, following = evals[following < len(trains)], following[following < len(trains)]
    until = trains[following]
    quiet = np.searchsorted(back, evals) == np.searchsorted(back, until)
    # A model that is only built in eval mode is not validated yet.
    used = events["start"][np.isin(events["kind"], (kinds.FORWARD, kinds.BATCH_WAIT))]
    quiet &= np.searchsorted(used, evals) < np.searchsorted(used, until)
    return evals[quiet].astype(np.int64), until[quiet].astype(np.int64)
