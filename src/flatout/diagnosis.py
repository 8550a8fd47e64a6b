"""The whole way from a loaded run to the object that every report renders."""

from __future__ import annotations

from typing import Any

from flatout.diagnose.findings import find
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import next_command, verdict
from flatout.machine.snapshot import Machine
from flatout.measure.build import build_view
from flatout.measure.measured_run import MeasuredRun
from flatout.probe.settings import SETTINGS
from flatout.record import Run
from flatout.remedies import propose
from flatout.results import Diagnosis

_LOADER = (
    *(name for name, setting in SETTINGS.items() if setting.recorded),
    "site",
    "data_folder",
    "dataset_len",
)


def diagnose(run: Run) -> Diagnosis:
    """Diagnose a recorded run.

    A run without a complete training step gives a diagnosis without a ledger, and says so.
    """
    view = build_view(run)
    causes, not_measured = judge(view) if view else ((), ())
    remedies, plans = propose(view, causes) if view else ((), ())
    return Diagnosis(
        run_id=run.id,
        run_path=str(run.path),
        command=run.command,
        verdict=verdict(view, causes),
        ledger=view.ledger if view else None,
        causes=causes,
        not_measured=not_measured,
        remedies=remedies,
        problems=run.problems,
        next_command=next_command(run.id, run.command, causes, remedies),
        machine=_machine(run),
        findings=find(view) if view else (),
        plans=plans,
        loader=_loader(view),
    )


def _loader(view: MeasuredRun | None) -> dict[str, Any]:
    if view is None or view.loading is None:
        return {}
    return {name: getattr(view.loading, name) for name in _LOADER}


def _machine(run: Run) -> str:
    try:
        return Machine.from_dict(run.machine).one_line()
    except ValueError as error:
        return f"machine not known: {error}"
