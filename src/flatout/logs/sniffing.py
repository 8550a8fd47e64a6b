"""Which reader a file needs, by its first bytes and, where those do not tell, its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from flatout.errors import UsageError
from flatout.logs.observations import Observation
from flatout.logs.readers import (
    console,
    json_lines,
    metrics_csv,
    mlflow,
    nvidia_smi,
    slurm,
    tensorboard,
    torch_trace,
    trainer_dicts,
    wandb,
)
from flatout.logs.text import utf16
from flatout.logs.unpacking import MAGIC, Unpacked

HEAD = 1 << 16
WHOLE = 64 << 20  # bytes of a format that must be read at once
Reader = Callable[[IO[bytes], Path], Iterator[Observation]]


@dataclass(frozen=True)
class Format:
    """A format: what it is called, how it is told by head and name, and its reader."""

    name: str
    fits: Callable[[bytes, str], bool]
    read: Reader


def _whole(read: Callable[[bytes], Iterator[Observation]]) -> Reader:
    """A reader that needs the whole file; a larger one is refused, so that memory stays bounded."""

    def reader(file: IO[bytes], _: Path) -> Iterator[Observation]:
        content = file.read(WHOLE + 1)
        if len(content) > WHOLE:
            raise ValueError(f"it is larger than {WHOLE >> 20} MiB")
        return read(content)

    return reader


# The first that fits has the file.
FORMATS: tuple[Format, ...] = (
    Format("W&B file", wandb.fits, wandb.read),
    Format("TensorBoard events", tensorboard.fits, tensorboard.read),
    Format(
        "Hugging Face trainer state",
        lambda head, name: head.lstrip()[:1] == b"{" and (name == "trainer_state.json" or b'"log_history"' in head),
        _whole(trainer_dicts.read_state),
    ),
    Format("torch.profiler trace", torch_trace.fits, torch_trace.read),
    Format("nvidia-smi CSV", nvidia_smi.fits_query, nvidia_smi.read_query),
    Format("nvidia-smi dmon", nvidia_smi.fits_dmon, nvidia_smi.read_dmon),
    Format("SLURM sacct", slurm.fits_sacct, slurm.read_sacct),
    Format("SLURM seff", slurm.fits_seff, slurm.read_seff),
    Format("JSON lines", json_lines.fits, json_lines.read),
    Format("table of metrics", metrics_csv.fits, metrics_csv.read),
    Format("text", lambda head, name: is_text(head), console.read),
)
MLFLOW = Format("MLflow", lambda head, name: False, mlflow.read)  # told by its folder


def sniff(path: Path, file: IO[bytes]) -> Format:
    """Choose the format; the file is left at its beginning.

    Raises:
        UsageError: none fits.
    """
    try:
        head = file.read(HEAD)
        damage = file.damage if isinstance(file, Unpacked) else ""
        file.seek(0)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if mlflow.is_metric(path):
        return MLFLOW
    name = path.name.removesuffix(".gz").lower()
    for format in FORMATS:
        if format.fits(head, name):
            return format
    if damage:
        raise UsageError(f"{path}: {damage}, and what comes before that is no log: give the whole file")
    raise UsageError(
        f"{path}: neither text nor a known log: flatout reads text logs, TensorBoard and W&B files, MLflow folders, "
        "torch.profiler traces, nvidia-smi and SLURM output"
    )


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for bytes, unpacked as far as it goes if it is gzip.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        packed = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        yield Unpacked(file) if packed else file


def is_text(head: bytes) -> bool:
    """Text in a common encoding: few control characters besides those of terminals."""
    if utf16(head):
        return True
    controls = sum(head.count(bytes([code])) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    return bool(head) and controls <= len(head) // 100


def formats_of_folder(folder: Path, most: int) -> Iterator[tuple[Path, str]]:
    """Files below a folder that one of the formats fits, and their names in the report."""
    seen = 0
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            if not (_worth_a_look(name) or mlflow.is_metric(path)) or not path.is_file() or not path.stat().st_size:
                continue
            seen += 1
            if seen > most:
                return
            yield path, os.path.relpath(path, folder)


_LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".csv", ".json", ".jsonl", ".wandb", ".md", ".gz", ".pt.trace.json")


def _worth_a_look(name: str) -> bool:
    return name.endswith(_LOG_SUFFIXES) or "tfevents" in name
