"""``flatout stage``: bring a data set next to the GPU."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.stage.selection import Selection
    from flatout.stage.sources.base import Source, StoreOptions
    from flatout.stage.transfer import Options


def _named_folder(text: str) -> Path:
    if not text:
        raise typer.BadParameter("it is empty: give a folder (. for this one)")
    return Path(text)


def stage(
    source: Annotated[
        str,
        typer.Argument(
            help="s3://bucket/prefix, gs://…, az://…, https://… (a list, a file), or a folder.", show_default=False
        ),
    ],
    destination: Annotated[
        Path,
        typer.Argument(metavar="DEST", help="Folder next to the GPU.", show_default=False, parser=_named_folder),
    ],
    splits: Annotated[
        str | None, typer.Option("--splits", metavar="A,B", help="Only these folders, such as train,val.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option("--classes", metavar="N", min=1, help="N classes, drawn by --seed, in every split.")
    ] = None,
    classes_from: Annotated[
        Path | None, typer.Option("--classes-from", metavar="FILE", help="The classes of a list (JSON, or lines).")
    ] = None,
    per_class: Annotated[
        int | None, typer.Option("--per-class", metavar="N", min=1, help="At most N files of each class and split.")
    ] = None,
    sample: Annotated[
        str | None, typer.Option("--sample", metavar="SHARE", help="A share of the files, such as 5%, by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of what is drawn.")] = 42,
    include: Annotated[list[str] | None, typer.Option("--include", metavar="PATTERN", help="Only such keys.")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="No such keys.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List, check the room, predict the time; copy nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the files at DEST with their checksums; copy nothing.")
    ] = False,
    unpack: Annotated[
        bool, typer.Option("--unpack", help="Tar and zip archives become folders, without a copy of them.")
    ] = False,
    short_side: Annotated[
        int | None, typer.Option("--short-side", metavar="PIXELS", min=16, help="Scale JPEGs down to this short side.")
    ] = None,
    quality: Annotated[int, typer.Option("--quality", min=1, max=95, help="Of JPEGs that are scaled.")] = 90,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Encode progressive JPEGs again as baseline: faster to decode.")
    ] = False,
    drop_corrupt: Annotated[
        bool, typer.Option("--drop-corrupt", help="Decode every picture; leave out and list what fails.")
    ] = False,
    pack: Annotated[
        bool, typer.Option("--pack", help="Write one packed set a split, not single files: images only.")
    ] = False,
    tar: Annotated[
        bool, typer.Option("--tar", help="Write tar shards in webdataset's layout, not single files: images only.")
    ] = False,
    shard_size: Annotated[str, typer.Option("--shard-size", metavar="SIZE", help="Of tar shards.")] = "1GiB",
    prune: Annotated[bool, typer.Option("--prune", help="Remove staged files that the source has no more.")] = False,
    prune_most: Annotated[
        bool, typer.Option("--prune-most", help="--prune also where that is more than half of what was staged.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace files at DEST that staging did not make, or that changed."),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, max=1024, help="So many at once; default: found by measuring.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another staging to DEST to end.")] = False,
    watch_space: Annotated[
        str | None, typer.Option("--watch-space", metavar="SIZE", help="Stop when less than SIZE is free: 20GiB.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="On every host of a Ray cluster: auto, host:port."),
    ] = None,
    each: Annotated[
        str, typer.Option("--each", metavar="shard|full", help="Of a cluster: what each host gets.")
    ] = "shard",
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="An S3-compatible server.")] = None,
    region: Annotated[str | None, typer.Option("--region", help="Region of the bucket.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Profile in the AWS configuration files.")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="A public bucket: sign nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The summary as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Copy a data set to a local disk: fast, checked, and resumable.

    Run the same command again after an interruption, or when the source has changed: what is complete is kept.
    Credentials come from the environment, a profile, or the instance's role.

    Example: flatout stage s3://bucket/imagenet /mnt/nvme/imagenet --splits train,val --classes 100
    """
    from flatout import extras
    from flatout.errors import UsageError
    from flatout.units import parse_size

    extras.require("stage")
    if check:
        raise typer.Exit(_check(destination, json))
    from flatout.report.staging import packed_lines, summary_lines
    from flatout.stage.destination.overlap import refuse_overlap
    from flatout.stage.pictures import PictureChange
    from flatout.stage.selection import Selection, read_class_list
    from flatout.stage.sources.base import StoreOptions
    from flatout.stage.sources.open import open_source
    from flatout.stage.staging import stage as bring
    from flatout.stage.transfer import Options

    if pack + tar + unpack > 1:
        raise UsageError("--pack, --tar and --unpack exclude each other: give one of them")
    if classes is not None and classes_from is not None:
        raise UsageError("--classes and --classes-from exclude each other: give one of them")
    selection = Selection(
        splits=tuple(part for part in (splits or "").split(",") if part),
        classes=classes,
        seed=seed,
        class_names=read_class_list(classes_from) if classes_from else (),
        per_class=per_class,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        share=_share(sample),
    )
    keep_free = parse_size(watch_space, option="--watch-space") if watch_space else None
    change = PictureChange(short_side=short_side, quality=quality, baseline=baseline, drop_corrupt=drop_corrupt)
    options = Options(
        jobs=jobs,
        wait=wait,
        prune=prune or prune_most,
        prune_most=prune_most,
        overwrite=overwrite,
        keep_free=keep_free,
        change=change if change.name else None,
        unpack=unpack,
    )
    stores = StoreOptions(endpoint, region, profile, anonymous)
    if not source:
        raise UsageError("SOURCE is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")
    origin = open_source(source, stores)
    refuse_overlap(origin, destination)
    if cluster is not None and not dry_run:
        raise typer.Exit(
            _on_cluster(
                source, options, stores, origin, destination, selection, each, cluster, json, quiet, pack or tar
            )
        )
    if dry_run:
        raise typer.Exit(_look_ahead(origin, destination, selection, options, json))
    from flatout.report.staging_progress import Show

    show = Show(quiet=quiet)
    if pack or tar:
        from flatout.stage.packing.pack import pack as bring_packed

        with show:
            packed = bring_packed(
                origin,
                destination,
                selection,
                options,
                show.progress,
                show.line,
                parse_size(shard_size, option="--shard-size") if tar else None,
            )
        print(json_format.dumps(packed.as_json()) if json else packed_lines(packed))
        return
    with show:
        summary = bring(origin, destination, selection, options, show.progress, show.line)
    print(json_format.dumps(summary.as_json()) if json else summary_lines(summary))
    _print_failures(summary.failures)
    raise typer.Exit(1 if summary.failed or summary.not_pruned else 0)


