"""``flatout cache``: a training whose reads from a slow place are kept on a fast disk."""

from __future__ import annotations

import contextlib
import errno
import json as json_format
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer


def cache(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The training command, just as you run it.", show_default=False),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--from", metavar="FOLDER", help="The slow place.")] = None,
    at: Annotated[Path | None, typer.Option("--at", metavar="DIR", help="Where copies are kept.")] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="SIZE", help="Of all copies: 20GiB.")] = "10GiB",
    json: Annotated[bool, typer.Option("--json", help="What was kept, as JSON on standard error.")] = False,
) -> None:
    """Train, and keep what is read on a fast disk.

    For data that do not fit there as a whole: the first pass fills the cache, later passes find in it what fitted. The
    next training with the same cache goes on with it. Files opened by Python are reached (Pillow, NumPy, torchvision).
    Copies lie in DIR/flatout-cache; nothing else in DIR is touched.

    Example: flatout cache --from /mnt/s3/imagenet --at /nvme/cache --budget 50GiB -- python train.py
    """
    from flatout.errors import UsageError
    from flatout.probe.contract import CACHE_RUN_VARIABLE
    from flatout.probe.file_cache.folder import NAME as CACHE_NAME
    from flatout.probe.file_cache.folder import OWN_FILES
    from flatout.probe.file_cache.read_cache import COUNTS, ReadCache
    from flatout.runner.command import check_command, injecting_environment
    from flatout.stage.destination.space import check_room
    from flatout.units import parse_size

    command = list(check_command(command, "flatout cache --from SLOW --at FAST"))
    if folder is None or at is None:
        missing = "--from is missing: name the slow folder" if folder is None else "--at is missing: name a fast disk"
        raise UsageError(f"{missing}, as in flatout cache --from /mnt/s3/set --at /nvme/cache -- python train.py")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    copies = at / CACHE_NAME
    if _lies_in(at, folder):
        raise UsageError(f"--at {at}: lies in {folder}, the slow place itself")
    if _lies_in(folder, copies):
        raise UsageError(f"--from {folder}: lies in {copies}, where copies are kept")
    bytes_ = parse_size(budget, option="--budget")
    own = [at, copies, *(copies / name for name in OWN_FILES)]
    made = [path for path in own if not os.path.lexists(path)]
    try:
        kept = ReadCache(str(at.absolute()), bytes_)
        kept.begin()
    except OSError as error:
        _remove(made)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(f"--at {at}: {error.strerror or error}") from None
        _say(f"flatout: {at} is full: nothing can be cached; files are read from where they are")
        code = _wait(_started(command, dict(os.environ)))
        if json:
            print(json_format.dumps(dict.fromkeys(COUNTS, 0) | {"budget": bytes_, "exit_code": code}), file=sys.stderr)
        raise typer.Exit(code) from None
    try:
        check_room(at, max(bytes_ - kept.counts()["used"], 0), advice="choose another disk or a smaller --budget")
    except UsageError:
        kept.end()
        _remove(made)
        raise
    settings = {"read_through": f"{folder.absolute()}={at.absolute()}:{bytes_}"}
    environment = injecting_environment(settings) | {CACHE_RUN_VARIABLE: str(kept.token)}
    code = _wait(_started(command, environment))
    counts = kept.counts() | {"budget": bytes_, "exit_code": code}
    kept.end()
    if json:
        print(json_format.dumps(counts), file=sys.stderr)
    else:
        _say(_line(counts, at, folder))
    raise typer.Exit(code)


def _say(line: str) -> None:
    from flatout.terminal_text import one_line

    folded = textwrap.fill(one_line(line), 80, break_on_hyphens=False, break_long_words=False, subsequent_indent="  ")
    print(folded, file=sys.stderr)


def _started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    from flatout.errors import CommandError

    try:
        return subprocess.Popen(command, env=environment)
    except OSError as error:
        raise CommandError(f"cannot start {Path(command[0]).name!r}: {error.strerror}", 126) from None


def _remove(made: list[Path]) -> None:
    """Remove what was made just now, the innermost first, as far as nobody has put anything in."""
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; signals of the terminal are its own affair."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child.pid, number))
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies in it, also by links and by other mounts of the same folder."""
    resolved = path.resolve()
    return any(os.path.samefile(place, folder) for place in (resolved, *resolved.parents) if _both_exist(place, folder))


def _both_exist(*paths: Path) -> bool:
    return all(os.path.exists(path) for path in paths)


def _line(counts: dict[str, Any], at: Path, folder: Path) -> str:
    from flatout.units import percent, size

    opened = counts["hits"] + counts["misses"]
    if not opened:
        return f"flatout: no Python process of the command opened a file below {folder}: nothing was kept"
    return (
        f"flatout: {counts['hits']:,} of {opened:,} reads ({percent(counts['hits'] / opened)}) came from the cache, "
        f"{size(counts['hit_bytes'])}; {counts['files']:,} different files; "
        f"{size(counts['used'])} of {size(counts['budget'])} used in {at}"
    )
