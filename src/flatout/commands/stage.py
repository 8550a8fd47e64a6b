"""``flatout stage``: bring a data set next to the GPU."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flatout.stage.packing import PackSummary
    from flatout.stage.staging import Summary


def stage(
    source: Annotated[str, typer.Argument(help="s3://bucket/prefix, gs://…, az://…, or a folder.", show_default=False)],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="Folder next to the GPU.", show_default=False)],
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
    pack: Annotated[
        bool, typer.Option("--pack", help="Write one packed set a split, not single files: images only.")
    ] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove staged files that the source has no more.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="So many at once; default: found by measuring.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another staging to DEST to end.")] = False,
    watch_space: Annotated[
        str | None, typer.Option("--watch-space", metavar="SIZE", help="Stop when less than SIZE is free: 20GiB.")
    ] = None,
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
    from flatout.report.quantities import parse_size

    extras.require("stage")
    if check:
        raise typer.Exit(_check(destination, json))
    from flatout.stage.origins import StoreOptions, open_origin
    from flatout.stage.outlook import look_ahead
    from flatout.stage.selection import Selection, read_class_list
    from flatout.stage.staging import Options
    from flatout.stage.staging import stage as bring

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
    origin = open_origin(source, StoreOptions(endpoint, region, profile, anonymous))
    if dry_run:
        outlook = look_ahead(origin, destination, selection, keep_free)
        assert outlook is not None, "the listing has no limit"
        print(json_format.dumps(outlook.as_json()) if json else _describe_outlook(origin.address, outlook.as_json()))
        return
    from flatout.stage.showing import Show

    show = Show(quiet=quiet)
    options = Options(jobs=jobs, wait=wait, prune=prune, keep_free=keep_free)
    if pack:
        from flatout.stage.packing import pack as bring_packed

        try:
            packed = bring_packed(origin, destination, selection, options, show.progress, show.line)
        finally:
            show.close()
        print(json_format.dumps(packed.as_json()) if json else _describe_packed(packed))
        return
    try:
        summary = bring(origin, destination, selection, options, show.progress, show.line)
    finally:
        show.close()
    print(json_format.dumps(summary.as_json()) if json else _describe(summary))
    for failure in summary.failures:
        print(f"failed: {failure}", file=sys.stderr)
    raise typer.Exit(1 if summary.failed else 0)


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


def _describe_outlook(address: str, outlook: dict[str, object]) -> str:
    from flatout.report.quantities import duration, size

    def number(name: str) -> float:
        value = outlook[name]
        assert isinstance(value, (int, float))
        return value

    seconds = outlook["predicted_s"]
    lines = [
        f"{address}",
        f"  {number('files'):,} files, {size(number('bytes'))}"
        + (f", {number('classes')} classes" if outlook["classes"] is not None else ""),
        f"  free at the destination: {size(number('free_bytes'))}: {'it fits' if outlook['fits'] else 'too little'}",
    ]
    if outlook["refused"]:
        lines.append(f"  {number('refused'):,} keys cannot be file names there and would be left out")
    if isinstance(seconds, float):
        lines.append(
            f"  about {duration(seconds)}: a prediction from reading {number('tried_files'):,} of the files, 16 at once"
        )
    return "\n".join([*lines, "Nothing was copied."])


def _describe(summary: Summary) -> str:
    from flatout.report.quantities import duration, size

    lines = [
        f"staged {summary.copied:,} files, {size(summary.copied_bytes)}, in {duration(summary.seconds)}: "
        f"{summary.files_per_s:,.0f} files/s, {size(summary.bytes_per_s)}/s, up to {summary.most_at_once} at once",
        f"  there now: {summary.total_files:,} files, {size(summary.total_bytes)} in {summary.destination}",
    ]
    if summary.kept:
        lines.append(f"  {summary.kept:,} were complete already")
    if summary.retries:
        lines.append(f"  {summary.retries:,} tries again, {summary.slow_downs:,} of them asked for by the store")
    if summary.refused:
        lines.append(f"  {summary.refused:,} left out, such as {summary.refusals[0]}")
    if summary.gone:
        what = "removed" if summary.pruned else "still here: --prune removes them"
        lines.append(f"  {summary.gone:,} no longer in the source ({what}), such as {summary.gone_names[0]}")
    if summary.classes is not None:
        lines.append(f"  the {summary.classes} classes: {summary.destination}/classes.json")
    if summary.failed:
        lines.append(f"  {summary.failed:,} FAILED; the same command tries them again")
    return "\n".join([*lines, f"Check it later: flatout stage {summary.source} {summary.destination} --check"])


def _describe_packed(packed: PackSummary) -> str:
    from flatout.report.quantities import duration, size

    parts = f", parts {', '.join(packed.splits)}" if packed.splits != ("",) else ""
    return (
        f"packed {packed.images:,} images of {packed.classes} classes, {size(packed.bytes)}, in "
        f"{duration(packed.seconds)}: {packed.images_per_s:,.0f} images/s{parts}\n"
        f"Train on it: flatout train RECIPE --data {packed.destination}"
    )


def _check(destination: Path, json: bool) -> int:
    from dataclasses import asdict

    from flatout.report.quantities import duration
    from flatout.stage.checking import check

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
                print(f"  {what}: {key}")
        if found.missing or found.changed:
            print("Staging again brings them.")
    return 1 if found.missing or found.changed else 0
