"""Volumes in an object store or at a web address: fetched a case at a time, converted from there, and removed."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path

from flatout.errors import StagingFailed, UsageError
from flatout.stage.progress import Progress
from flatout.stage.selection import Selection
from flatout.stage.sources.base import Attributes, ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.object_files import RangedFile
from flatout.stage.sources.store_facts import Facts
from flatout.stage.staging import listing_failure, stage
from flatout.stage.transfer import Options
from flatout.volumes.cases import Case, find_cases
from flatout.volumes.plan import SourceFile, one_page
from flatout.volumes.sources.chunked import ZARR_FILES

_HEADER_BYTES = 64 << 10  # read at a time to see how many pages a tif has


class StoredCases:
    """The volumes below an address.

    Attributes:
        address: of the source.
        cases: what is there, by the names of the objects.
    """

    def __init__(self, source: Source) -> None:
        """List the source.

        Raises:
            UsageError: no volume is there, or files do not fit together.
            StagingFailed: it cannot be listed.
        """
        self._source = source
        self.address = source.address
        try:
            self._objects = {obj.key: obj for obj in source.objects()}
            if not self._objects:
                raise UsageError(source.nothing_found())
            if any(name in self._objects for name in ZARR_FILES):
                name = posixpath.basename(source.address.rstrip("/"))
                self.cases = [Case(name.split(".")[0] or "volume", ".")]
            else:
                self.cases = find_cases(self._objects, self._one_page)
        except UsageError as error:
            raise UsageError(f"{self.address}: {error}") from None
        except (Failure, OSError) as error:
            raise listing_failure(error, Path(self.address)) from None

    def files(self, case: Case) -> tuple[SourceFile, ...]:
        """The objects of a case, as listed."""
        return tuple((f"{self.address}/{obj.key}", obj.size, obj.version) for obj in self._of(case))

    def n_bytes(self, case: Case) -> int:
        """Size of its objects."""
        return sum(obj.size for obj in self._of(case))

    def fetch(self, case: Case, folder: Path, watch: Callable[[Progress], None], report: Callable[[str], None]) -> None:
        """Copy the objects of a case to a folder; a copy that was interrupted goes on.

        Raises:
            DiskFull: there is no room.
            StagingFailed: some could not be read.
        """
        found = stage(_Some(self._source, self._of(case)), folder, Selection(), Options(), watch, report)
        failed = [*found.failed_examples, *found.refused_examples]
        if failed:
            raise StagingFailed(f"{failed[0]}: volume {case.id} is not complete: run the same command again to go on")

    def _of(self, case: Case) -> list[ObjectInfo]:
        if case.image == ".":
            return list(self._objects.values())
        names = tuple(filter(None, (case.image, case.label, case.ignore)))
        below = tuple(f"{name}/" for name in names)
        return [obj for key, obj in self._objects.items() if key in names or key.startswith(below)]

    def _one_page(self, name: str) -> bool:
        with io.BufferedReader(RangedFile(self._source, self._objects[name], _HEADER_BYTES)) as file:
            return one_page(file, f"{self.address}/{name}")


class _Some(Source):
    """Some objects of a source."""

    def __init__(self, source: Source, objects: list[ObjectInfo]) -> None:
        self._source, self._objects = source, objects
        self.address, self.server, self.unverified = source.address, source.server, source.unverified

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        below = prefix and prefix.rstrip("/") + "/"
        return (obj for obj in self._objects if obj.key.startswith(below))

    def folders(self, prefix: str = "") -> list[str]:
        below = prefix and prefix.rstrip("/") + "/"
        rest = (obj.key.removeprefix(below) for obj in self.objects(prefix))
        return sorted({key.partition("/")[0] for key in rest if "/" in key})

    def stream(self, obj, buffer, start=0, length=None):  # type: ignore[no-untyped-def]
        return self._source.stream(obj, buffer, start, length)

    def has_ranges(self, obj: ObjectInfo) -> bool:
        return self._source.has_ranges(obj)

    def attributes(self, obj: ObjectInfo) -> Attributes | None:
        return self._source.attributes(obj)

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        return self._source.facts(obj, part)

    def look_again(self, obj: ObjectInfo) -> ObjectInfo:
        return self._source.look_again(obj)
