"""What a staging would do, or did, as lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flatout.report.layout import wrap
from flatout.terminal_text import one_line
from flatout.units import duration, size

if TYPE_CHECKING:
    from flatout.stage.cluster.spread import ClusterSummary
    from flatout.stage.packing.pack import PackSummary
    from flatout.stage.progress import Summary

NAMED = 5
WIDTH = 80  # columns


def _wrapped(text: str) -> list[str]:
    """A sentence, indented as it is, in lines of at most WIDTH columns; those that go on are indented further."""
    indent = " " * (len(text) - len(text.lstrip()))
    first, *more = wrap(text, WIDTH - len(indent) - 2) if len(text) > WIDTH else [text.lstrip()]
    return [f"{indent}{first}", *(f"{indent}  {line}" for line in more)]


def outlook_lines(address: str, outlook: dict[str, object]) -> str:
    """What a staging would do."""

    def number(name: str) -> float:
        value = outlook[name]
        assert isinstance(value, (int, float))
        return value

    seconds = outlook["predicted_s"]
    lines = [
        one_line(address),
        f"  {_count(int(number('files')))}, {size(number('bytes'))}"
        + (f", {number('classes')} classes" if outlook["classes"] is not None else ""),
    ]
    missing = number("missing_files")
    if missing != number("files"):
        lines.append(f"  {missing:,} of them are missing there or have changed, {size(number('missing_bytes'))}")
    lines += [
        f"  free at the destination: {size(number('free_bytes'))}: {'it fits' if outlook['fits'] else 'too little'}",
    ]
    if outlook["refused"]:
        lines += _wrapped(
            f"  {number('refused'):,} would be left out: keys that cannot be file names, links that lead nowhere"
        )
    unlisted = outlook["unlisted"]
    assert isinstance(unlisted, tuple)
    lines += [line for why in unlisted[:NAMED] for line in _wrapped(f"  not listed: {one_line(why)}")]
    if isinstance(seconds, float) and missing:
        lines += _wrapped(
            f"  about {duration(seconds)} to read them: a prediction from reading {number('tried_files'):,} of the "
            f"files, {number('tried_at_once')} at once; writing many small files may take longer"
        )
    return "\n".join([*lines, "Nothing was copied."])


def summary_lines(summary: Summary) -> str:
    """How a staging ended."""
    lines = [
        *_wrapped(
            f"staged {_count(summary.copied)}, {size(summary.copied_bytes)}, in {duration(summary.seconds)}: "
            f"{summary.files_per_s:,.0f} files/s, {size(summary.bytes_per_s)}/s, up to {summary.most_at_once} at once"
        ),
        f"  there now: {_count(summary.total_files)}, {size(summary.total_bytes)} in {summary.destination}",
    ]
    if summary.kept:
        adopted = f", {summary.adopted:,} of them not staged by flatout" if summary.adopted else ""
        lines.append(f"  {summary.kept:,} were complete already{adopted}")
    if summary.verified:
        lines += _wrapped(f"  compared with the source: {verified_text(summary.verified)}")
    if summary.changed:
        lines.append(f"  {summary.changed:,} pictures were changed on the way")
    if summary.dropped:
        lines += _wrapped(
            f"  {summary.dropped:,} pictures cannot be decoded and were left out: {one_line(summary.dropped_names[0])}"
        )
    if summary.retries:
        lines.append(f"  {summary.retries:,} tries again, {summary.slow_downs:,} of them asked for by the store")
    if summary.refused:
        lines += _wrapped(f"  {summary.refused:,} left out, such as {one_line(summary.refusals[0])}")
    if summary.gone:
        lines += _wrapped(_gone_line(summary))
    if summary.not_pruned:
        lines += _wrapped(f"  nothing was pruned: {one_line(summary.not_pruned)}")
    if summary.classes is not None:
        lines.append(f"  the {summary.classes} classes: {summary.destination}/classes.json")
    if summary.failed:
        lines.append(_failed_line(summary.failed, summary.in_the_way))
    again = f"Check it later: flatout stage {summary.source} {summary.destination} --check"
    return "\n".join([*lines, one_line(again)])


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
        what = "removed" if summary.pruned == summary.gone else f"{summary.pruned:,} removed"
    elif summary.gone_changed or summary.gone_yours:
        what = "none removed"
    else:
        what = "still here" if summary.not_pruned else "still here: --prune removes them"
    if summary.gone_changed:
        what += f", {summary.gone_changed:,} kept: changed here"
    if summary.gone_yours:
        what += f", {summary.gone_yours:,} kept: yours, not written by staging"
    return f"  {summary.gone:,} no longer in the source ({what}), such as {one_line(summary.gone_names[0])}"


def verified_text(verified: dict[str, int]) -> str:
    """How many files were compared with what."""
    return ", ".join(f"{count:,} by {what}" for what, count in verified.items())


def packed_lines(packed: PackSummary) -> str:
    """How a packing ended."""
    parts = f", splits {', '.join(packed.splits)}" if packed.splits != ("",) else ""
    lines = _wrapped(
        f"packed {packed.images:,} images of {packed.classes} classes, {size(packed.bytes)}, in "
        f"{duration(packed.seconds)}: {packed.images_per_s:,.0f} images/s{parts}"
    )
    if packed.kept:
        lines.append(f"  {packed.kept:,} more lay in whole parts of an earlier packing")
    if packed.changed:
        lines.append(f"  {packed.changed:,} were changed on the way")
    if packed.dropped:
        lines += _wrapped(
            f"  {packed.dropped:,} cannot be decoded and were left out, such as {one_line(packed.dropped_names[0])}"
        )
    if packed.shards:
        lines += _wrapped("Read the shards with webdataset; index.json names them, and its indexed reader takes it.")
    else:
        lines.append(f"Train on it: flatout train RECIPE --data {packed.destination}")
    return "\n".join(lines)


def cluster_lines(summary: ClusterSummary) -> str:
    """How a staging on a cluster ended."""
    what = "its share of" if summary.each == "shard" else "all of"
    lines = [
        f"staged {summary.listed:,} files, {size(summary.listed_bytes)}, in {duration(summary.seconds)}: each of "
        f"{len(summary.hosts)} hosts has {what} them"
    ]
    lines += [
        f"  {host['host']}: {host['total_files']:,} files, {size(host['total_bytes'])}; "
        f"{host['copied']:,} from the source, {host['taken']:,} from other hosts"
        + (f"; {host['changed']:,} changed on the way" if host["changed"] else "")
        + (f"; {host['dropped']:,} cannot be decoded and were left out" if host["dropped"] else "")
        for host in summary.hosts
    ]
    if summary.lost:
        lines.append(f"  lost on the way: {', '.join(summary.lost)}; others brought {summary.moved:,} files for it")
    if summary.refused:
        lines.append(f"  {summary.refused:,} left out: keys that cannot be file names, links that lead nowhere")
    if summary.failed:
        lines.append(f"  {summary.failed:,} FAILED; the same command tries them again")
    return "\n".join(lines)
