"""One staging, from listing to manifest: what is complete stays, what is missing or changed is copied."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue

from flatout.errors import FlatoutError, UsageError
from flatout.stage.concurrency import Permits
from flatout.stage.copying import Target, copy, remove_partial
from flatout.stage.failures import Failure
from flatout.stage.names import refusal, state_folder
from flatout.stage.occupied import alone
from flatout.stage.origins import Entry, Origin
from flatout.stage.selection import Selection, chosen_classes, selected, write_class_list
from flatout.stage.space import check_room
from flatout.stage.state import Complete, State, is_complete

MOST_AT_ONCE = 128
TRIES = 8
LONGEST_PAUSE_S = 20.0
CHECK_SPACE_EVERY = 256  # files
NAMED_AT_MOST = 20  # failures and refusals that are named; all are counted
CLASS_LIST = "classes.json"


class StagingFailed(FlatoutError):
    """The staging ended without everything that was wanted; what is complete is kept."""

    exit_code = 1


@dataclass
class Progress:
    """Counters of a staging that goes on; written by its threads, read by whoever shows them."""

    listed: int = 0
    listed_bytes: int = 0
    listing_done: bool = False
    copied: int = 0
    copied_bytes: int = 0
    kept: int = 0  # complete already
    kept_bytes: int = 0
    retries: int = 0
    slow_downs: int = 0
    width: int = 0
    failed: list[str] = field(default_factory=list)
    failures: int = 0
    refused: list[str] = field(default_factory=list)
    refusals: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a staging ended; figures are of this staging, ``total_*`` of the destination."""

    source: str
    destination: str
    copied: int
    copied_bytes: int
    kept: int
    failed: int
    failures: tuple[str, ...]
    refused: int
    refusals: tuple[str, ...]
    gone: int  # staged earlier, no longer in the source
    gone_names: tuple[str, ...]
    pruned: bool  # what is gone was removed at the destination
    seconds: float
    files_per_s: float
    bytes_per_s: float
    retries: int
    slow_downs: int
    most_at_once: int
    total_files: int
    total_bytes: int
    classes: int | None
    manifest: str

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to stage."""

    jobs: int | None = None  # so many at once, always; None: found by climbing
    wait: bool = False  # wait for another staging to the same place
    prune: bool = False  # remove files that the source no longer has
    keep_free: int | None = None  # bytes of the disk to leave to others; None: a default


def stage(
    origin: Origin,
    destination: Path,
    selection: Selection,
    options: Options = Options(),
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
    try:
        destination.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{destination}: {error.strerror or error}") from None
    if not os.access(destination, os.W_OK | os.X_OK):
        raise UsageError(f"{destination}: not writable")
    with alone(destination, options.wait, report):
        state = State(destination)
        try:
            before = state["source"]
            if before is not None and before != origin.address:
                raise UsageError(
                    f"{destination}: holds what was staged from {before}, not from {origin.address}: "
                    f"choose another folder, or remove {state_folder(destination)}"
                )
            state["source"] = origin.address
            left = remove_partial(destination)
            if left:
                report(f"{left} unfinished file(s) of an interrupted staging removed")
            return _Staging(origin, destination, selection, options, state, watch, report).run()
        finally:
            state.close()


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
        self.target = Target(destination)
        self.progress = Progress()
        self.permits = Permits(options.jobs or MOST_AT_ONCE, fixed=options.jobs is not None)
        self.work: Queue[Entry] = Queue(maxsize=4 * self.permits.most)
        self.listed = threading.Event()
        self.stopped: BaseException | None = None
        self.count = threading.Lock()
        self.folder_bytes = len(os.fsencode(destination))

    def run(self) -> Summary:
        """Copy, and say how it went."""
        check_room(self.destination, 1, self.options.keep_free)
        listing = self.state.begin()
        classes = chosen_classes(self.origin, self.selection)
        if classes is not None:
            write_class_list(self.destination / CLASS_LIST, classes)
        threads = [
            threading.Thread(target=self._copy_all, args=(listing,), name=f"flatout-stage-{n}", daemon=True)
            for n in range(self.permits.most)
        ]
        lister = threading.Thread(target=self._list_all, args=(classes, listing), name="flatout-list", daemon=True)
        lister.start()
        # One at least before the loop below looks: a short listing may be over by then.
        threads[0].start()
        started = 1
        try:
            while lister.is_alive() or any(thread.is_alive() for thread in threads[:started]):
                # Threads beyond the width would only wait.
                while started < min(self.permits.width, len(threads)) and self.stopped is None:
                    threads[started].start()
                    started += 1
                self.progress.width = self.permits.width
                self.watch(self.progress)
                for thread in (lister, *threads[:started]):
                    if thread.is_alive():
                        thread.join(0.1)
                        break
        except BaseException as stop:  # Ctrl-C: what is in flight ends first
            self.stopped = stop
            raise
        finally:
            for thread in (lister, *threads[:started]):
                thread.join()
            remove_partial(self.destination)
        self.watch(self.progress)
        if self.stopped is not None:
            raise self.stopped
        return self._finish(listing, classes)

    def _list_all(self, classes: list[str] | None, listing: int) -> None:
        try:
            for entry in self._listed(classes):
                self._put(entry)
                if self.stopped is not None:
                    return
            self.progress.listing_done = True
            self.listed.set()
        except BaseException as error:
            self.stopped = self.stopped or _as_staging_failure(error)

    def _listed(self, classes: list[str] | None) -> Iterator[Entry]:
        for entry in selected(self.origin, self.selection, classes):
            why = refusal(entry.key, self.folder_bytes)
            if why is not None:
                self.progress.refusals += 1
                if len(self.progress.refused) < NAMED_AT_MOST:
                    self.progress.refused.append(f"{entry.key[:80]!r}: {why}")
                continue
            self.progress.listed += 1
            self.progress.listed_bytes += entry.size
            yield entry

    def _put(self, entry: Entry) -> None:
        while self.stopped is None:
            try:
                self.work.put(entry, timeout=0.2)
                return
            except Full:
                continue

    def _copy_all(self, listing: int) -> None:
        while self.stopped is None:
            try:
                entry = self.work.get(timeout=0.1)
            except Empty:
                # Everything is in the queue before the listing is called done.
                if self.listed.is_set() and self.work.empty():
                    return
                continue
            try:
                self._one(entry, listing)
            except BaseException as error:
                self.stopped = self.stopped or _as_staging_failure(error)

    def _one(self, entry: Entry, listing: int) -> None:
        known = self.state.known(entry.key)
        if known is not None and is_complete(known, entry, self.target.path(entry.key)):
            self.state.saw(entry.key, listing)
            with self.count:
                self.progress.kept += 1
                self.progress.kept_bytes += entry.size
            return
        self.permits.take()
        done = None
        try:
            done = self._copied(entry)
        finally:
            self.permits.give(done is not None)
        if done is None:
            return
        self.state.add(done, listing)
        with self.count:
            self.progress.copied += 1
            self.progress.copied_bytes += entry.size
            look = self.progress.copied % CHECK_SPACE_EVERY == 0
        if look:
            check_room(self.destination, 1, self.options.keep_free)

    def _copied(self, entry: Entry) -> Complete | None:
        for attempt in range(TRIES):
            if self.stopped is not None:
                return None
            try:
                return copy(entry, self.origin, self.target)
            except Failure as failure:
                if failure.kind == "busy":
                    self.permits.busy()
                    self.progress.slow_downs += 1
                if failure.kind not in ("busy", "again") or attempt == TRIES - 1:
                    self._failed(str(failure))
                    return None
            self.progress.retries += 1
            # Full jitter: many clients that were turned away together do not come back together.
            time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.2 * 2**attempt)))
        return None

    def _failed(self, text: str) -> None:
        with self.count:
            self.progress.failures += 1
            if len(self.progress.failed) < NAMED_AT_MOST:
                self.progress.failed.append(text)

    def _finish(self, listing: int, classes: list[str] | None) -> Summary:
        progress = self.progress
        gone = 0
        names: list[str] = []
        for done in self.state.all(unseen_since=listing):
            # What was left out this time by choice is not gone.
            if not self.selection.wants(done.key) or not self._in_scope(done.key, classes):
                continue
            gone += 1
            if len(names) < NAMED_AT_MOST:
                names.append(done.key)
            if self.options.prune:
                self.target.path(done.key).unlink(missing_ok=True)
                self.state.remove(done.key)
        manifest = self.state.write_manifest(self.destination, self.origin.address)
        files, size = self.state.totals()
        seconds = progress.seconds
        return Summary(
            source=self.origin.address,
            destination=str(self.destination),
            copied=progress.copied,
            copied_bytes=progress.copied_bytes,
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
            most_at_once=self.permits.highest_used,
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


def _as_staging_failure(error: BaseException) -> BaseException:
    if isinstance(error, Failure):
        return StagingFailed(f"{error}: run the same command again to go on")
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return StagingFailed(f"{place}{error.strerror or error}: what is complete is kept; run the same command again")
    return error
