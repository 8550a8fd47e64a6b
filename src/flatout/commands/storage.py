"""``flatout storage``: measured file rates of storage, and the training rate that it can feed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands import stage_options as option
from flatout.commands.options import AsJson, Quiet
from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.machine.mounts import Mount


def storage(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A folder or s3://…", show_default=False)],
    image_size: Annotated[
        str | None, typer.Option("--image-size", metavar="SIZE", help="Of a sample: 110KB. Default: of the files.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="With 120 MB of files of its own, removed again.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the order in which files are read.")] = 0,
    endpoint: option.Endpoint = None,
    region: option.Region = None,
    profile: option.Profile = None,
    anonymous: option.Anonymous = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure how fast a folder, a mount or a bucket delivers files.

    Reads files that are not in the page cache for about 15 seconds: the time to open one, files/s at a concurrency of
    1 to 64, and how many images/s a training could read.

    Example: flatout storage /mnt/imagenet
    """
    from contextlib import nullcontext

    from flatout.errors import UsageError
    from flatout.extras import require
    from flatout.report.storage import storage_lines
    from flatout.stage.sources.base import Source, StoreOptions
    from flatout.stage.sources.folder import FolderSource
    from flatout.stage.sources.open import open_source
    from flatout.storage.probe_files import written_files
    from flatout.storage.rates import measure
    from flatout.units import parse_size

    image_bytes = parse_size(image_size, option="--image-size") if image_size else None
    if write and "://" in place:
        raise UsageError("--write writes into a folder, and an address is none")
    if "://" in place:
        require("stage")
    elif (kind := _mount(place)).kind == "kernel":
        raise UsageError(f"{place}: a file system of the kernel's own ({kind.fs_type}): no data lie there")
    if not place:
        raise UsageError("the place is empty: give a folder (. for this one), or s3://…")
    with written_files(Path(place)) if write else nullcontext() as own:
        source: Source = (
            FolderSource(own) if own else open_source(place, StoreOptions(endpoint, region, profile, anonymous))
        )
        found = measure(
            source, seed, lambda text: None if quiet else print(f"flatout: {one_line(text)}", file=sys.stderr)
        )
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        typer.echo("\n".join(storage_lines(found, f"{place}{_kind(place)}", image_bytes)))


def _kind(place: str) -> str:
    return "" if "://" in place else f" ({_mount(place).kind})"


def _mount(place: str) -> Mount:
    from flatout.machine.mounts import mount_of, read_mounts

    return mount_of(Path(place).resolve(), read_mounts(Path("/")) or [])
