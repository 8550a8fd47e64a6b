"""One call of ``flatout try``: its folder, its candidates, its runs, and nothing left of them afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flatout.errors import UsageError
from flatout.runner import Bounds
from flatout.trials.candidates import Given, read_candidates
from flatout.trials.isolation import NAMESPACE, find_isolation
from flatout.trials.locations import find_locations
from flatout.trials.outcome import FAILED, OUT_OF_MEMORY
from flatout.trials.own_folder import own_folder
from flatout.trials.progress import ProgressLog
from flatout.trials.sweeper import OUTPUT, clean
from flatout.trials.trial_run import TrialSetup
from flatout.trials.try_result import DIVERGED, UNMEASURED, TryResult
from flatout.trials.trying import Trying, TryOptions

_KEEPS_OUTPUT = (FAILED, OUT_OF_MEMORY, DIVERGED, UNMEASURED)


def attempt(words: tuple[str, ...], given: Given, options: TryOptions, folder: Path, quiet: bool = False) -> TryResult:
    """Judge the candidates.

    Args:
        words: the unchanged command.
        given: the candidates, as written.
        options: limits.
        folder: where runs are made.
        quiet: no progress.

    Raises:
        UsageError: a candidate cannot be made, or the budget is too small.
        CommandError: a command cannot be started, or the unchanged one fails.
    """
    with own_folder(folder.absolute(), "flatout try") as own:
        here = Path.cwd()
        candidates = read_candidates(given, words, own / "changes", here)
        isolation = find_isolation(own)
        changed = next((one for one in candidates if one.patched.files), None)
        if changed is not None and isolation.kind != NAMESPACE:
            raise UsageError(
                f"{changed.title}: needs a private view of the disks, and this machine gives none "
                f"({isolation.because}): make the change in a copy, and name that with --command"
            )
        setup = TrialSetup(words, own, own / "runs", Bounds(), isolation, locations=find_locations(words, None, ()))
        tried = Trying(setup, options, candidates, ProgressLog(quiet)).run()
        if any(one.outcome in _KEEPS_OUTPUT for one in tried.candidates):
            tried = replace(tried, log=str(folder / OUTPUT))
    clean(folder, keep=(OUTPUT,) if tried.log else ())
    return tried
