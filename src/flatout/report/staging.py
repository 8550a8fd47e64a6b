"""Stagings as lines for a terminal: predictions, checks, summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flatout.report.layout import wrap
from flatout.terminal_text import one_line
from flatout.units import duration, size

if TYPE_CHECKING:
    from flatout.stage.cluster.spread import ClusterSummary
    from flatout.stage.destination.checking import Check
    from flatout.stage.outlook import Outlook
    from flatout.stage.packing.pack import PackSummary
    from flatout.stage.progress import Summary

NAMED = 5  # folders that could not be listed
REASONS = 6  # for which objects were left out
MAX_KEYS = 20  # of a check, for each kind
WIDTH = 80  # columns


def _wrapped(text: str) -> list[str]:
    """A sentence in lines of at most WIDTH columns, with its own indent; continuation lines are indented further."""
    indent = " " * (len(text) - len(text.lstrip()))
    first, *more = wrap(text, WIDTH - len(indent) - 2) if len(text) > WIDTH else [text.lstrip()]
    return [f"{indent}{first}", *(f"{indent}  {line}" for line in more)]


def outlook_lines(address: str, outlook: Outlook) -> str:
    """The prediction of ``--dry-run``."""
    classes = f", {outlook.classes} classes" if outlook.classes is not None else ""
    lines = [one_line(address), f"  {_count(outlook.files)}, {size(outlook.bytes)}{classes}"]
    if outlook.missing_files != outlook.files:
        lines.append(f"  {outlook.missing_files:,} of them are missing or have changed, {size(outlook.missing_bytes)}")
    lines.append(
        f"  free at the destination: {size(outlook.free_bytes)}: {'it fits' if outlook.fits else 'too little'}"
    )
    if outlook.n_refused:
        lines += _wrapped(
            f"  {outlook.n_refused:,} would be left out: keys that cannot be file names, links that lead nowhere"
        )
    lines += [line for why in outlook.unlisted[:NAMED] for line in _wrapped(f"  not listed: {one_line(why)}")]
    if outlook.predicted_s is not None and outlook.missing_files:
        lines += _wrapped(
            f"  about {duration(outlook.predicted_s)} to read them: a prediction from reading "
            f"{outlook.tried_files:,} of the files, {outlook.tried_concurrency} at once; writing many small files may "
            "take longer"
        )
    return "\n".join([*lines, "Nothing was copied."])


def check_lines(found: Check) -> str:
    """The result of ``--check``."""
    lines = [
        f"{found.files:,} files checked in {duration(found.duration_s)}: "
        f"{len(found.missing):,} missing, {len(found.changed):,} changed"
    ]
    for what, keys in (("missing", found.missing), ("changed", found.changed)):
        lines += [f"  {what}: {one_line(key)}" for key in keys[:MAX_KEYS]]
    if found.verified:
        lines.append(f"  compared with the store when they were staged: {verified_text(found.verified)}")
    if found.packed:
        if found.missing or found.changed:
            lines.append("Remove the packed set, and pack it again: a set is written as a whole.")
        return "\n".join(lines)
    if found.missing:
        lines.append("Stage again to restore what is missing.")
    if found.changed:
        lines.append("Stage again with --overwrite to restore what has changed; without it, changed files stay.")
    return "\n".join(lines)


def summary_lines(summary: Summary) -> str:
    """The result of a staging."""
    lines = [
        *_wrapped(
            f"staged {_count(summary.copied)}, {size(summary.copied_bytes)}, in {duration(summary.duration_s)}: "
            f"{summary.files_per_s:,.0f} files/s, {size(summary.bytes_per_s)}/s, up to {summary.peak_concurrency} at "
            "once"
        ),
        f"  total: {_count(summary.total_files)}, {size(summary.total_bytes)} in {summary.destination}",
    ]
    if summary.kept:
        adopted = f", {summary.adopted:,} of them not staged by flatout" if summary.adopted else ""
        lines.append(f"  {summary.kept:,} were complete already{adopted}")
    if summary.verified:
        lines += _wrapped(f"  compared with the source: {verified_text(summary.verified)}")
    if summary.changed:
        lines.append(f"  {summary.changed:,} pictures were scaled or re-encoded")
    if summary.n_dropped:
        lines += _wrapped(
            f"  {summary.n_dropped:,} pictures cannot be decoded and were left out: "
            f"{one_line(summary.dropped_examples[0])}"
        )
    if summary.retries:
        lines.append(f"  {summary.retries:,} retries, {summary.slow_downs:,} of them requests to slow down")
    if summary.n_refused:
        lines += _left_out(summary)
    if summary.n_gone:
        lines += _wrapped(_gone_line(summary))
    if summary.not_pruned:
        lines += _wrapped(f"  nothing was pruned: {one_line(summary.not_pruned)}")
    if summary.classes is not None:
        lines.append(f"  the {summary.classes} classes: {summary.destination}/classes.json")
    if summary.n_failed:
        lines.append(_failed_line(summary.n_failed, summary.in_the_way))
    again = f"Check it later: flatout stage {summary.source} {summary.destination} --check"
    return "\n".join([*lines, one_line(again)])


def _left_out(summary: Summary) -> list[str]:
    """What was left out, by its reason, the most frequent first."""
    reasons = sorted(summary.refused_reasons.items(), key=lambda item: -item[1].count)
    if len(reasons) == 1:
        why, left_out = reasons[0]
        such_as = f"{one_line(left_out.example)}: {one_line(why)}"
        return _wrapped(f"  {left_out.count:,} left out, {'such as ' if left_out.count > 1 else ''}{such_as}")
    lines = [f"  {summary.n_refused:,} left out:"]
    for why, left_out in reasons[:REASONS]:
        such_as = "such as " if left_out.count > 1 else ""
        lines += _wrapped(f"    {left_out.count:,} {one_line(why)}: {such_as}{one_line(left_out.example)}")
    if len(reasons) > REASONS:
        others = sum(left_out.count for _, left_out in reasons[REASONS:])
        lines.append(f"    {others:,} for {len(reasons) - REASONS} other reasons (--json has them all)")
    return lines


def _count(files: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}"


def _failed_line(failed: int, in_the_way: int) -> str:
    again = f"the same command tries {'it' if failed - in_the_way == 1 else 'them'} again"
    if not in_the_way:
        return f"  {failed:,} FAILED; {again}"
    what = "files at the destination that are yours or were changed are kept: --overwrite replaces them"
    if in_the_way == failed:
        return f"  {failed:,} FAILED: {what}"
    return f"  {failed:,} FAILED. {in_the_way:,} of them: {what}; of the others: {again}"


def _gone_line(summary: Summary) -> str:
    if summary.pruned:
        what = "removed" if summary.pruned == summary.n_gone else f"{summary.pruned:,} removed"
    elif summary.gone_changed or summary.gone_yours:
        what = "none removed"
    else:
        what = "still here" if summary.not_pruned else "still here: --prune removes them"
    if summary.gone_changed:
        what += f", {summary.gone_changed:,} kept: changed here"
    if summary.gone_yours:
        what += f", {summary.gone_yours:,} kept: yours, not written by staging"
    return f"  {summary.n_gone:,} no longer in the source ({what}), such as {one_line(summary.gone_examples[0])}"


def verified_text(verified: dict[str, int]) -> str:
    """Numbers of files by what they were compared with."""
    return ", ".join(f"{count:,} by {what}" for what, count in verified.items())


def packed_lines(packed: PackSummary) -> str:
    """The result of packing."""
    parts = f", splits {', '.join(packed.splits)}" if packed.splits != ("",) else ""
    lines = _wrapped(
        f"nothing new to pack{parts}"
        if not packed.packed
        else f"packed {packed.packed:,} images of {packed.classes} classes, {size(packed.packed_bytes)}, in "
        f"{duration(packed.duration_s)}: {packed.images_per_s:,.0f} images/s{parts}"
    )
    if packed.kept:
        lines.append(f"  {packed.kept:,} more are in parts that an earlier packing wrote")
    if packed.changed:
        lines.append(f"  {packed.changed:,} were scaled or re-encoded")
    if packed.n_dropped:
        lines += _wrapped(
            f"  {packed.n_dropped:,} cannot be decoded and were left out, such as "
            f"{one_line(packed.dropped_examples[0])}"
        )
    if packed.verified:
        lines += _wrapped(f"  compared with the source: {verified_text(packed.verified)}")
    lines.append(one_line(f"Check it later: flatout stage {packed.source} {packed.destination} --check"))
    if packed.shards:
        lines += _wrapped("Read the shards with webdataset; index.json names them, and its indexed reader takes it.")
    else:
        lines.append(f"Train on it: flatout train RECIPE --data {packed.destination}")
    return "\n".join(lines)


def cluster_lines(summary: ClusterSummary) -> str:
    """The result of staging on a cluster."""
    what = "its share of" if summary.replicate == "shard" else "all of"
    lines = [
        f"staged {summary.listed:,} files, {size(summary.listed_bytes)}, in {duration(summary.duration_s)}: each of "
        f"{len(summary.hosts)} hosts has {what} them"
    ]
    lines += [
        f"  {host['host']}: {host['total_files']:,} files, {size(host['total_bytes'])}; "
        f"{host['copied']:,} from the source, {host['taken']:,} from other hosts"
        + (f"; {host['changed']:,} scaled or re-encoded" if host["changed"] else "")
        + (f"; {host['n_dropped']:,} cannot be decoded and were left out" if host["n_dropped"] else "")
        for host in summary.hosts
    ]
    if summary.lost:
        lines.append(f"  lost: {', '.join(summary.lost)}; other hosts staged {summary.moved:,} files instead")
    if summary.n_refused:
        lines.append(f"  {summary.n_refused:,} left out: keys that cannot be file names, links that lead nowhere")
    if summary.n_failed:
        lines.append(f"  {summary.n_failed:,} FAILED; the same command tries them again")
    return "\n".join(lines)