def _look_ahead(origin: Source, destination: Path, selection: Selection, options: Options, json: bool) -> int:
    from flatout.errors import StagingFailed, UsageError
    from flatout.report.staging import outlook_lines
    from flatout.stage.outlook import look_ahead
    from flatout.stage.sources.failures import Failure

    origin.tell = lambda line: print(one_line(line), file=sys.stderr)
    try:
        outlook = look_ahead(origin, destination, selection, options.keep_free, options.change, unpack=options.unpack)
    except Failure as failure:
        raise StagingFailed(f"{failure}: nothing was copied") from None
    assert outlook is not None, "the listing has no limit"
    if not outlook.files and not outlook.refused and not outlook.unlisted:
        raise UsageError(origin.nothing_found())
    print(json_format.dumps(outlook.as_json()) if json else outlook_lines(origin.address, outlook.as_json()))
    return 1 if outlook.unlisted else 0


def _print_failures(failures: Iterable[str]) -> None:
    for failure in failures:
        print(f"failed: {one_line(failure)}", file=sys.stderr)


def _on_cluster(
    source: str,
    options: Options,
    stores: StoreOptions,
    origin: Source,
    destination: Path,
    selection: Selection,
    each: str,
    address: str,
    json: bool,
    quiet: bool,
    packed: bool,
) -> int:
    from flatout.errors import UsageError
    from flatout.extras import require
    from flatout.report.staging import cluster_lines
    from flatout.report.staging_progress import Show
    from flatout.stage.cluster.spread import FULL, SHARD, check_combination, stage_on_cluster

    require("cluster")
    if each not in (SHARD, FULL):
        raise UsageError(f"--each {each}: {SHARD} gives each host its share of the files, {FULL} all of them")
    check_combination(options, packed)
    where = str(destination.absolute())
    summary = stage_on_cluster(source, stores, origin, where, selection, options, each, address, Show(quiet=quiet).line)
    print(json_format.dumps(summary.as_json()) if json else cluster_lines(summary))
    _print_failures(origin.unlisted)
    for host in summary.hosts:
        _print_failures(host["failures"])
    return 1 if summary.failed else 0


def _share(text: str | None) -> float:
    from flatout.errors import UsageError

    if text is None:
        return 1.0
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: give a share above 0 and up to 100%, such as 5%")
    return share


def _check(destination: Path, json: bool) -> int:
    from dataclasses import asdict

    from flatout.report.staging import verified_text
    from flatout.stage.destination.checking import check
    from flatout.terminal_text import one_line
    from flatout.units import duration

    found = check(destination)
    if json:
        print(json_format.dumps(asdict(found)))
    else:
        print(
            f"{found.files:,} files checked in {duration(found.seconds)}: "
            f"{len(found.missing):,} missing, {len(found.changed):,} changed"
        )
        for what, keys in (("missing", found.missing), ("changed", found.changed)):
            for key in keys[:20]:
                print(f"  {what}: {one_line(key)}")
        if found.verified:
            print(f"  compared with the store when they came: {verified_text(found.verified)}")
        if found.missing:
            print("Staging again brings what is missing.")
        if found.changed:
            print("Staging again with --overwrite brings what has changed; without it the changed files stay.")
    return 1 if found.missing or found.changed else 0
