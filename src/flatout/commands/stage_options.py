"""The options of ``flatout stage``, and those that ``storage`` and ``mount`` share with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def named_folder(text: str) -> Path:
    """A folder argument; an empty one (a variable that is not set, mostly) would mean this folder."""
    if not text:
        raise typer.BadParameter("it is empty: give a folder (. for this one)")
    return Path(text)


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="s3://bucket/prefix, gs://…, az://…, https://… (a list, a file), or a folder.",
        show_default=False,
    ),
]
DestinationArgument = Annotated[
    Path, typer.Argument(metavar="DEST", help="Folder next to the GPU.", show_default=False, parser=named_folder)
]

# Which files.
Splits = Annotated[str | None, typer.Option("--splits", metavar="A,B", help="Only these folders, such as train,val.")]
Classes = Annotated[
    int | None,
    typer.Option(
        "--classes",
        metavar="N",
        min=1,
        help="N classes, drawn by --seed. Of volumes: labels are 0 to N-1.",
    ),
]
ClassesFrom = Annotated[
    Path | None, typer.Option("--classes-from", metavar="FILE", help="The classes of a list (JSON, or lines).")
]
PerClass = Annotated[
    int | None, typer.Option("--per-class", metavar="N", min=1, help="At most N files of each class and split.")
]
Sample = Annotated[
    str | None, typer.Option("--sample", metavar="SHARE", help="A share of the files, such as 5%, drawn by --seed.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of --classes, --per-class, --sample and of packing.")]
Include = Annotated[list[str] | None, typer.Option("--include", metavar="PATTERN", help="Only keys that match.")]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="No keys that match.")]

# What to do.
DryRun = Annotated[bool, typer.Option("--dry-run", help="List, check the free space, predict the time; copy nothing.")]
Check = Annotated[bool, typer.Option("--check", help="Compare the files at DEST with their checksums; copy nothing.")]
Pack = Annotated[bool, typer.Option("--pack", help="Write one packed set per split instead of files; images only.")]
Tar = Annotated[
    bool, typer.Option("--tar", help="Write tar shards in webdataset's layout instead of files; images only.")
]
ShardSize = Annotated[
    str | None, typer.Option("--shard-size", metavar="SIZE", help="Size of the shards of --tar. Default: 1GiB.")
]
Volumes = Annotated[
    bool, typer.Option("--volumes", help="3-D volumes and their labels: convert them once to zarr for reading patches.")
]
Patch = Annotated[str, typer.Option("--patch", metavar="N|Z,Y,X", help="Of volumes: patch of the training, in voxels.")]
Ignore = Annotated[
    int | None, typer.Option("--ignore", metavar="VALUE", help="Of volumes: the label of voxels that have none.")
]
Compress = Annotated[
    str, typer.Option("--compress", metavar="auto|none|zstd", help="Of volumes: auto packs what shrinks by 30%.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Of volumes: for slices in work. Default: 512MiB.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="On every host of a Ray cluster: auto, host:port."),
]
Replicate = Annotated[
    str,
    typer.Option("--replicate", metavar="shard|full", help="What each host of a cluster gets: a share, or all."),
]

# Changes on the way.
Unpack = Annotated[bool, typer.Option("--unpack", help="Turn tar and zip archives into folders of files.")]
ShortSide = Annotated[
    int | None, typer.Option("--short-side", metavar="PIXELS", min=16, help="Scale JPEGs down to this short side.")
]
Quality = Annotated[int, typer.Option("--quality", min=1, max=95, help="Quality of scaled JPEGs.")]
Baseline = Annotated[bool, typer.Option("--baseline", help="Make progressive JPEGs baseline: faster to decode.")]
DropCorrupt = Annotated[bool, typer.Option("--drop-corrupt", help="Decode every picture; leave out and list failures.")]

# How.
Prune = Annotated[bool, typer.Option("--prune", help="Remove staged files that the source no longer has.")]
PruneMost = Annotated[bool, typer.Option("--prune-most", help="--prune even if that removes more than half of them.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files at DEST that flatout did not stage, or that were changed.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", "-j", min=1, max=1024, help="Transfers at once. Default: adapts to the store."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for another staging to DEST to end.")]
MinFree = Annotated[
    str | None,
    typer.Option("--min-free", metavar="SIZE", help="Space to leave free at DEST: 20GiB. Default: 512MiB, or 1%."),
]

# Of an object store.
Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="An S3-compatible server.")]
Region = Annotated[str | None, typer.Option("--region", help="Region of the bucket.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Profile in the AWS configuration files.")]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="A public bucket: sign nothing.")]
