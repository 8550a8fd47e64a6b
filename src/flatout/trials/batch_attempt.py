"""One call of ``flatout batch-size``: its folder, its runs, and nothing left of them afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flatout.runner import Bounds
from flatout.trials.batch_finding import Finding, SizeOptions
from flatout.trials.batch_sizes import BatchSizes
from flatout.trials.isolation import find_isolation
from flatout.trials.locations import SettingLocations
from flatout.trials.outcome import FAILED
from flatout.trials.own_folder import own_folder
from flatout.trials.progress import ProgressLog
from flatout.trials.sweeper import OUTPUT, clean
from flatout.trials.trial_run import TrialSetup


def find_batch_size(locations: SettingLocations, options: SizeOptions, folder: Path, quiet: bool = False) -> BatchSizes:
    """Search for the batch size of a training.

    Args:
        locations: the unchanged command, and where it has settings.
        options: limits.
        folder: where runs are made.
        quiet: no progress.

    Raises:
        UsageError: the budget is too small, or a limit excludes the command's own batch size.
        CommandError: the command cannot be started, fails, or its batch size cannot be set.
    """
    with own_folder(folder.absolute(), "flatout batch-size") as own:
        setup = TrialSetup(locations.command, own, own / "runs", Bounds(), find_isolation(own), locations=locations)
        found = Finding(setup, options, ProgressLog(quiet)).run()
        if any(one.outcome == FAILED for one in found.sizes):
            found = replace(found, log=str(folder / OUTPUT))
    clean(folder, keep=(OUTPUT,) if found.log else ())
    return found
