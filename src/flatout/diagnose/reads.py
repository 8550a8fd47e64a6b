"""Reads of values from the GPU: what they lose, and the training's own code on the lines that read."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.results import Line

_MOST_LINES = 20
_MOSTLY = 3.0  # times what a line waits in its reads: beyond that, it mostly does something else (assumed)


def host_share(run: MeasuredRun) -> float:
    """Share of the time that the host spends on something other than feeding the GPU."""
    accounts = ("host_other", "logging", "checkpoint", "validation", "epoch_boundary")
    return run.seconds(*accounts) / run.ledger.window_s


def lost_in_reads(run: MeasuredRun) -> float:
    """Share of the time that reads lose; 0 where it is too little, or the GPU's busy time is not known.

    A read waits for kernels that had to run anyway. Only the GPU's idle time is lost, less the idle time that the wait
    for batches and other host work explain.
    """
    if not run.uses_gpu or run.usage.device_busy_share is None:
        return 0.0
    idle = 1.0 - run.usage.device_busy_share - run.ledger.share("batch_wait") - host_share(run)
    lost = min(run.ledger.share("device_sync"), idle)
    return lost if lost >= NOISE_SHARE else 0.0


def beside_reads(run: MeasuredRun) -> tuple[Line, ...]:
    """The training's own code on lines that read values back: after each read the GPU has nothing to do meanwhile.

    Not that of lines which mostly do something else, such as writing a picture; none where reads lose nothing.
    """
    if not lost_in_reads(run):
        return ()
    reads = {(line.file, line.line): line.seconds for line in run.lines("device_sync", _MOST_LINES)}
    own = run.lines("host_other", _MOST_LINES)
    return tuple(line for line in own if line.seconds <= _MOSTLY * reads.get((line.file, line.line), 0.0))
