"""SLURM's accounting: sacct with bars or columns, and seff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.observations import Kind, Observation
from flatout.logs.text import decoded, lines, quoted

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s?([KMGT]?)i?B?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SEFF = {
    "Job Wall-clock time": "elapsed_s",
    "CPU Utilized": "cpu_s",
    "Memory Utilized": "rss_bytes",
    "Cores per node": "cores",
    "Cores": "cores",
}
_TROUBLES = {"OUT_OF_ME": "host_oom", "TIMEOUT": "timeout"}


def fits_sacct(head: bytes, name: str) -> bool:
    """Its first line names JobID and State."""
    first = head.split(b"\n", 1)[0]
    return b"JobID" in first and (b"State" in first or b"Elapsed" in first)


def fits_seff(head: bytes, name: str) -> bool:
    """Its lines are those of seff."""
    return head.startswith(b"Job ID:") and b"Job Wall-clock time" in head


def read_sacct(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield each job and step."""
    columns: list[str] = []
    places: list[tuple[int, int]] = []
    for number, piece in lines(file, bool):
        text = decoded(piece)
        if not columns:
            columns = text.split("|") if "|" in text else text.split()
            continue
        if set(text.strip()) <= {"-", " "}:
            places = [(found.start(), found.end()) for found in re.finditer("-+", text)]
            continue
        cells = text.split("|") if "|" in text else [text[start:end].strip() for start, end in places]
        yield from _job(dict(zip(columns, (cell.strip() for cell in cells), strict=False)), number, quoted(text))


def _job(row: dict[str, str], number: int, text: str) -> list[Observation]:
    values = {}
    for column, name in (("Elapsed", "elapsed_s"), ("TotalCPU", "cpu_s")):
        if (seconds := time_of(row.get(column, ""))) is not None:
            values[name] = seconds
    if (rss := size_of(row.get("MaxRSS", ""))) is not None:
        values["rss_bytes"] = rss
    cores = row.get("AllocCPUS") or row.get("NCPUS") or ""
    if cores.isdigit():
        values["cores"] = float(cores)
    labels = {"id": row.get("JobID", ""), "state": row.get("State", "")}
    if not values and not labels["state"]:
        return []
    return [Observation(Kind.JOB, values, labels, line=number, text=text), *_trouble(labels["state"], number, text)]


def read_seff(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield the job that the lines are about."""
    values: dict[str, float] = {}
    labels: dict[str, str] = {}
    nodes, text = 1.0, ""
    for _number, piece in lines(file, bool):
        key, _separator, value = decoded(piece).partition(":")
        value = value.strip()
        if key == "Job ID":
            labels["id"] = value
        elif key == "State":
            labels["state"], text = value, f"State: {value}"
        elif key == "Nodes" and value.isdigit():
            nodes = float(value)
        elif key in _SEFF:
            name = _SEFF[key]
            read_value = {"cores": _count, "rss_bytes": size_of}.get(name, time_of)(value)
            if read_value is not None:
                values[name] = read_value * (nodes if name == "cores" else 1)
    if values or labels:
        yield Observation(Kind.JOB, values, labels, line=1, text=text)
        yield from _trouble(labels.get("state", ""), 1, text)


def _trouble(state: str, number: int, text: str) -> list[Observation]:
    what = next((what for word, what in _TROUBLES.items() if state.startswith(word)), None)
    return [Observation(Kind.TROUBLE, {}, {"what": what}, line=number, text=text)] if what else []


def time_of(text: str) -> float | None:
    """Seconds of "1-02:03:04", "02:03.500"."""
    found = re.match(r"(?:(\d+)-)?(\d+(?::\d+)*(?:\.\d+)?)", text)
    if found is None or ":" not in text:
        return None
    seconds = 0.0
    for part in found[2].split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * int(found[1] or 0)


def size_of(text: str) -> float | None:
    """Bytes of "12345678K" or "12.3 GB": SLURM counts in 1024."""
    found = _SIZE.match(text)
    return float(found[1]) * 1024.0 ** _POWERS[found[2].lower()] if found else None


def _count(text: str) -> float | None:
    return float(text) if text.isdigit() else None
