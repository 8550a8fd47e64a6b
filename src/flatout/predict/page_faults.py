"""The time of page faults as a change of the model's inputs."""

from __future__ import annotations

import mmap
from dataclasses import dataclass

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import removed

# Zeroed pages push others out of the caches: without faults, the steps of nine trainings became shorter by 0.9 to 1.3
# times the time in them, 1.2 times in the median (docs/measurements/page-faults.md). A tenth one by 1.7 times.
_USUAL, _LEAST, _MOST = 1.2, 0.85, 1.4
_MOST_PART = 0.9


@dataclass(frozen=True)
class FaultParts:
    """The parts of the CPU time that page faults take, 0..1.

    Attributes:
        step: of the training process; 0 where a GPU computes.
        fetch: of the processes that fetch batches.
    """

    step: float
    fetch: float

    def change(self, context: Context, factor: float = _USUAL) -> Change:
        """The change that leaves them out, with a factor on their time."""
        step, fetch = (min(factor * part, _MOST_PART) for part in (self.step, self.fetch))
        return Change(
            step_removed_s=removed(context, step).step_removed_s,
            step_cpu_removed_s=removed(context, step).step_cpu_removed_s,
            fetch_cpu_factor=1.0 - fetch,
        )

    def least(self, context: Context) -> Change:
        """The least that leaving them out may give."""
        return self.change(context, _LEAST)

    def most(self, context: Context) -> Change:
        """The most that leaving them out may give."""
        return self.change(context, _MOST)


def fault_parts(context: Context) -> FaultParts | None:
    """The parts that faults take; None: they were not counted, or there is no step to shorten."""
    run = context.run
    main, workers = run.usage.main_faults, run.usage.worker_faults
    if context.fitted is None or main is None:
        return None
    loader, handed = run.loading, 0.0
    if loader is not None and loader.settings.num_workers and run.ledger.window_s > 0:
        # A batch from a worker lies in shared memory, which both processes map anew.
        pages = (loader.delivery.batch_bytes or 0) / mmap.PAGESIZE
        handed = pages * context.model.batches / run.ledger.window_s
    in_main = main.part(handed)
    if loader is None or not loader.settings.num_workers:
        fetch = in_main if loader is not None else 0.0
    else:
        fetch = workers.part(handed) if workers is not None else 0.0
    # What a compiler allocates is not what every step does.
    of_steps = 1.0 - run.ledger.share("compile")
    return FaultParts(of_steps * in_main if run.uses_gpu is False else 0.0, fetch)
