"""One staging: lists the source, transfers what is missing or changed, keeps what is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from flatout.errors import DiskFull, FlatoutError, StagingFailed, UsageError
from flatout.formats.class_list import CLASSES_FILE
from flatout.stage.archives.claims import archive_of
from flatout.stage.archives.unfinished import remove_unfinished
from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.manifest import write_manifest
from flatout.stage.destination.overlap import refuse_overlap
from flatout.stage.destination.own_folder import adopt_moved, remove_partial
from flatout.stage.destination.pruning import Gone, find_gone, prune
from flatout.stage.destination.safe_paths import STATE_FOLDER, refusal, refuse_file, state_folder
from flatout.stage.destination.space import FULL, STAGE_ADVICE, check_room, free_bytes
from flatout.stage.destination.state import Complete, State
from flatout.stage.destination.target import Target
from flatout.stage.progress import Progress, Summary
from flatout.stage.selection import Selection, chosen_classes, selected, write_class_list
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import ObjectTransfer, Options
from flatout.stage.transfer_pool import TransferPool
from flatout.units import counted
from flatout.units import size as size_text

MAX_CONCURRENCY = 128
# For listings that fail in a way that retries do not repair.
_ADVICE: dict[str, str] = {
    "gone": "check the name of the bucket or folder, --endpoint and --region",
    "denied": "check that the credentials (--profile, or --anonymous) may list and read it",
    "never": "check the address and --endpoint",
}


def stage(
    source: Source,
    destination: Path,
    selection: Selection,
    options: Options | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    report: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Stage the selected objects to ``destination``.

    Args:
        source: where they are read.
        destination: folder; made if it does not exist.
        selection: which objects.
        options: how.
        watch: called a few times per second with the progress.
        report: called with each progress message.

    Raises:
        UsageError: the source does not exist; the destination cannot be used, holds another source, or is too small.
        DiskFull: less room than the listed objects need, or the disk became full.
        StagingFailed: the listing failed.
    """
    made = not destination.exists()
    noted = state_folder(destination).exists()
    destination = begin_destination(destination, source)
    adopt_moved(destination, report)
    try:
        return _stage_locked(source, destination, selection, options, watch, report)
    except FlatoutError:
        if made:
            _remove_empty(destination, noted)
        raise


def _remove_empty(destination: Path, noted: bool) -> None:
    """Remove the folder of a staging that transferred nothing, and its record unless that existed before."""
    own = state_folder(destination)
    if {path.name for path in destination.iterdir()} <= {own.name, CLASSES_FILE}:
        if not noted:
            shutil.rmtree(own, ignore_errors=True)
        shutil.rmtree(destination, ignore_errors=True)


def _stage_locked(
    source: Source,
    destination: Path,
    selection: Selection,
    options: Options | None,
    watch: Callable[[Progress], None],
    report: Callable[[str], None],
) -> Summary:
    with destination_lock(destination, options.wait if options else False, report):
        state = State(destination)
        try:
            state.claim(destination, source.address, source.server)
            left = remove_partial(destination)
            remove_unfinished(state.folder)
            if left:
                report(f"{counted(left, 'unfinished file')} of an interrupted staging removed")
            return _Staging(source, destination, selection, options or Options(), state, watch, report).run()
        finally:
            state.close()


