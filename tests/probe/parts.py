"""Run one of the scripts in scripts/, and look at one part of it at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flatout.record import Events, ProcessRecord
from tests.probe import recorded
from tests.probe.recorded import Recorded

SCRIPTS = Path(__file__).parent / "scripts"


def probed_script(folder: Path, name: str, *arguments: str, env: dict[str, str] | None = None) -> Recorded:
    """Run a script of scripts/ under the probe; it must succeed without a fault of the probe."""
    ran = recorded.run_probed(folder, (SCRIPTS / name).read_text(), *arguments, env=importing(env))
    assert ran.code == 0, ran.err[-3000:]
    assert ran.faults() == []
    return ran


def bare_script(folder: Path, name: str, *arguments: str) -> Recorded:
    """Run the same script without the probe."""
    ran = recorded.run_bare(folder, (SCRIPTS / name).read_text(), *arguments, env=importing(None))
    assert ran.code == 0, ran.err[-3000:]
    return ran


def importing(env: dict[str, str] | None) -> dict[str, str]:
    """An environment in which scripts find the modules that they share."""
    return {"PYTHONPATH": str(SCRIPTS), **(env or {})}


def told(ran: Recorded) -> dict[str, Any]:
    """What a script said about itself on standard error, one JSON object a line."""
    said: dict[str, Any] = {}
    for line in ran.err.splitlines():
        if line.startswith("{"):
            said.update(json.loads(line))
    return said


def span(ran: Recorded, part: str) -> tuple[int, int]:
    """When a part of a script began and ended, ns of CLOCK_MONOTONIC."""
    start, end = told(ran)["part " + part]
    return start, end


def within(ran: Recorded, part: str, process: ProcessRecord | None = None) -> Events:
    """The events of a process (the one that trained) that lie wholly within one part of a script."""
    start, end = span(ran, part)
    events = (process or ran.main).events
    return events[(events["start"] >= start) & (events["start"] + events["duration"] <= end)]


def counts(events: Events, *kinds: int) -> tuple[int, ...]:
    """How many events there are of each kind."""
    return tuple(int((events["kind"] == kind).sum()) for kind in kinds)


def texts(process: ProcessRecord, events: Events, kind: int) -> list[str]:
    """What ``arg`` names in each event of a kind, in order."""
    return [process.names.text(int(event["arg"])) for event in events[events["kind"] == kind]]
