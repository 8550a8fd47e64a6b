"""From a loaded run to the object that every report renders. The only module that knows causes and remedies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flatout.diagnose.findings import find
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import next_command, verdict
from flatout.machine.snapshot import Machine
from flatout.measure.build import build_view
from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import repeats_within_pass
from flatout.probe.settings import SETTINGS
from flatout.record import Run
from flatout.remedies import propose
from flatout.results import Diagnosis

FAILED = "{failure}: the figures are of what it did until then"
_RECORDED = (*(name for name, setting in SETTINGS.items() if setting.recorded), "site")


def diagnose(run: Run, refuted: Collection[str] = ()) -> Diagnosis:
    """Diagnose a recorded run.

    For a run without a complete training step, the diagnosis has no ledger and says so.

    Args:
        run: the record.
        refuted: ids of remedies that plans leave out, as trials of them ended badly.
    """
    measured = build_view(run)
    context = Context.of(measured) if measured else None
    causes, not_measured = judge(context) if context else ((), ())
    ending = run.ending
    ended = {"finished": "ended by itself", "failed": "failed"}.get(ending.stop or "", "")
    failure = FAILED.format(failure=ending.failure) if ending.failure else None
    remedies, plans = propose(context, causes, refuted) if context else ((), ())
    return Diagnosis(
        run_id=run.id,
        run_path=str(run.path),
        command=run.command,
        verdict=verdict(context, causes, ended=ended),
        ledger=measured.ledger if measured else None,
        causes=causes,
        not_measured=not_measured,
        remedies=remedies,
        problems=(*([failure] if failure else ()), *run.problems),
        next_command=next_command(
            run.id, run.command, causes, remedies, measured.ledger if measured else None, ended=ended
        ),
        machine=_machine(run),
        findings=find(measured) if measured else (),
        plans=plans,
        loader=_loader(measured.loading) if measured and measured.loading else {},
        stop=ending.stop,
        exit_code=ending.exit_code,
        failure=failure,
    )


def _loader(loader: LoaderStats) -> dict[str, Any]:
    settings = {name: getattr(loader.settings, name) for name in _RECORDED}
    return settings | {
        "data_folder": loader.storage.data_folder,
        "dataset_len": loader.settings.dataset_len,
        "repeats_within_pass": repeats_within_pass(loader),
    }


def _machine(run: Run) -> str:
    try:
        return Machine.from_dict(run.machine).one_line()
    except ValueError as error:
        return f"machine not known: {error}"