def begin_destination(destination: Path, source: Source | None = None) -> Path:
    """Make the folder if necessary; returns its path without links, so that two names of a folder are one destination.

    Raises:
        UsageError: it cannot be made, or written to, or shares files with the source.
    """
    if source is not None:
        refuse_overlap(source, destination)
    refuse_file(destination)
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
        source: Source,
        destination: Path,
        selection: Selection,
        options: Options,
        state: State,
        watch: Callable[[Progress], None],
        report: Callable[[str], None],
    ) -> None:
        self.source, self.destination, self.selection, self.options = source, destination, selection, options
        self.state, self.watch, self.report = state, watch, report
        self.progress = Progress()
        self.limit = ConcurrencyLimit(options.concurrency or MAX_CONCURRENCY, fixed=options.concurrency is not None)
        target = Target(destination, state, options.overwrite)
        self.transfer = ObjectTransfer(source, target, state, options, self.progress, self.limit)
        with os.scandir(destination) as found:
            holds = any(item.name != STATE_FOLDER for item in found)
        self.transfer.check_existing = holds or not state.is_new
        if holds and state.is_new:
            report(f"{destination}: holds files that flatout did not stage: those with the right bytes are kept")
        # Scaled pictures and members of archives have other sizes, and files that lie there may be the right ones.
        self._sizes_are_known = not (options.change or options.unpack or (holds and state.is_new))
        self.folder_bytes = len(os.fsencode(destination))

    def run(self) -> Summary:
        """Stage; raises as :func:`stage` does."""
        check_room(self.destination, 1, self.options.min_free)
        listing = self.state.begin()
        self.source.tell = self.report
        try:
            classes = chosen_classes(self.source, self.selection)
        except Failure as error:
            raise listing_failure(error, self.destination) from error
        if classes is not None:
            write_class_list(self.destination / CLASSES_FILE, classes, self.state)
        pool = TransferPool(lambda obj: self.transfer.run(obj, listing), self.limit)
        self.progress.concurrency = self.limit.current
        self.transfer.stopped = self.source.stopped = lambda: pool.stopped is not None
        try:
            pool.run(self._listed(classes), self._look)
        except (Failure, OSError) as error:
            raise listing_failure(error, self.destination) from error
        finally:
            remove_partial(self.destination)
        return self._finish(listing, classes)

    def _look(self) -> int:
        self.progress.concurrency = self.limit.current
        self.watch(self.progress)
        return self.progress.copied

    def _listed(self, classes: list[str] | None) -> Iterator[ObjectInfo]:
        free = free_bytes(self.destination, self.options.min_free)
        room = free + self.state.totals()[1]
        needed = 0
        for obj in selected(self.source, self.selection, classes):
            why = refusal(obj.key, self.folder_bytes)
            if why is not None:
                self.progress.refuse(repr(obj.key[:80]), why)
                continue
            self.progress.listed += 1
            self.progress.listed_bytes += obj.size
            if obj.size <= free:  # a larger one fails by itself, and the others arrive
                needed += obj.size
            if needed > room and self._sizes_are_known:
                missing = size_text(needed - room + free)
                raise DiskFull(
                    f"{self.destination}: at least {missing} more are needed, {size_text(free)} may be written there: "
                    f"{STAGE_ADVICE}"
                )
            yield obj
        self._listing_ends()

    def _listing_ends(self) -> None:
        skipped, progress = self.source.skipped, self.progress
        # Files staged earlier are gone from the source: the summary reports it.
        nothing = not progress.listed and not progress.n_refused and not skipped.unreadable
        if nothing and (self.state.is_new or self.options.prune):
            raise UsageError(self.source.nothing_found() + ("" if self.state.is_new else "; nothing was pruned"))
        progress.refuse_all(skipped)
        for why in skipped.unreadable.values():
            progress.fail(why)
        progress.listing_done = True

    def _finish(self, listing: int, classes: list[str] | None) -> Summary:
        progress = self.progress
        gone = find_gone(self.state, listing, lambda done: self._is_meant(done, classes))
        if self.options.prune and gone.files:
            self._prune(gone, listing, classes)
        manifest = write_manifest(self.state)
        files, size = self.state.totals()
        duration_s = progress.duration_s
        return Summary(
            source=self.source.address,
            destination=str(self.destination),
            copied=progress.copied,
            copied_bytes=progress.copied_bytes,
            kept=progress.kept,
            adopted=progress.adopted,
            changed=progress.changed,
            n_dropped=progress.n_dropped,
            dropped_examples=tuple(progress.dropped_examples),
            n_failed=progress.n_failed,
            failed_examples=tuple(progress.failed_examples),
            in_the_way=progress.in_the_way,
            n_refused=progress.n_refused,
            refused_examples=tuple(progress.refused_examples),
            refused_reasons=dict(progress.refused_reasons),
            n_gone=gone.files,
            gone_examples=tuple(gone.names),
            pruned=gone.removed,
            gone_changed=gone.changed,
            gone_yours=gone.yours,
            not_pruned=gone.kept_because,
            verified=self.state.verifications(),
            duration_s=duration_s,
            files_per_s=progress.copied / duration_s if duration_s else 0.0,
            bytes_per_s=progress.copied_bytes / duration_s if duration_s else 0.0,
            retries=progress.retries,
            slow_downs=progress.slow_downs,
            peak_concurrency=self.limit.peak,
            total_files=files,
            total_bytes=size,
            classes=None if classes is None else len(classes),
            manifest=str(manifest),
        )

    def _prune(self, gone: Gone, listing: int, classes: list[str] | None) -> None:
        if self.source.unlisted:
            first = next(iter(self.source.unlisted))
            gone.kept_because = f"the listing is not complete: {first}"
            return
        if not self.progress.listed:
            gone.kept_because = "the listing found no files"
            return
        meant = partial(self._is_meant, classes=classes)
        prune(gone, self.destination, self.state, listing, meant, self.options.prune_most)

    def _is_meant(self, done: Complete, classes: list[str] | None) -> bool:
        """True if this listing covers a file: files left out by choice are not gone."""
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


def listing_failure(error: Failure | OSError, destination: Path) -> FlatoutError:
    """The error of a listing, with what to do about it."""
    if isinstance(error, Failure):
        text = f"{error}: {_ADVICE.get(str(error.kind), 'run the same command again to go on')}"
        return UsageError(text) if error.kind == "gone" else StagingFailed(text)
    place = error.filename if isinstance(error.filename, str) else destination
    why = error.strerror or error
    if error.errno in FULL:
        return DiskFull(f"{place}: {why}: what is complete is kept: make room there, or {STAGE_ADVICE}")
    return StagingFailed(f"{place}: {why}: what is complete is kept; run the same command again")
