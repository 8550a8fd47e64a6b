"""Three short runs of the unchanged command: unmodified, with batches replayed, and with the loader alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.compare.speed import measure, speed_of
from flatout.errors import CommandError, Interrupted, UsageError
from flatout.measure.training import find_training
from flatout.probe.contract import (
    CEILING_DEVICE,
    CEILING_SECONDS_VARIABLE,
    CEILING_SUPPLY,
    CEILING_VARIABLE,
    SUPPLY_COLD_METRIC,
    SUPPLY_WARM_METRIC,
)
from flatout.record import load_run
from flatout.runner import Bounds, Outcome, record
from flatout.runner.failure import explain


@dataclass(frozen=True)
class Ceilings:
    """Rates in samples/s. None: not measured.

    Attributes:
        train_sps: the unchanged training.
        device_sps: batches replayed: the rate that the model and the loop could reach.
        loader_cold_sps: the data path alone, batches not read before.
        loader_warm_sps: the same batches again, with their bytes in memory if the system caches them.
    """

    train_sps: float
    device_sps: float
    loader_cold_sps: float | None
    loader_warm_sps: float | None

    @property
    def headroom(self) -> float:
        """Speedup of the training if batches cost nothing."""
        return self.device_sps / self.train_sps

    def parts(self) -> dict[str, float]:
        """Shares of the time of a sample, which add up to 1; empty where the data path was not measured alone.

        - device: 1 / device rate
        - preparation: additional time of the data path with the bytes in memory (on new batches if no
          others were measured)
        - io: additional time of the data path on new batches compared with repeated ones
        - overlap_loss: time lost because both run at the same time: shared cores, hand-over, pauses
        """
        if self.loader_cold_sps is None:
            return {}
        cold_sps = min(self.loader_cold_sps, self.device_sps)
        again_sps = self.loader_warm_sps if self.loader_warm_sps is not None else cold_sps
        warm_sps = max(min(again_sps, self.device_sps), cold_sps)
        shares = [self.train_sps / self.device_sps, self.train_sps / warm_sps, self.train_sps / cold_sps, 1.0]
        # A run that was faster than its parts alone lost nothing by running them together.
        shares = [min(share, 1.0) for share in shares]
        names = ("device", "preparation", "io", "overlap_loss")
        return {name: share - before for name, share, before in zip(names, shares, [0.0, *shares], strict=False)}


def measure_ceilings(command: Sequence[str], seconds: float, runs_dir: Path, quiet: bool = False) -> Ceilings:
    """Run the command three times, for about ``seconds`` of measuring each.

    Raises:
        CommandError: it failed, or trained no step.
        UsageError: no DataLoader feeds it.
        RecordError: too few steps were seen.
    """
    bounds = Bounds(seconds=seconds)
    _say("run 1 of 3: the training as it is", quiet)
    first = load_run(_trained(record(command, runs_dir, bounds, quiet=True, stdout_to_stderr=True, trace=False)))
    live, training = speed_of(first), find_training(first)
    if live.batch is None or training is None or training.loader is None:
        raise UsageError("no DataLoader feeds this training, or its batches hold no tensors: nothing can be replayed")
    _say("run 2 of 3: the same with batches replayed", quiet)
    replayed = record(
        command,
        runs_dir,
        bounds,
        quiet=True,
        stdout_to_stderr=True,
        trace=False,
        environment={CEILING_VARIABLE: CEILING_DEVICE},
    )
    device = measure(_trained(replayed))
    _say("run 3 of 3: the data path alone", quiet)
    alone = record(
        command,
        runs_dir,
        bounds,  # reached only by a training without a DataLoader: the others end by themselves
        quiet=True,
        stdout_to_stderr=True,
        trace=False,
        environment={CEILING_VARIABLE: CEILING_SUPPLY, CEILING_SECONDS_VARIABLE: str(seconds / 2)},
    )
    if alone.signal:
        raise Interrupted(alone.signal)
    rates = {name: value for process in load_run(alone.run).processes for name, value in process.metrics()}
    # In the folder of runs, these would be mistaken for the unchanged training.
    shutil.rmtree(alone.run, ignore_errors=True)
    shutil.rmtree(replayed.run, ignore_errors=True)
    return Ceilings(live.rate, device.rate, rates.get(SUPPLY_COLD_METRIC), rates.get(SUPPLY_WARM_METRIC))


def _trained(outcome: Outcome) -> Path:
    if outcome.signal:
        raise Interrupted(outcome.signal)
    if not outcome.live.first_step_ns or outcome.stop == "failed":
        raise CommandError(*explain(outcome))
    return outcome.run


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        print(f"flatout: {text}", file=sys.stderr, flush=True)
