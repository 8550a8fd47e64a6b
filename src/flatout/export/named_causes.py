"""Which cause a diagnosis names for time of each event kind."""

from __future__ import annotations

from flatout.diagnose.causes import CAUSES
from flatout.probe import events as kinds
from flatout.results import Diagnosis

_INPUT = (kinds.BATCH_WAIT, kinds.FETCH)
# Causes of one kind of event; of the others the group says which time they lengthen.
_OF_CAUSE = {
    "checkpoint": (kinds.CHECKPOINT,),
    "device_sync": (kinds.BLOCKING_READ,),
    "epoch_start": (kinds.ITER_START,),
    "h2d": (kinds.H2D,),
    "logging": (kinds.LOG,),
    "recompilation": (kinds.COMPILE,),
    "sampler": (kinds.SAMPLING, kinds.BATCH_WAIT),
    "slow_collate": (kinds.COLLATE, *_INPUT),
    "validation": (kinds.VALIDATION,),
    "worker_restart": (kinds.ITER_START, kinds.WORKER_START),
}
# Their time is the training's, which no single kind of event shows.
_OF_STEPS = (kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER)
_OF_GROUP = {"waiting": _INPUT, "data": _INPUT, "training": _OF_STEPS, "healthy": ()}


def causes_by_kind(diagnosis: Diagnosis) -> dict[int, str]:
    """The id of the largest cause that concerns each event kind; kinds without one are absent."""
    groups = {spec.id: spec.group for spec in CAUSES}
    found: dict[int, str] = {}
    for cause in diagnosis.causes:
        for kind in _OF_CAUSE.get(cause.id) or _OF_GROUP[groups[cause.id]] if cause.id in groups else ():
            found.setdefault(kind, cause.id)
    return found
