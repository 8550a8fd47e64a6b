"""The result of `flatout read`: what the logs say together, what is claimed, what cannot be known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flatout.logs.claims import Claim, check_claims
from flatout.logs.claims.factors import step_parts
from flatout.logs.facts import EpochTime, FileFacts
from flatout.logs.projection import Projection, project
from flatout.logs.reading import read_files
from flatout.logs.throughput import COLD, Cold, cold_start, measured_epochs, samples_rate
from flatout.units import duration

FARTHEST_ZONES_S = 14 * 3600.0  # UTC+14, beside a log in UTC


@dataclass(frozen=True)
class Epoch:
    """A row of the throughput table; ``rate_sps``: samples/s, None where the log has no batch size."""

    time: EpochTime
    rate_sps: float | None


@dataclass(frozen=True)
class FileResult:
    """One file: its facts, and what follows from them."""

    facts: FileFacts
    epochs: tuple[Epoch, ...]
    cold: Cold | None
    projection: Projection | None


@dataclass(frozen=True)
class Joined:
    """Use of a device, from one file, while another file's training ran.

    Attributes:
        training: File of the training.
        usage: File of the samples.
        name: Of the samples, such as "gpu0 utilisation".
        mean: Their mean in the common time; None: the times do not overlap.
        idle: Share of them below a twentieth.
        samples: How many lay in it.
        seconds: Length of that time.
        why: Why there is no mean.
    """

    training: str
    usage: str
    name: str
    mean: float | None
    idle: float | None
    samples: int
    seconds: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Unknown:
    """Something that the logs do not say, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Postmortem:
    """All that was read.

    Attributes:
        files: In the order given.
        joined: Device use while a training ran.
        claims: Verdicts, file by file.
        unknown: What no line says.
        command: The one command that would tell it.
    """

    files: tuple[FileResult, ...]
    joined: tuple[Joined, ...]
    claims: tuple[Claim, ...]
    unknown: tuple[Unknown, ...]
    command: str


def read_logs(paths: list[Path]) -> Postmortem:
    """Read logs of others.

    Args:
        paths: Files, or folders with logs.

    Raises:
        UsageError: a path is missing, unreadable, or no log.
    """
    files = read_files(paths)
    results = tuple(_result(facts) for facts in files)
    return Postmortem(
        results, tuple(_join(files)), tuple(check_claims(files)), tuple(_unknown(results)), "flatout profile -- COMMAND"
    )


def _result(facts: FileFacts) -> FileResult:
    times = measured_epochs(facts)
    cold = cold_start(times)
    epochs = tuple(Epoch(one, samples_rate(facts, one)) for one in times)
    return FileResult(facts, epochs, cold if cold and cold.ratio >= COLD else None, project(facts))


def _join(files: list[FileFacts]) -> list[Joined]:
    """Samples of one file within the time of a training in another."""
    found = []
    for training in files:
        if not (training.epochs or training.metrics) or training.timed:
            continue
        for usage in files:
            names = sorted({name for _, name, _ in usage.timed})
            if usage is not training:
                found += [_overlap(training, usage, name) for name in names]
    return found[:64]


def _overlap(training: FileFacts, usage: FileFacts, name: str) -> Joined:
    if training.from_s is None or training.to_s is None:
        why = f"{training.file} writes no times: it cannot be laid beside {usage.file}"
        return Joined(training.file, usage.file, name, None, None, 0, why=why)
    inside = [value for at, known, value in usage.timed if known == name and training.from_s <= at <= training.to_s]
    if not inside:
        return Joined(training.file, usage.file, name, None, None, 0, why=_apart(training, usage))
    idle = sum(value < 0.05 for value in inside) / len(inside)
    seconds = training.to_s - training.from_s
    return Joined(training.file, usage.file, name, sum(inside) / len(inside), idle, len(inside), seconds)


def _apart(training: FileFacts, usage: FileFacts) -> str:
    """Why no sample lies in the training's time; a zone that is not written may be why, if it could be one."""
    why = "their times do not overlap"
    unzoned = [one.file for one in (training, usage) if not one.zoned]
    times = [at for at, _, _ in usage.timed]
    gap_s = max(min(times) - (training.to_s or 0.0), (training.from_s or 0.0) - max(times), 0.0)
    if gap_s > FARTHEST_ZONES_S:
        return f"{why}: {duration(gap_s)} lie between them"
    if not unzoned:
        return why
    return f"{why}; {' and '.join(unzoned)} {'writes' if len(unzoned) == 1 else 'write'} times without a zone"


def _ended(result: FileResult) -> bool:
    """True if one count of all steps reached its end: a count of epochs may go on."""
    last = result.epochs[-1].time
    return last.epoch is None and last.total is not None and last.complete


def _unknown(results: tuple[FileResult, ...]) -> list[Unknown]:
    found = []
    epochs = [one for result in results for one in result.epochs]
    divided = any(step_parts(result.facts) is not None for result in results)
    if not divided and not any(one.time.waiting is not None for one in epochs):
        found.append(
            Unknown(
                "where the time of a step goes",
                "no line that flatout understands divides it into waiting and computing",
            )
        )
    totals = [total for result in results for total in result.facts.totals]
    if not epochs and not any("its" in total.values for total in totals):
        found.append(Unknown("the throughput", "no line that flatout understands counts steps and times them"))
    elif all(one.rate_sps is None for one in epochs) and not any("samples_s" in total.values for total in totals):
        found.append(Unknown("samples/s", "no line that flatout understands gives the batch size"))
    if not any("utilisation" in name for result in results for name in result.facts.usage):
        found.append(Unknown("how busy the GPU was", "no log of nvidia-smi, W&B or the like was given"))
    if (
        epochs
        and not all(_ended(result) for result in results if result.epochs)
        and all(result.projection is None for result in results)
        and not any(r.facts.setting("epochs") for r in results)
    ):
        found.append(Unknown("when it ends", "no line that flatout understands says how much there is to do"))
    return found
