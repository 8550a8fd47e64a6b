"""One staging, from listing to manifest: what is complete stays, what is missing or changed is copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from flatout.errors import FlatoutError, StagingFailed, UsageError
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.destination.claims import archive_of
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.manifest import write_manifest
from flatout.stage.destination.overlap import refuse_overlap
from flatout.stage.destination.own_folder import adopt_moved, remove_partial
from flatout.stage.destination.pruning import Gone, find_gone, prune
from flatout.stage.destination.safe_paths import STATE_FOLDER, refusal, state_folder
from flatout.stage.destination.space import check_room
from flatout.stage.destination.state import Complete, State
from flatout.stage.destination.target import Target
from flatout.stage.destination.unfinished import remove_unfinished
from flatout.stage.progress import Progress, Summary
from flatout.stage.selection import Selection, chosen_classes, selected, write_class_list
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import ObjectTransfer, Options
from flatout.stage.transfer_pool import TransferPool

MOST_AT_ONCE = 128
CLASS_LIST = "classes.json"
# Of a listing that fails in a way that trying again does not cure.
_ADVICE: dict[str, str] = {
    "gone": "see that the bucket or folder is spelled right, and --endpoint and --region are those it is at",
    "denied": "see that the credentials (--profile, or --anonymous) may list and read it",
    "never": "see that the address and --endpoint are right",
}


def stage(
    origin: Source,
    destination: Path,
    selection: Selection,
    options: Options | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    report: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Bring what is selected to ``destination``.

    Args:
        origin: where it is.
        destination: folder; made if it does not exist.
        selection: what of it.
        options: how.
        watch: called some times a second with the progress.
        report: called with lines worth reading.

    Raises:
        UsageError: the source is not there; the destination cannot be used, holds another source, or is too small.
        StagingFailed: the listing failed, or the disk became full.
    """
    made = not destination.exists()
    noted = state_folder(destination).exists()
    destination = begin_destination(destination, origin)
    adopt_moved(destination, report)
    try:
        return _stage_alone(origin, destination, selection, options, watch, report)
    except FlatoutError:
        if made:
            _remove_empty(destination, noted)
        raise


def _remove_empty(destination: Path, noted: bool) -> None:
    """Remove a folder that was made for a staging that brought nothing, and what was not noted of it before."""
    own = state_folder(destination)
    if {path.name for path in destination.iterdir()} <= {own.name, CLASS_LIST}:
        if not noted:
            shutil.rmtree(own, ignore_errors=True)
        shutil.rmtree(destination, ignore_errors=True)


def _stage_alone(
    origin: Source,
    destination: Path,
    selection: Selection,
    options: Options | None,
    watch: Callable[[Progress], None],
    report: Callable[[str], None],
) -> Summary:
    with destination_lock(destination, options.wait if options else False, report):
        state = State(destination)
        try:
            state.claim(destination, origin.address, origin.server)
            left = remove_partial(destination)
            remove_unfinished(state.folder)
            if left:
                report(f"{left} unfinished file(s) of an interrupted staging removed")
            return _Staging(origin, destination, selection, options or Options(), state, watch, report).run()
        finally:
            state.close()


def begin_destination(destination: Path, origin: Source | None = None) -> Path:
    """Make the folder if it is not there; gives it without links: two names of a folder are one destination.

    Raises:
        UsageError: it cannot be made, or written to, or shares files with the source.
    """
    if origin is not None:
        refuse_overlap(origin, destination)
    try:
        destination.mkdir(parents=True, exist_ok=True)
        destination = destination.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{destination}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(destination, os.W_OK | os.X_OK):
        raise UsageError(f"{destination}: not writable")
    return destination


