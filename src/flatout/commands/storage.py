"""``flatout storage``: how fast a place gives files, and what training that can feed."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="An S3-compatible server.")] = None,
    region: Annotated[str | None, typer.Option("--region", help="Region of the bucket.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Profile in the AWS configuration files.")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="A public bucket: sign nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measure how fast a place gives files.

    Reads files that were not read before, taken out of the page cache, for about 15 seconds: how long one takes to
    open, how many come in a second with 1 to 64 at once, and how many images/s a training could read.

    Example: flatout storage /mnt/imagenet
    """
    from contextlib import nullcontext

    from flatout.errors import UsageError
    from flatout.extras import require
    from flatout.report.storage import lines
    from flatout.stage.sources.base import Source, StoreOptions
    from flatout.stage.sources.folder import FolderSource
    from flatout.stage.sources.open import open_source
    from flatout.storage.probe_files import written_files
    from flatout.storage.rates import measure
    from flatout.units import parse_size

    sample = parse_size(image_size, option="--image-size") if image_size else None
    if write and "://" in place:
        raise UsageError("--write writes into a folder, and an address is none")
    if "://" in place:
        require("stage")
    elif (kind := _mount(place)).kind == "kernel":
        raise UsageError(f"{place}: a file system of the kernel's own ({kind.fs_type}): no data lie there")
    if not place:
        raise UsageError("the place is empty: give a folder (. for this one), or s3://…")
    with written_files(Path(place)) if write else nullcontext() as own:
        origin: Source = (
            FolderSource(own) if own else open_source(place, StoreOptions(endpoint, region, profile, anonymous))
        )
        found = measure(
            origin, seed, lambda text: None if quiet else print(f"flatout: {one_line(text)}", file=sys.stderr)
        )
    if json:
        typer.echo(json_format.dumps(found.as_json()))
    else:
        kind_of_place = None if "://" in place else _mount(place).kind
        typer.echo("\n".join(lines(found, found.place if "://" in place else place, kind_of_place, sample)))


def _mount(place: str) -> Mount:
    from flatout.machine.mounts import mount_of, read_mounts

    return mount_of(Path(place).resolve(), read_mounts(Path("/")) or [])
