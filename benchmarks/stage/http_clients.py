#!/usr/bin/env python3
"""HTTP clients in the place of flatout's: whole stagings of small objects from one real S3 server, in turn.

Files go to memory, so that no disk adds its noise. A staging is a process that was forked
after another staging, so that imports are no part of it.

pycurl takes part where it can be imported: `pip install --target DIR pycurl`, and DIR on PYTHONPATH.

Usage: python benchmarks/stage/http_clients.py [--files N] [--rounds N] [--delays S ...] [--clients NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

from http_candidates import CLIENTS  # noqa: E402
from servers import BUCKET, ROOT, delayed, filled_server  # noqa: E402

from flatout.cli import main as flatout  # noqa: E402
from flatout.stage.sources.s3 import source  # noqa: E402

DATA = ROOT / "build" / "stage"


def staging(client: str, endpoint: str, files: int, folder: Path) -> tuple[float, float]:
    """Seconds of a whole staging with a client, and CPU seconds of its process."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        dest = Path(name) / "dest"
        began = time.perf_counter()
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _stage(client, _words(endpoint, dest))
            finally:
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        wall_s = time.perf_counter() - began
        found = sum(1 for _ in dest.rglob("*.jpg"))
        if status or found != files:
            raise SystemExit(f"{client} ended with {status} and brought {found} of {files} files")
    return wall_s, usage.ru_utime + usage.ru_stime


def _words(endpoint: str, dest: Path) -> list[str]:
    return ["stage", f"s3://{BUCKET}/files", str(dest), "--endpoint", endpoint, "-q"]


def _stage(client: str, words: list[str]) -> int:
    source.PlainGets = CLIENTS[client]  # type: ignore[misc]
    sys.argv[1:] = words
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return int(flatout() or 0)
    except SystemExit as end:
        return int(end.code or 0)


def table(found: dict[str, list[tuple[float, float]]], files: int) -> list[str]:
    """Medians, and the ratios to the first client's with their quartiles."""
    lines = ["| client | files/s | ratio | CPU ms a file | ratio |", "|---|---|---|---|---|"]
    ours = next(iter(found.values()))
    for name, runs in found.items():
        wall, cpu = (statistics.median(run[n] for run in runs) for n in (0, 1))
        rates = [a[0] / b[0] for a, b in zip(ours, runs, strict=True)]
        cpus = [b[1] / a[1] for a, b in zip(ours, runs, strict=True)]
        lines.append(f"| {name} | {files / wall:,.0f} | {_spread(rates)} | {cpu / files * 1e3:.2f} | {_spread(cpus)} |")
    return lines


def _spread(values: list[float]) -> str:
    middle = f"{statistics.median(values):.2f}"
    if len(values) < 2:
        return middle
    low, _, high = statistics.quantiles(values, n=4)
    return f"{middle} ({low:.2f}-{high:.2f})"


def main() -> None:
    """Measure, and print a table for each delay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--delays", type=float, nargs="*", default=[0.0, 0.02])
    parser.add_argument("--rest", type=float, default=0.0, help="seconds between two stagings")
    parser.add_argument("--clients", nargs="*", default=list(CLIENTS))
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where the files go")
    given = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    names = given.clients
    for delay in given.delays:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        with (
            tempfile.TemporaryDirectory(dir=DATA) as folder,
            filled_server(Path(folder) / "server", given.files, 0) as endpoint,
            delayed(endpoint, delay, Path(folder) / "nginx") as where,
        ):
            _stage("http.client", _words(where, Path(folder) / "first"))
            for number in range(given.rounds):
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    time.sleep(given.rest)
                    found[name].append(staging(name, where, given.files, given.folder))
                    wall_s, cpu_s = found[name][-1]
                    print(f"{delay} {number} {name} {wall_s:.2f} {cpu_s:.2f}", file=sys.stderr, flush=True)
        print(f"\n## Each request {delay * 1000:.0f} ms later\n", *table(found, given.files), sep="\n", flush=True)


if __name__ == "__main__":
    main()