class _Staging:
    def __init__(
        self,
        origin: Source,
        destination: Path,
        selection: Selection,
        options: Options,
        state: State,
        watch: Callable[[Progress], None],
        report: Callable[[str], None],
    ) -> None:
        self.origin, self.destination, self.selection, self.options = origin, destination, selection, options
        self.state, self.watch, self.report = state, watch, report
        self.progress = Progress()
        self.width = ConcurrencyLimit(options.jobs or MOST_AT_ONCE, fixed=options.jobs is not None)
        target = Target(destination, state, options.overwrite)
        self.bringer = ObjectTransfer(origin, target, state, options, self.progress, self.width)
        with os.scandir(destination) as found:
            holds = any(item.name != STATE_FOLDER for item in found)
        self.bringer.looks_first = holds or not state.is_new
        if holds and state.is_new:
            report(f"{destination}: holds files that are not noted as staged: right ones are taken over")
        self.folder_bytes = len(os.fsencode(destination))

    def run(self) -> Summary:
        """Copy, and say how it went."""
        check_room(self.destination, 1, self.options.keep_free)
        listing = self.state.begin()
        self.origin.tell = self.report
        try:
            classes = chosen_classes(self.origin, self.selection)
        except Failure as error:
            raise _as_staging_failure(error, self.destination) from error
        if classes is not None:
            write_class_list(self.destination / CLASS_LIST, classes, self.state)
        copiers = TransferPool(lambda entry: self.bringer.bring(entry, listing), self.width)
        self.bringer.stopped = self.origin.stopped = lambda: copiers.stopped is not None
        try:
            copiers.run(self._listed(classes), self._look)
        except (Failure, OSError) as error:
            raise _as_staging_failure(error, self.destination) from error
        finally:
            remove_partial(self.destination)
        return self._finish(listing, classes)

    def _look(self) -> int:
        self.progress.width = self.width.now
        self.watch(self.progress)
        return self.progress.copied

    def _listed(self, classes: list[str] | None) -> Iterator[ObjectInfo]:
        for entry in selected(self.origin, self.selection, classes):
            why = refusal(entry.key, self.folder_bytes)
            if why is not None:
                self.progress.refuse(f"{entry.key[:80]!r}: {why}")
                continue
            self.progress.listed += 1
            self.progress.listed_bytes += entry.size
            yield entry
        self._listing_ends()

    def _listing_ends(self) -> None:
        skipped, progress = self.origin.skipped, self.progress
        # Where something was staged before, it is gone from the source: the summary says so.
        nothing = not progress.listed and not progress.refusals and not skipped.unreadable
        if nothing and (self.state.is_new or self.options.prune):
            raise UsageError(self.origin.nothing_found() + ("" if self.state.is_new else "; nothing was pruned"))
        progress.leave_out(skipped.count, skipped.names)
        for why in skipped.unreadable.values():
            progress.fail(why)
        progress.listing_done = True

    def _finish(self, listing: int, classes: list[str] | None) -> Summary:
        progress = self.progress
        gone = find_gone(self.state, listing, lambda done: self._is_meant(done, classes))
        if self.options.prune and gone.files:
            self._prune(gone, listing, classes)
        manifest = write_manifest(self.state, self.origin.address)
        files, size = self.state.totals()
        seconds = progress.seconds
        return Summary(
            source=self.origin.address,
            destination=str(self.destination),
            copied=progress.copied,
            copied_bytes=progress.copied_bytes,
            changed=progress.changed,
            dropped=progress.dropped,
            dropped_names=tuple(progress.dropped_names),
            kept=progress.kept,
            failed=progress.failures,
            failures=tuple(progress.failed),
            in_the_way=progress.in_the_way,
            refused=progress.refusals,
            refusals=tuple(progress.refused),
            gone=gone.files,
            gone_names=tuple(gone.names),
            pruned=gone.removed,
            gone_changed=gone.changed,
            gone_yours=gone.yours,
            not_pruned=gone.kept_because,
            adopted=progress.adopted,
            verified=self.state.verifications(),
            seconds=seconds,
            files_per_s=progress.copied / seconds if seconds else 0.0,
            bytes_per_s=progress.copied_bytes / seconds if seconds else 0.0,
            retries=progress.retries,
            slow_downs=progress.slow_downs,
            most_at_once=self.width.highest,
            total_files=files,
            total_bytes=size,
            classes=None if classes is None else len(classes),
            manifest=str(manifest),
        )

    def _prune(self, gone: Gone, listing: int, classes: list[str] | None) -> None:
        if self.origin.unlisted:
            first = next(iter(self.origin.unlisted))
            gone.kept_because = f"the listing is not complete: {first}"
            return
        if not self.progress.listed:
            gone.kept_because = "the listing found no files"
            return
        meant = partial(self._is_meant, classes=classes)
        prune(gone, self.destination, self.state, listing, meant, self.options.prune_most)

    def _is_meant(self, done: Complete, classes: list[str] | None) -> bool:
        """Whether this listing was meant to see a file: what was left out by choice is not gone."""
        archive = archive_of(done.version)
        if archive is not None and not self.options.unpack:
            return False  # its archive may well be there
        asked_for = archive or done.key
        return self.selection.wants(asked_for) and self._in_scope(asked_for, classes)

    def _in_scope(self, key: str, classes: list[str] | None) -> bool:
        parts = key.split("/")
        if self.selection.splits:
            if parts[0] not in self.selection.splits:
                return False
            parts = parts[1:]
        return self.selection.per_class is None and (classes is None or (bool(parts) and parts[0] in classes))


def _as_staging_failure(error: Failure | OSError, destination: Path) -> FlatoutError:
    if isinstance(error, Failure):
        text = f"{error}: {_ADVICE.get(str(error.kind), 'run the same command again to go on')}"
        return UsageError(text) if error.kind == "gone" else StagingFailed(text)
    place = error.filename if isinstance(error.filename, str) else destination
    why = error.strerror or error
    return StagingFailed(f"{place}: {why}: what is complete is kept; run the same command again")
