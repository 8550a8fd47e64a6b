"""Workers that are started anew for every pass of the training's DataLoader, or of its validation's."""

from __future__ import annotations

import numpy as np

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.workers import restart_seconds
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent


def _restarts(context: Context, found: Cause) -> str:
    return f"Starting {found.title.replace(' are started', '')} takes {percent(found.share)} of the time."


@cause(
    "data",
    needs_loader=True,
    sentence=_restarts,
)
def worker_restart(context: Context) -> Found | Lacks | None:
    """Workers are started anew for every epoch or validation, and the training waits for them."""
    run, loader = context.run, context.loader
    theirs = run.validation_workers
    own = loader.restarts_workers
    seconds, evidence = _own_restarts(run, loader) if own else (0.0, [])
    occasions = ["epoch"] if evidence else []
    if own and seconds <= 0 and theirs is None:
        return Lacks("workers were restarted, but the time between epochs was not measured")
    if theirs is not None:
        occasions.append("validation")
        seconds += theirs.seconds
        each_s = theirs.seconds / theirs.passes
        evidence.append(
            Evidence(
                f"each pass of the validation starts and ends {counted(round(theirs.workers), 'worker')}: "
                f"{duration(theirs.seconds)} over {counted(theirs.passes, 'pass', 'passes')}, {duration(each_s)} each",
                {"validation_seconds": theirs.seconds, "validation_passes": theirs.passes},
            )
        )
    share = min(seconds / run.ledger.window_s, 1.0) if run.ledger.window_s > 0 else 0.0
    if share < NOISE_SHARE:
        return None
    return Found(
        title=f"workers are started anew for every {' and '.join(occasions)}",
        share=share,
        confidence=0.9,
        evidence=tuple(evidence),
    )


def _own_restarts(run: MeasuredRun, loader: LoaderStats) -> tuple[float, list[Evidence]]:
    """Seconds that the training waits for new workers of its own DataLoader, and what shows it."""
    seconds, first = restart_seconds(run), loader.workers.first_fetch
    if seconds <= 0:
        return 0.0, []
    evidence = [
        Evidence(
            f"{counted(loader.workers.starts_in_window, 'worker')} started after the first epoch had begun: "
            f"{duration(seconds)} over {counted(loader.delivery.epochs_started, 'epoch start')}",
            {"starts": loader.workers.starts_in_window, "seconds": seconds, "epochs": loader.delivery.epochs_started},
        )
    ]
    if len(loader.workers.start_s):
        start_s = float(np.median(loader.workers.start_s))
        method = f" ({loader.settings.start_method})" if loader.settings.start_method else ""
        set_up_s = float(np.median(loader.workers.set_up_s)) if loader.workers.set_up_s is not None else 0.0
        set_up = f", {duration(set_up_s)} of it before its first fetch" if set_up_s > 0.2 * start_s else ""
        text = f"a worker takes {duration(start_s)} to start{method}{set_up}"
        evidence.append(Evidence(text, {"worker_start_s": start_s, "set_up_s": set_up_s}))
    if first.waited_s >= NOISE_SHARE * run.ledger.window_s:
        text = (
            f"the first fetch of a new worker takes {duration(first.mean_s)}, a usual one {duration(first.usual_s)}: "
            f"waiting for these took {duration(first.waited_s)}"
        )
        evidence.append(Evidence(text, {"first_fetch_s": first.mean_s, "first_fetch_waited_s": first.waited_s}))
    if loader.settings.rebuilt:
        text = "the DataLoader itself is built anew: persistent_workers=True alone would keep nothing"
        evidence.append(Evidence(text, {"rebuilt": 1}))
    return seconds, evidence
