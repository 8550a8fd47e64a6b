"""One process: diagnose each case once to warm up and once timed.

The hand-made views of the tests replace the measuring of a record, so that only rules and predictions are timed. Prints
case -> [CPU seconds, fits of the rate model] as JSON. The checkout to time is the working directory; its ``src`` is on
PYTHONPATH.

Usage: python one_round.py VIEWS(0|1) [RECORD ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, ".")

from flatout import diagnosis
from flatout.predict import rate_model
from flatout.record import load_run
from tests.diagnose import views

VIEWS = ("starved", "saturated", "remote", "healthy", "crowded", "locked", "without_workers")


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of this process: the wall time depends on what else the machine does."""
    begin_s = time.process_time()
    work()
    return time.process_time() - begin_s


def count_fits() -> list[int]:
    """Count the calls of the innermost step of a fit, wherever ``fit`` itself was imported to."""
    calls = [0]
    inner = rate_model._resample

    def counted(*given: Any) -> Any:
        calls[0] += 1
        return inner(*given)

    rate_model._resample = counted
    return calls


def main(with_views: bool, records: list[Path]) -> None:
    """Print the figures as JSON."""
    calls, figures = count_fits(), {}

    def timed(name: str, work: Callable[[], Any]) -> None:
        work()
        before = calls[0]
        spent_s = cpu_s(work)
        figures[name] = [spent_s, calls[0] - before]

    measure = diagnosis.build_view
    for path in records:
        run = load_run(path)
        view = measure(run)
        timed(f"{path.name}: whole diagnosis", lambda run=run: diagnosis.diagnose(run))
        diagnosis.build_view = lambda _, view=view: view
        timed(f"{path.name}: rules and predictions", lambda run=run: diagnosis.diagnose(run))
        diagnosis.build_view = measure
    stub: Any = SimpleNamespace(id="hand-made", path=Path(), command=("python",), problems=(), machine={})
    for name in VIEWS if with_views else ():
        hand_made = getattr(views, name)()
        diagnosis.build_view = lambda _, view=hand_made: view
        timed(name, lambda: diagnosis.diagnose(stub))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1] == "1", [Path(path) for path in sys.argv[2:]])
