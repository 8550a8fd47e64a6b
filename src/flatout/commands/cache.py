"""``flatout cache``: keeps what a training reads from slow storage on a fast disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from flatout.commands.stage_options import named_folder

if TYPE_CHECKING:
    from flatout.probe.file_cache.read_cache import ReadCache

_COMMAND = "flatout.command"


class WithCommand(TyperCommand):
    """A command whose own arguments and options end at ``--``; the user's command follows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before ``--``; the rest is in ``ctx.meta``."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, with the user's command."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@dataclass(frozen=True, kw_only=True)
class CacheSummary:
    """The result of a training with a cache; ``files`` and ``used_bytes`` are of the whole cache."""

    hits: int
    misses: int
    hit_bytes: int
    files: int
    used_bytes: int
    budget_bytes: int
    exit_code: int

    @staticmethod
    def of(counts: Mapping[str, int], budget_bytes: int, exit_code: int) -> CacheSummary:
        """The result from a cache's counts."""
        return CacheSummary(
            **{name: counts.get(name, 0) for name in ("hits", "misses", "hit_bytes", "files")},
            used_bytes=counts.get("used", 0),
            budget_bytes=budget_bytes,
            exit_code=exit_code,
        )


def cache(
    context: typer.Context,
    slow: Annotated[
        Path,
        typer.Argument(metavar="SLOW", help="Folder that the training reads.", show_default=False, parser=named_folder),
    ],
    fast: Annotated[
        Path,
        typer.Argument(metavar="FAST", help="Folder for the copies.", show_default=False, parser=named_folder),
    ],
    budget: Annotated[str, typer.Option("--budget", metavar="SIZE", help="Of all copies: 20GiB.")] = "10GiB",
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on standard error.")] = False,
) -> None:
    """Train, and keep what is read on a fast disk.

    For data that do not fit there as a whole: the first pass fills the cache, later passes and trainings read from it
    what fitted. Reaches files opened by Python (Pillow, NumPy, torchvision). Copies are in FAST/flatout-cache; nothing
    else in FAST is touched.

    Example: flatout cache /mnt/s3/imagenet /nvme/cache --budget 50GiB -- python train.py
    """
    from flatout.errors import UsageError
    from flatout.probe.contract import CACHE_RUN_VARIABLE
    from flatout.probe.file_cache.folder import NAME as CACHE_NAME
    from flatout.runner.command import check_command, injecting_environment, with_probe
    from flatout.units import parse_size

    command: list[str] = context.meta[_COMMAND]
    if not command:
        raise UsageError("no command: write it after `--`, as in flatout cache SLOW FAST -- python train.py")
    check_command(command, "flatout cache SLOW FAST")
    _check_folders(slow, fast, fast / CACHE_NAME)
    budget_bytes = parse_size(budget, option="--budget")
    read_cache = _begin(fast, budget_bytes)
    if read_cache is None:
        _say(f"flatout: {fast} is full: nothing can be cached; files are read from where they are")
        summary = CacheSummary.of({}, budget_bytes, _wait(_started(command, dict(os.environ))))
    else:
        settings = {"read_through": f"{slow.absolute()}={fast.absolute()}:{budget_bytes}"}
        environment = injecting_environment(settings) | {CACHE_RUN_VARIABLE: str(read_cache.token)}
        exit_code = _wait(_started(list(with_probe(command)), environment))
        summary = CacheSummary.of(read_cache.counts(), budget_bytes, exit_code)
        read_cache.end()
    if as_json:
        print(json.dumps(asdict(summary)), file=sys.stderr)
    elif read_cache is not None:
        _say(_line(summary, slow, fast))
    raise typer.Exit(summary.exit_code)


def _check_folders(slow: Path, fast: Path, copies: Path) -> None:
    from flatout.errors import UsageError

    for folder in (slow, fast):
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder}: is a file, not a folder")
    if not slow.is_dir():
        raise UsageError(f"{slow}: no such folder")
    if _lies_in(fast, slow):
        raise UsageError(f"{fast}: is in {slow}, the slow folder itself: give a folder on a fast disk")
    if _lies_in(slow, copies):
        raise UsageError(f"{slow}: is in {copies}, where copies are kept: give the folder of the originals")


def _begin(fast: Path, budget_bytes: int) -> ReadCache | None:
    """Open or create the cache; None if the disk is full.

    Raises:
        UsageError: the folder cannot be used, or the budget does not fit; nothing is left of it then.
    """
    from flatout.errors import UsageError
    from flatout.probe.file_cache.folder import NAME as CACHE_NAME
    from flatout.probe.file_cache.folder import OWN_FILES
    from flatout.probe.file_cache.read_cache import ReadCache
    from flatout.stage.destination.space import check_room

    copies = fast / CACHE_NAME
    own = [fast, copies, *(copies / name for name in OWN_FILES)]
    made = [path for path in own if not os.path.lexists(path)]
    try:
        read_cache = ReadCache(str(fast.absolute()), budget_bytes)
        read_cache.begin()
    except OSError as error:
        _remove(made)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None
        raise UsageError(f"{fast}: {error.strerror or error}") from None
    try:
        needed = max(budget_bytes - read_cache.counts()["used"], 0)
        check_room(fast, needed, advice="give a smaller --budget, or a folder on another disk")
    except UsageError:
        read_cache.end()
        _remove(made)
        raise
    return read_cache


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
    """Remove the folders that this command created, innermost first; a folder that is no longer empty stays."""
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the exit code; the terminal's signals are the child's to handle."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child.pid, number))
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _lies_in(path: Path, folder: Path) -> bool:
    """True if a path is a folder or inside it, also through links and other mounts of the same folder."""
    resolved = path.resolve()
    return any(os.path.samefile(place, folder) for place in (resolved, *resolved.parents) if _both_exist(place, folder))


def _both_exist(*paths: Path) -> bool:
    return all(os.path.exists(path) for path in paths)


def _line(summary: CacheSummary, slow: Path, fast: Path) -> str:
    from flatout.units import percent, size

    opened = summary.hits + summary.misses
    if not opened:
        return f"flatout: no Python process of the command opened a file below {slow}: nothing was kept"
    return (
        f"flatout: {summary.hits:,} of {opened:,} reads ({percent(summary.hits / opened)}) came from the cache, "
        f"{size(summary.hit_bytes)}; {summary.files:,} different files; "
        f"{size(summary.used_bytes)} of {size(summary.budget_bytes)} used in {fast}"
    )
