"""The copy of the data that a trial reads from: where to make it, whether it pays, and making it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError, UsageError
from flatout.machine.mounts import NOWHERE, mount_of, read_mounts
from flatout.results import Remedy
from flatout.trials.mechanics import Mechanics
from flatout.trials.result import Trial
from flatout.units import duration, size

BUDGET_SHARE = 0.5  # share of the remaining time that staging may take
LISTING_SHARE = 0.1  # share of it that listing may take
_FOLDER = "staged"


@dataclass(frozen=True)
class Cost:
    """Cost of a copy.

    Attributes:
        files: that were staged.
        bytes: of them.
        seconds: that it took.
        predicted_s: before it began, from reading some of the files.
    """

    files: int
    bytes: int
    seconds: float
    predicted_s: float

    def pays_after(self, before: float, after: float) -> float:
        """Number of samples after which the copy has paid for its time; rates are in samples/s."""
        return self.seconds / (1 / before - 1 / after) if after > before else float("inf")


class LocalCopy(Mechanics):
    """At most one copy in a fix.

    Attributes:
        cost: None until it is made.
    """

    def __init__(
        self,
        folder: Path,
        left_s: Callable[[], float],
        say: Callable[[str], None] = lambda text: None,
        given: str | None = None,
        to: Path | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            folder: of the fix.
            left_s: of its budget.
            say: called with each progress message.
            given: "REAL=COPY", made by the user.
            to: folder for copies; None: the fix's folder, or the temporary folder if that one is remote.
        """
        self._folder, self._left_s, self._say, self._given, self._to = folder, left_s, say, given, to
        self._predicted_s = 0.0
        self._made = ""  # "REAL=COPY", once staging began
        self._looked: dict[str, dict[str, Any] | str] = {}
        self.cost: Cost | None = None

    def settings(self, remedy: Remedy, loader: Mapping[str, Any]) -> dict[str, Any] | str:
        """The settings that read from the copy, or the reason why none can be made in time."""
        if self._given is not None:
            return {"read_from": self._given}
        root = str(loader.get("data_folder") or "")
        if self._made and root not in self._looked:
            return f"a copy of another folder was tried already: {self._made}"
        if root not in self._looked:
            self._looked[root] = self._look(root)
        return self._looked[root]

    def _look(self, root: str) -> dict[str, Any] | str:
        from flatout.extras import require

        if not root:
            return "the folder that the training reads was not seen"
        by_hand = f"flatout stage {root} COPY, then flatout fix --staged {root}=COPY"
        try:
            require("stage")
        except UsageError as error:
            return str(error)
        mounts = read_mounts(Path("/")) or []
        place = self._place(mounts)
        if mount_of(root, mounts) == mount_of(place, mounts) != NOWHERE:
            return f"{root} is on the same disk as {place}: --stage-to names a folder on a faster one"
        from flatout.stage.outlook import look_ahead
        from flatout.stage.selection import Selection
        from flatout.stage.sources.open import open_source

        left_s = self._left_s()
        try:
            outlook = look_ahead(open_source(root), place, Selection(), listing_s=LISTING_SHARE * left_s)
        except FlatoutError as error:
            return f"{error}: {by_hand}"
        if outlook is None:
            return f"listing {root} takes more than {duration(LISTING_SHARE * left_s)}: {by_hand}"
        what = f"{outlook.files:,} files, {size(outlook.bytes)}"
        if not outlook.fits:
            room = size(outlook.free_bytes)
            return (
                f"{root} ({what}) does not fit on {place}, where {room} may be written: "
                f"flatout cache {root} {place} -- COMMAND keeps a part of it there"
            )
        if outlook.predicted_s is None or outlook.predicted_s > BUDGET_SHARE * left_s:
            took = "an unknown time" if outlook.predicted_s is None else f"about {duration(outlook.predicted_s)}"
            return f"staging {root} ({what}) takes {took}, of {duration(left_s)} left: {by_hand}"
        self._predicted_s = outlook.predicted_s
        return {"read_from": f"{root}={place}"}

    def _place(self, mounts: list[Any]) -> Path:
        """A new folder, removed if the copy is not kept; never an existing folder, which may hold other files."""
        here = self._folder.absolute()
        if self._to is None and not mount_of(here, mounts).remote:
            return here / _FOLDER
        parent = Path(tempfile.gettempdir()) if self._to is None else self._to.absolute()
        return parent / f"flatout-{here.name}-{_FOLDER}"

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Stage the data, unless already done.

        Raises:
            FlatoutError: staging failed.
        """
        if self._given is not None or self.cost is not None:
            return
        from flatout.stage.selection import Selection
        from flatout.stage.sources.open import open_source
        from flatout.stage.staging import stage
        from flatout.storage.page_cache import drop

        root, _, place = str(settings["read_from"]).partition("=")
        self._say(f"staging {root} to {place}, about {duration(self._predicted_s)} (predicted)")
        self._made = str(settings["read_from"])
        summary = stage(open_source(root), Path(place), Selection())
        if summary.n_failed:
            raise FlatoutError(f"{summary.n_failed} files could not be staged, such as {summary.failed_examples[0]}")
        # Files just written are still in memory, which would make the disk look faster than it is.
        drop((path for path in Path(place).rglob("*") if path.is_file()), written=True)
        self.cost = Cost(summary.total_files, summary.total_bytes, summary.duration_s, self._predicted_s)
        self._say(f"staged {self.cost.files:,} files, {size(self.cost.bytes)} in {duration(self.cost.seconds)}")

    def with_cost(self, trial: Trial, before: float, after: float, loader: Mapping[str, Any]) -> Trial:
        """The trial with the cost of staging, and the number of samples after which it has paid off."""
        if self.cost is None:
            return trial
        note = self._cost_note(self.cost, before, after, loader.get("dataset_len"))
        return replace(trial, why=f"{trial.why}; {note}", cost=asdict(self.cost))

    @staticmethod
    def _cost_note(cost: Cost, before: float, after: float, samples_of_pass: int | None) -> str:
        text = (
            f"staging took {duration(cost.seconds)} (predicted {duration(cost.predicted_s)}) for "
            f"{cost.files:,} files, {size(cost.bytes)}"
        )
        samples = cost.pays_after(before, after)
        if after <= before:
            return text
        passes = f", {samples / samples_of_pass:.1f} passes over the data" if samples_of_pass else ""
        return f"{text}; it pays for itself after {samples:,.0f} samples{passes}"

    def clean_up(self, kept: Mapping[str, Any]) -> None:
        """Remove the copy, unless the settings that were kept read from it."""
        if not self._made or self._made == kept.get("read_from"):
            return
        from flatout.stage.destination.safe_paths import state_folder

        place = Path(self._made.partition("=")[2])
        for folder in (state_folder(place), place):
            shutil.rmtree(folder, ignore_errors=True)
