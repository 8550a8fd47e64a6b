"""``flatout mount`` and ``flatout unmount``: a bucket as a folder."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from flatout.terminal_text import one_line


def mount(
    source: Annotated[str, typer.Argument(help="s3://bucket or s3://bucket/prefix.", show_default=False)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or a new one.", show_default=False)],
    tool: Annotated[
        str | None,
        typer.Option("--with", metavar="PROGRAM", help="mountpoint-s3, geesefs, rclone or s3fs. Default: what works."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="An S3-compatible server.")] = None,
    region: Annotated[str | None, typer.Option("--region", help="Region of the bucket.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Profile in the AWS configuration files.")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="A public bucket: sign nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
) -> None:
    """Mount a bucket as a folder, read-only.

    Takes the first of mountpoint-s3, geesefs, rclone and s3fs that is installed and works, and compares an object
    with what the store says. Reading a training's files through a mount is slow: `flatout storage DIR` says how slow.

    Example: flatout mount s3://bucket/imagenet /mnt/imagenet --profile work
    """
    from flatout import extras
    from flatout.stage.sources.base import StoreOptions
    from flatout.storage.mounting import mount as bring
    from flatout.units import duration

    extras.require("stage")
    done = bring(source, folder, StoreOptions(endpoint, region, profile, anonymous), tool)
    if json:
        typer.echo(json_format.dumps(done.as_json()))
        return
    for why in done.refused:
        typer.echo(one_line(f"not used: {why}"), err=True)
    checked = "the bucket is empty"
    if done.key is not None and done.open_s is not None:
        checked = f"{done.key} was read in {duration(done.open_s)} and is what the store holds"
    typer.echo(one_line(f"{done.source} is {done.folder} now, by {done.tool}; {checked}"))
    typer.echo(one_line(f"End it with: flatout unmount {done.folder}"))


def unmount(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it is mounted.", show_default=False)],
) -> None:
    """Unmount what `flatout mount` mounted.

    Example: flatout unmount /mnt/imagenet
    """
    from flatout.storage.mounting import unmount as end

    typer.echo(one_line(f"{folder}: {end(folder)} is unmounted"))
