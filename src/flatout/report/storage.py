"""How fast a place gives files, as lines of at most 80 columns."""

from __future__ import annotations

from flatout.report.layout import shorten_middle
from flatout.storage.rates import Storage
from flatout.terminal_text import one_line
from flatout.units import duration, size

BAR = 24  # columns


def lines(found: Storage, place: str, kind: str | None, sample: int | None) -> list[str]:
    """For a terminal.

    Args:
        found: what was measured.
        place: as the user named it.
        kind: of the file system that it lies on; None: a store.
        sample: bytes of an image; None: the mean of the files.
    """
    name = shorten_middle(one_line(place), 60, "…")
    text = [
        f"{name} ({kind})" if kind else name,
        f"  {found.files:,} files listed; the small ones have {size(found.mean_bytes)} in the mean",
        "",
        f"  first 4 KiB of a file   cold {duration(found.cold_s or 0)}, again {duration(found.warm_s or 0)} (medians)",
        "",
        "  at once     files/s        /s",
    ]
    best = max(entry.files_per_s for entry in found.small)
    knee = found.knee
    for entry in found.small:
        bar = "█" * max(round(BAR * entry.files_per_s / best), 1)
        mark = "  <- more gives little" if entry is knee else ""
        text.append(f"  {entry.at_once:>7}  {entry.files_per_s:10,.0f}  {size(entry.bytes_per_s):>9}  {bar}{mark}")
    if found.large:
        text += ["", "  one large file, in pieces of 8 MiB"]
        text += [f"  {entry.at_once:>7}  {'':10}  {size(entry.bytes_per_s):>9}" for entry in found.large]
    assert knee is not None, "small files were read"
    image = found.mean_bytes if sample is None else sample
    text += ["", f"What that feeds, computed, at {size(image)} an image:"]
    for entry in (found.small[0], knee):
        text.append(f"  {found.files_per_s(entry, image):9,.0f} images/s with {entry.at_once} reading at once")
    packed = max((entry.bytes_per_s for entry in found.large), default=0.0)
    if packed:
        text.append(f"  {packed / image:9,.0f} images/s packed into large files")
    if not found.dropped:
        text.append("The files could not be taken out of a page cache: cold may mean warm.")
    if found.repeated:
        text.append("There are few files: some were read again, and may have been cached on the way.")
    return text
