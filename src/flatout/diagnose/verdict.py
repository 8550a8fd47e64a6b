"""One plain sentence that says what holds the run back, and the command to type next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.diagnose.causes import BY_ID, HEALTHY
from flatout.diagnose.sentences import waiting, workers_do
from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.thresholds import DOMINANT_SHARE, LEADING_SHARE, LEAST_STEPS, MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.results import Cause, Ledger, Remedy
from flatout.terminal_text import shell_line
from flatout.units import percent

DIAGNOSED_STEPS = 12  # more than a comparison needs
NO_STEP = "No training step was seen, so there is nothing to diagnose."
ONE_STEP = "Only one training step was complete: record for longer, such as with --steps 12."
_GOES_ON = "a diagnosis needs one that goes on, such as for more epochs"


def verdict(context: Context | None, causes: Sequence[Cause], *, ended: str = "") -> str:
    """Say in one sentence where the time goes.

    Args:
        context: the measured run with its model; None when no training step was seen.
        causes: in rank order.
        ended: how the training came to its own end, as in "ended by itself" or "failed", so that no more of it can be
            recorded; empty: it did not.
    """
    if context is None:
        return NO_STEP
    run = context.run
    if run.ledger.window_s <= 0 or run.ledger.steps.count == 0:
        return f"Only one training step was complete {_before(ended)}." if ended else ONE_STEP
    if run.ledger.steps.count < LEAST_STEPS:
        steps = run.ledger.steps.count
        only = "one step was" if steps == 1 else f"{steps} steps were"
        if ended:
            return f"Only {only} complete {_before(ended)}."
        return f"Only {only} complete{_largest_part(run.ledger)}: record longer with --seconds {_longer_s(run.ledger)}."
    if not causes or (causes[0].id != HEALTHY and causes[0].share < LEADING_SHARE):
        return _unexplained(context)
    leading = causes[0]
    sentence = BY_ID[leading.id].sentence
    if sentence is not None:
        return sentence(context, leading)
    return f"{leading.title[:1].upper()}{leading.title[1:]}: {percent(leading.share)} of the time."


def _before(ended: str) -> str:
    return f"before the training {ended}: {_GOES_ON}"


def _largest_part(ledger: Ledger) -> str:
    """What took most of the time, where it is not the computation that a step is for."""
    largest = max(ledger.accounts, key=lambda account: account.seconds, default=None)
    if largest is None or largest.id in COMPUTE_ACCOUNTS or largest.share < DOMINANT_SHARE:
        return ""
    return f", and {largest.label} took {percent(largest.share)} of the time"


def _longer_s(ledger: Ledger) -> int:
    """Seconds that hold enough steps for a diagnosis."""
    return max(math.ceil(DIAGNOSED_STEPS * ledger.window_s / ledger.steps.count), 1)


def next_command(
    run_id: str,
    command: Sequence[str],
    causes: Sequence[Cause],
    remedies: Sequence[Remedy] = (),
    ledger: Ledger | None = None,
    *,
    ended: str = "",
) -> str:
    """The command to type next.

    Args:
        run_id: id of the diagnosed run.
        command: the recorded training command.
        ledger: of the run; None: it holds no complete step.
        causes: in rank order.
        remedies: ``flatout fix`` tries those that it can put into the command.
        ended: as for ``verdict``.
    """
    if not command:  # a record that is damaged
        return "flatout runs"
    if ended and (ledger is None or ledger.steps.count < LEAST_STEPS):
        return f"flatout profile --full -- {shell_line(command)}"
    if ledger is not None and 0 < ledger.steps.count < LEAST_STEPS:
        return f"flatout profile --seconds {_longer_s(ledger)} -- {shell_line(command)}"
    if causes and ledger is not None and not ledger.steps.count:  # it is seen beside the steps, such as a validation
        return f"flatout profile --steps {DIAGNOSED_STEPS} -- {shell_line(command)}"
    # What has to be prepared first, such as a copy of the data, has no settings yet: fix prepares it.
    tried = {r.cause for r in remedies if (r.settings or r.mechanics) and r.semantic_class == "identical"}
    healthy = bool(causes) and causes[0].id == HEALTHY
    if tried and (healthy or not causes or causes[0].id in tried):
        return f"flatout fix -- {shell_line(command)}"
    if healthy:
        return f"flatout report {run_id} --markdown"
    # Other last bits are worth a trial where nothing else helps; another result is the user's own choice.
    if causes and any(r.settings and r.cause == causes[0].id and r.semantic_class == "numerics" for r in remedies):
        return f"flatout fix --allow numerics -- {shell_line(command)}"
    if any(causes[0].id == cause.hidden_by for cause in causes if cause.id in tried):
        return f"flatout fix -- {shell_line(command)}"
    if causes:  # to be removed by hand
        return f"flatout explain {causes[0].id}"
    # A training may have no end.
    longer = "--full" if ledger is not None and ledger.steps.count else "--steps 12"
    return f"flatout profile {longer} -- {shell_line(command)}"


def _unexplained(context: Context) -> str:
    """No cause has a material share: name the largest part of the time only."""
    run = context.run
    wait = run.ledger.account("batch_wait")
    if wait and wait.share >= MATERIAL_SHARE:
        if context.fitted is not None and context.fitted.most(Change()) < 1.0 + NOISE_SHARE:
            return (
                f"{waiting(run)}, yet a step takes as long with its batch already there: "
                "no change of the input would make it faster."
            )
        parts = max(wait.children, key=lambda part: part.seconds, default=None)
        most = f" (most of it: {parts.label}, {percent(parts.share)})" if parts else ""
        computing = run.seconds(*COMPUTE_ACCOUNTS) / run.ledger.window_s
        rest = f" The model's own computation takes {percent(computing)}." if computing >= MATERIAL_SHARE else ""
        return f"{waiting(run)}{most}: {workers_do(run)}, and no known cause explains most of it.{rest}"
    if not run.ledger.accounts:
        return "No cause was found, and the time of the steps could not be divided."
    largest = max(run.ledger.accounts, key=lambda account: account.seconds)
    return f"No cause stands out: the largest part of the time is {largest.label}, {percent(largest.share)}."
