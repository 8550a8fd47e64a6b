"""Functions that only report, called less often."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from flatout.measure.called_functions import METRICS, REPORTS, CalledFunction, package_of
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.probe.settings import SETTINGS
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause

EVERY = 10
RARELY = 50  # as often as Lightning logs by default
_STILL_MUCH = 0.15  # of a step that a tenth of the calls would take
LEAST_SHARE = 0.03  # of the window: a function with less is not worth a trial
IN_ONE_FUNCTION = 0.6  # of the time in validation, or in checkpoints: a remedy for one function is worth it
_MOST = 3
_COMPUTED = 0.9  # of the call of a metric, that its value takes; the rest gathers what it needs
# Names of functions that make or convert what the training goes through next, as get_train_loader.
_MAKES = re.compile(
    r"loader|data_?set|sampler|(^|\.)_*(to|as)_?(tensor|numpy|torch|variable|device|gpu|cuda)|"
    r"(^|\.)_*(get|make|load|next|random|draw|fetch|create|build|prepare|generate)_?.*(batch|data|set|input|sample|pair)",
    re.IGNORECASE,
)
# Of those that keep what the training takes later, as a memory of episodes does, or go on with it.
_KEEPS = re.compile(
    r"(^|[._])(add|push|append|store|remember|memori[sz]e|insert|put|enqueue|extend|step|reset|act)(_|$)", re.IGNORECASE
)
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")
_BASIS = "measured time of its calls; the losses have to stay the same bit for bit"


@remedy(("main_process_work", "logging"), IDENTICAL, risk="medium")
def report_less(context: Context, cause: Cause) -> Proposal | None:
    """Call what only reports in every tenth step, or less often where a tenth of it would still be much."""
    window_s = context.run.ledger.window_s
    called = sorted((one for id in ("host_other", "logging") for one in context.run.called(id)), key=_by_time)
    reporting = [one for one in called if not _is_needed(one)]
    costly = [one for one in reporting if one.seconds >= LEAST_SHARE * window_s][:_MOST]
    if not costly:
        return None
    all_s = sum(one.seconds for one in costly) / context.model.batches
    tenth_s = all_s / EVERY
    every = RARELY if tenth_s > _STILL_MUCH * (context.model.now.total_s - all_s + tenth_s) else EVERY
    settings = calls_every(costly, every)
    if settings is None:
        return None
    return Proposal(
        title=f"call {_titled(costly)} in every {every}th step",
        change=shorter_step((1 - 1 / every) * all_s),
        least=Change(),
        how=f"if step % {every} == 0: {costly[0].name.rpartition('.')[2]}(...), if it only reports: one line of its "
        f"log in {every} is left",
        settings=settings,
        basis=_BASIS,
        memory_bytes=0,
    )


@remedy(("main_process_work",), IDENTICAL, risk="low")
def metrics_at_end(context: Context, cause: Cause) -> Proposal | None:
    """Gather what metrics need in each step, and compute them once in a pass."""
    functions = context.run.called(METRICS)
    all_s = sum(one.seconds for one in functions) / context.model.batches
    if all_s < LEAST_SHARE * context.model.now.total_s:
        return None
    return Proposal(
        title="update metrics in each step, and compute them once in a pass",
        change=shorter_step(_COMPUTED * all_s),
        least=Change(),
        most=shorter_step(all_s),
        how="metric.update(output, target) in place of metric(output, target), which computes the value of each batch "
        "too; metric.compute() and metric.reset() at the end of the pass; functions of scikit-learn there only",
        basis=f"measured time of {functions[0].name} ({package_of(functions[0].file)}); updating is assumed to take a "
        "tenth of it, where the batch's own value is used nowhere",
        memory_bytes=0,
    )


@remedy(("checkpoint",), IDENTICAL, risk="medium")
def fewer_checkpoints(context: Context, cause: Cause) -> Proposal | None:
    """Write every tenth checkpoint, where one function writes them."""
    all_s = context.run.seconds("checkpoint")
    writer = context.run.called("checkpoint")[:1]
    settings = calls_every(writer, EVERY)
    if not writer or settings is None or writer[0].seconds < IN_ONE_FUNCTION * all_s:
        return None
    return Proposal(
        title=f"write every {EVERY}th checkpoint: call {_titled(writer)} in every {EVERY}th step that calls it",
        change=Change(between_steps_removed_s=(1 - 1 / EVERY) * writer[0].seconds / context.model.batches),
        least=Change(),
        how=f"if step % ({EVERY} * save_every) == 0; save_steps={EVERY} * save_steps of transformers",
        settings=settings,
        basis=f"{_BASIS}; a crash loses up to {EVERY} times as much training",
        memory_bytes=0,
    )


def calls_every(functions: Sequence[CalledFunction], every: int) -> dict[str, str] | None:
    """The setting that calls functions in every so many steps; None: one of them has a name that cannot be given."""
    text = ",".join(f"{setting_name(one.file, one.name)}:{every}" for one in functions)
    return {"call_every": text} if re.fullmatch(SETTINGS["call_every"].form, text) else None


def listed(names: Sequence[str], last: str) -> str:
    """Qualified names of functions in a sentence, with the word before the last one."""
    short = [name.replace(".<locals>", "") for name in names]
    return short[0] if len(short) == 1 else f"{', '.join(short[:-1])} {last} {short[-1]}"


def setting_name(file: str, name: str) -> str:
    """FILE:FUNCTION, as settings name a function."""
    return f"{_shown(file)}:{name.replace('.<locals>', '')}"


def _titled(functions: Sequence[CalledFunction]) -> str:
    return listed([f"{one.name} ({PurePath(one.file).name})" for one in functions], "and")


def _is_needed(called: CalledFunction) -> bool:
    """Whether the training is another one without some of the calls."""
    keeps = _KEEPS.search(called.name) and not REPORTS.search(called.name)
    return bool(called.changes_tensors or called.feeds_step or keeps or _MAKES.search(called.name))


def _by_time(called: CalledFunction) -> float:
    return -called.seconds


def _shown(file: str) -> str:
    """A file as settings name it: below the working folder or that of packages, else by its last two parts."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    if _INSTALLED.search(path.as_posix()):
        return _INSTALLED.sub("", path.as_posix())
    return "/".join(path.parts[-2:]).lstrip("/")
