"""One staging, from listing to manifest: what is complete stays, what is missing or changed is copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from flatout.errors import FlatoutError, UsageError
from flatout.stage.bringing import Bringer, Options
from flatout.stage.claims import archive_of
from flatout.stage.concurrency import Width
from flatout.stage.copiers import Copiers
from flatout.stage.failures import Failure
from flatout.stage.names import refusal
from flatout.stage.occupied import alone
from flatout.stage.origins import Entry, Origin
from flatout.stage.progress import NAMED_AT_MOST, Progress, Summary
from flatout.stage.selection import Selection, chosen_classes, selected, write_class_list
from flatout.stage.space import check_room
from flatout.stage.state import State
from flatout.stage.target import Target, remove_partial
from flatout.stage.unfinished import remove_unfinished

MOST_AT_ONCE = 128
CLASS_LIST = "classes.json"


class StagingFailed(FlatoutError):
    """The staging ended without everything that was wanted; what is complete is kept."""

    exit_code = 1


def stage(
    origin: Origin,
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
        UsageError: the destination cannot be used, holds another source, or is too small.
        StagingFailed: the listing failed, or the disk became full.
    """
    begin_destination(destination)
    with alone(destination, options.wait if options else False, report):
        state = State(destination)
        try:
            state.claim(destination, origin.address)
            left = remove_partial(destination)
            remove_unfinished(state.folder)
            if left:
                report(f"{left} unfinished file(s) of an interrupted staging removed")
            return _Staging(origin, destination, selection, options or Options(), state, watch, report).run()
        finally:
            state.close()


def begin_destination(destination: Path) -> None:
    """Make the folder if it is not there.

    Raises:
        UsageError: it cannot be made, or written to.
    """
    try:
        destination.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{destination}: {error.strerror or error}") from None
    if not os.access(destination, os.W_OK | os.X_OK):
        raise UsageError(f"{destination}: not writable")


class _Staging:
    def __init__(
        self,
        origin: Origin,
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
        self.width = Width(options.jobs or MOST_AT_ONCE, fixed=options.jobs is not None)
        self.bringer = Bringer(origin, Target(destination), state, options, self.progress, self.width)
        self.folder_bytes = len(os.fsencode(destination))

    def run(self) -> Summary:
        """Copy, and say how it went."""
        check_room(self.destination, 1, self.options.keep_free)
        listing = self.state.begin()
        classes = chosen_classes(self.origin, self.selection)
        if classes is not None:
            write_class_list(self.destination / CLASS_LIST, classes)
        copiers = Copiers(lambda entry: self.bringer.bring(entry, listing), self.width)
        self.bringer.stopped = lambda: copiers.stopped is not None
        try:
            copiers.run(self._listed(classes), self._look)
        except (Failure, OSError) as error:
            raise _as_staging_failure(error) from error
        finally:
            remove_partial(self.destination)
        return self._finish(listing, classes)

    def _look(self) -> int:
        self.progress.width = self.width.now
        self.watch(self.progress)
        return self.progress.copied

    def _listed(self, classes: list[str] | None) -> Iterator[Entry]:
        for entry in selected(self.origin, self.selection, classes):
            why = refusal(entry.key, self.folder_bytes)
            if why is not None:
                self.progress.refuse(f"{entry.key[:80]!r}: {why}")
                continue
            self.progress.listed += 1
            self.progress.listed_bytes += entry.size
            yield entry
        self.progress.listing_done = True

    def _finish(self, listing: int, classes: list[str] | None) -> Summary:
        progress = self.progress
        gone = 0
        names: list[str] = []
        for done in self.state.all(unseen_since=listing):
            # What was left out this time by choice is not gone.
            asked_for = archive_of(done.version) or done.key
            if not self.selection.wants(asked_for) or not self._in_scope(asked_for, classes):
                continue
            gone += 1
            if len(names) < NAMED_AT_MOST:
                names.append(done.key)
            if self.options.prune:
                self.bringer.target.path(done.key).unlink(missing_ok=True)
                self.state.remove(done.key)
        manifest = self.state.write_manifest(self.destination, self.origin.address)
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
            refused=progress.refusals,
            refusals=tuple(progress.refused),
            gone=gone,
            gone_names=tuple(names),
            pruned=self.options.prune,
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

    def _in_scope(self, key: str, classes: list[str] | None) -> bool:
        parts = key.split("/")
        if self.selection.splits:
            if parts[0] not in self.selection.splits:
                return False
            parts = parts[1:]
        return self.selection.per_class is None and (classes is None or (bool(parts) and parts[0] in classes))


def _as_staging_failure(error: Failure | OSError) -> StagingFailed:
    if isinstance(error, Failure):
        return StagingFailed(f"{error}: run the same command again to go on")
    place = f"{error.filename}: " if error.filename else ""
    return StagingFailed(f"{place}{error.strerror or error}: what is complete is kept; run the same command again")
