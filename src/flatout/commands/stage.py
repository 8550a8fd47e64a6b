"""``flatout stage``: copy a data set next to the GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from flatout.commands import stage_options as option
from flatout.commands.options import AsHtml, AsJson, Force, PageFile, Quiet
from flatout.commands.stage_request import StageRequest
from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.stage.pace import Pace


def stage(
    address: option.SourceArgument,
    destination: option.DestinationArgument,
    splits: option.Splits = None,
    classes: option.Classes = None,
    classes_from: option.ClassesFrom = None,
    per_class: option.PerClass = None,
    sample: option.Sample = None,
    seed: option.Seed = 42,
    include: option.Include = None,
    exclude: option.Exclude = None,
    dry_run: option.DryRun = False,
    check: option.Check = False,
    unpack: option.Unpack = False,
    short_side: option.ShortSide = None,
    quality: option.Quality = 90,
    baseline: option.Baseline = False,
    drop_corrupt: option.DropCorrupt = False,
    pack: option.Pack = False,
    tar: option.Tar = False,
    shard_size: option.ShardSize = None,
    volumes: option.Volumes = False,
    patch: option.Patch = "128",
    ignore: option.Ignore = None,
    compress: option.Compress = "auto",
    memory: option.Memory = None,
    prune: option.Prune = False,
    prune_most: option.PruneMost = False,
    overwrite: option.Overwrite = False,
    concurrency: option.Concurrency = None,
    wait: option.Wait = False,
    min_free: option.MinFree = None,
    cluster: option.Cluster = None,
    replicate: option.Replicate = "shard",
    endpoint: option.Endpoint = None,
    region: option.Region = None,
    profile: option.Profile = None,
    anonymous: option.Anonymous = False,
    as_json: AsJson = False,
    as_html: AsHtml = False,
    output: PageFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Copy a data set to a local disk: fast, checked, and resumable.

    Run the same command again after an interruption, or when the source has changed: complete files are kept.
    Credentials come from the environment, a profile, or the instance's role. --html writes a page with the rates over
    time.

    Example: flatout stage s3://bucket/imagenet /mnt/nvme/imagenet --splits train,val --classes 100

    Example: flatout stage slices/ /mnt/nvme/volumes --volumes --patch 128 --ignore 2
    """
    request = StageRequest(**locals())  # a field for each parameter
    if request.volumes:
        from flatout.commands.stage_volumes import stage_volumes

        raise typer.Exit(stage_volumes(request))
    from flatout import extras

    extras.require("stage")
    raise typer.Exit(_action(request)(request))


def _action(request: StageRequest) -> Callable[[StageRequest], int]:
    """The action that the options select; each prints its result and returns the exit code."""
    request.page()
    if request.check:
        return _check
    request.refuse_contradictions()
    if request.dry_run:
        return _dry_run
    if request.cluster is not None:
        return _stage_on_cluster
    return _pack if request.pack or request.tar else _copy


def _check(request: StageRequest) -> int:
    from flatout.report.staging import check_lines
    from flatout.stage.destination.checking import check

    found = check(request.destination)
    _print(request, found.as_json(), lambda: check_lines(found))
    return 1 if found.missing or found.changed else 0


def _dry_run(request: StageRequest) -> int:
    from flatout.errors import StagingFailed, UsageError
    from flatout.report.staging import outlook_lines
    from flatout.stage.outlook import look_ahead
    from flatout.stage.sources.failures import Failure

    selection, options, source = request.selection(), request.options(), request.open_source()
    source.tell = lambda line: print(one_line(line), file=sys.stderr)
    try:
        outlook = look_ahead(
            source, request.destination, selection, options.min_free, options.change, unpack=options.unpack
        )
    except Failure as failure:
        raise StagingFailed(f"{failure}: nothing was copied") from None
    except KeyboardInterrupt:
        print("stopped: nothing was copied", file=sys.stderr)
        raise
    assert outlook is not None, "the listing has no limit"
    if not outlook.files and not outlook.n_refused and not outlook.unlisted:
        raise UsageError(source.nothing_found())
    _print(request, outlook.as_json(), lambda: outlook_lines(source.address, outlook))
    return 1 if outlook.unlisted else 0


def _stage_on_cluster(request: StageRequest) -> int:
    from flatout.errors import UsageError
    from flatout.extras import require
    from flatout.report.staging import cluster_lines
    from flatout.report.staging_progress import Show
    from flatout.stage.cluster.spread import FULL, SHARD, check_combination, stage_on_cluster

    require("cluster")
    if request.replicate not in (SHARD, FULL):
        raise UsageError(
            f"--replicate {request.replicate}: {SHARD} gives each host its share of the files, {FULL} all of them"
        )
    selection, options, source = request.selection(), request.options(), request.open_source()
    check_combination(options, request.pack or request.tar)
    summary = stage_on_cluster(
        source,
        request.address,
        request.store_options(),
        str(request.destination.absolute()),
        selection,
        options,
        request.replicate,
        request.cluster or "auto",
        Show(quiet=request.quiet).line,
    )
    _print(request, summary.as_json(), lambda: cluster_lines(summary))
    _print_failures(source.unlisted)
    for host in summary.hosts:
        _print_failures(host["failed_examples"])
    return 1 if summary.n_failed else 0


def _pack(request: StageRequest) -> int:
    from flatout.report.staging import packed_lines
    from flatout.report.staging_progress import Show
    from flatout.stage.packing.pack import pack

    selection, options, source = request.selection(), request.options(), request.open_source()
    with Show(quiet=request.quiet) as show:
        packed = pack(source, request.destination, selection, options, show.progress, show.line, request.shard_bytes())
    _print(request, packed.as_json(), lambda: packed_lines(packed), show.pace)
    return 0


def _copy(request: StageRequest) -> int:
    from flatout.report.staging import summary_lines
    from flatout.report.staging_progress import Show
    from flatout.stage.staging import stage as copy

    selection, options, source = request.selection(), request.options(), request.open_source()
    with Show(quiet=request.quiet) as show:
        summary = copy(source, request.destination, selection, options, show.progress, show.line)
    _print(request, summary.as_json(), lambda: summary_lines(summary), show.pace)
    _print_failures(summary.failed_examples)
    return 1 if summary.n_failed or summary.not_pruned else 0


def _print(request: StageRequest, values: dict[str, Any], lines: Callable[[], str], pace: Pace | None = None) -> None:
    print(json.dumps(values) if request.as_json else lines())
    path = request.page()
    if path is None or pace is None:
        return
    from flatout.report.html.writing import write_staging

    print(write_staging(pace, values, lines(), path, force=request.force))


def _print_failures(failures: Iterable[str]) -> None:
    for failure in failures:
        print(f"failed: {one_line(failure)}", file=sys.stderr)
