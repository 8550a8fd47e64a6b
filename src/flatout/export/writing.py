"""Write runs as one trace file, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from flatout.atomic_file import replacing
from flatout.diagnosis import diagnose
from flatout.errors import UsageError
from flatout.export.archive import kernel_traces, write_archive
from flatout.export.chrome import write_chrome
from flatout.export.named_causes import causes_by_kind
from flatout.export.perfetto import write_perfetto
from flatout.export.run_tracks import run_timeline, time_of_steps
from flatout.export.speedscope import write_speedscope
from flatout.export.timeline import Timeline
from flatout.measure.training import find_training
from flatout.record import Run
from flatout.units import counted, size

LARGEST = 500_000_000  # bytes: viewers in a browser give up at one to three GB
# Measured on runs with all kinds of slices: docs/measurements/trace.md.
_BYTES_A_SLICE = {"perfetto": 75, "chrome": 230}


@dataclass(frozen=True)
class Request:
    """What to write.

    Attributes:
        format: "perfetto", "chrome" or "speedscope".
        steps: first and last training step, counted from 0; None: everything.
        ranks: of a distributed training; None: all.
        full: also what is larger than ``LARGEST``.
    """

    format: str
    steps: tuple[int, int] | None = None
    ranks: frozenset[int] | None = None
    full: bool = False


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        path: the file.
        bytes: its size.
        slices: spans in it; of speedscope samples.
        format: as requested.
        kernels: kernel traces in it.
        notes: what is missing in it, and why.
    """

    path: Path
    bytes: int
    slices: int
    format: str
    kernels: int
    notes: tuple[str, ...]


def write_trace(runs: Sequence[Run], request: Request, output: Path | None, *, force: bool = False) -> Written:
    """Write runs into one file.

    Args:
        runs: of one training on several machines, whose clocks agree; or one.
        request: what to write.
        output: the file; None: named after the first run, in the working directory.
        force: overwrite a file.

    Raises:
        UsageError: it would be empty or too large, or the file exists or cannot be written.
    """
    twice = [run.path for place, run in enumerate(runs) if run.path in [other.path for other in runs[:place]]]
    if twice:
        raise UsageError(f"{twice[0]} is given twice; name each run once")
    if request.format == "speedscope":
        return _write_stacks(runs, request, output, force)
    timelines = [run_timeline(run, causes_by_kind(diagnose(run)), request.steps, request.ranks) for run in runs]
    slices = sum(timeline.slices for timeline in timelines)
    notes = [note for timeline in timelines for note in timeline.notes]
    if not slices:
        raise UsageError(f"nothing to write: no event of {_chosen(request)} was recorded")
    likely = slices * _BYTES_A_SLICE[request.format]
    if likely > LARGEST and not request.full:
        raise UsageError(
            f"{counted(slices, 'slice')} would be about {size(likely)}, which viewers hardly open; choose some with "
            "--steps or --ranks, or give --full"
        )
    kernels: list[Path] = []
    if request.format == "perfetto" and (output is None or output.suffix == ".zip"):
        found = [
            kernel_traces(run, {process.pid for process in timeline.processes})
            for run, timeline in zip(runs, timelines, strict=True)
        ]
        kernels = [path for paths, _ in found for path in paths]
        notes += [reason for _, reasons in found for reason in reasons]
    suffix = {"chrome": ".json", "perfetto": ".zip" if kernels else ".pftrace"}[request.format]
    path = output or Path(f"{runs[0].id}{suffix}")
    write = _writer(request.format, timelines, runs, kernels, as_archive=path.suffix == ".zip")
    _write(path, write, force)
    return Written(path, path.stat().st_size, slices, request.format, len(kernels), tuple(notes))


def _writer(
    format: str, timelines: Sequence[Timeline], runs: Sequence[Run], kernels: Sequence[Path], *, as_archive: bool
) -> Callable[[IO[bytes]], None]:
    base_ns = min(timeline.offset_ns for timeline in timelines)
    if as_archive:
        return lambda file: write_archive(file, timelines, runs, kernels)
    if format == "chrome":
        return lambda file: write_chrome(file, timelines, base_ns)
    return lambda file: write_perfetto(file, timelines, base_ns)


def _write_stacks(runs: Sequence[Run], request: Request, output: Path | None, force: bool) -> Written:
    if len(runs) > 1:
        raise UsageError(f"--format speedscope takes one run, {len(runs)} were given; write a file for each")
    if request.ranks is not None:
        raise UsageError("--ranks does nothing with --format speedscope: each process has a profile; leave it out")
    training = find_training(runs[0])
    span = time_of_steps(training, request.steps) if training is not None and request.steps is not None else ()
    path = output or Path(f"{runs[0].id}.speedscope.json")
    count = 0

    def write(file: IO[bytes]) -> None:
        nonlocal count
        count = write_speedscope(file, runs[0], *span)
        if not count:
            raise UsageError(f"nothing to write: no stack was sampled in {_chosen(request)}")

    _write(path, write, force)
    return Written(path, path.stat().st_size, count, request.format, 0, tuple(runs[0].problems))


def _chosen(request: Request) -> str:
    steps = f"steps {request.steps[0]} to {request.steps[1]}" if request.steps is not None else "the run"
    return steps + (f" of ranks {', '.join(map(str, sorted(request.ranks)))}" if request.ranks is not None else "")


def _write(path: Path, write: Callable[[IO[bytes]], None], force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"{path} exists; give another name with --output, or --force to overwrite it")
    try:
        with replacing(path) as file:
            write(file)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another file with --output") from error
