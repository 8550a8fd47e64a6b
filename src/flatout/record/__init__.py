"""The run folder, read back: docs/record-format.md describes it."""

from flatout.record.ending import Ending, ending_of
from flatout.record.events import EVENT_DTYPE, Events, ends, no_events, of_kinds
from flatout.record.folder import RUNS_FOLDER, RunEntry, find_run, list_runs
from flatout.record.names import Names
from flatout.record.run import ProcessRecord, Run, load_run

__all__ = [
    "EVENT_DTYPE",
    "RUNS_FOLDER",
    "Ending",
    "Events",
    "Names",
    "ProcessRecord",
    "Run",
    "RunEntry",
    "ending_of",
    "ends",
    "find_run",
    "list_runs",
    "load_run",
    "no_events",
    "of_kinds",
]
