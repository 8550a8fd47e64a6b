"""``flatout mount`` and ``flatout unmount``: a bucket as a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flatout.commands import stage_options as option
from flatout.commands.options import AsJson
from flatout.terminal_text import one_line


def mount(
    address: Annotated[
        str, typer.Argument(metavar="SOURCE", help="s3://bucket or s3://bucket/prefix.", show_default=False)
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or a new one.", show_default=False)],
    tool: Annotated[
        str | None,
        typer.Option("--with", metavar="PROGRAM", help="mountpoint-s3, geesefs, rclone or s3fs. Default: what works."),
    ] = None,
    endpoint: option.Endpoint = None,
    region: option.Region = None,
    profile: option.Profile = None,
    anonymous: option.Anonymous = False,
    as_json: AsJson = False,
) -> None:
    """Mount a bucket as a folder, read-only.

    Uses the first of mountpoint-s3, geesefs, rclone and s3fs that is installed and works, and compares an object with
    the store's. Training through a mount is slow: `flatout storage DIR` measures how slow.

    Example: flatout mount s3://bucket/imagenet /mnt/imagenet --profile work
    """
    from flatout import extras
    from flatout.stage.sources.base import StoreOptions
    from flatout.storage.mounting import mount as mount_bucket
    from flatout.units import duration

    extras.require("stage")
    done = mount_bucket(address, folder, StoreOptions(endpoint, region, profile, anonymous), tool)
    if as_json:
        typer.echo(json.dumps(done.as_json()))
        return
    for why in done.refused:
        typer.echo(one_line(f"not used: {why}"), err=True)
    checked = "the bucket is empty"
    if done.key is not None and done.open_s is not None:
        checked = f"{done.key} was read in {duration(done.open_s)} and equals the store's"
    typer.echo(one_line(f"{done.source} is mounted at {done.folder} by {done.tool}; {checked}"))
    typer.echo(one_line(f"End it with: flatout unmount {done.folder}"))


def unmount(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder it is mounted at.", show_default=False)],
) -> None:
    """Unmount what `flatout mount` mounted.

    Example: flatout unmount /mnt/imagenet
    """
    from flatout.storage.mounting import unmount as unmount_bucket

    typer.echo(one_line(f"{folder}: {unmount_bucket(folder)} is unmounted"))
