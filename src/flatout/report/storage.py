"""The speed of storage as lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flatout.report.layout import shorten_middle
from flatout.terminal_text import one_line
from flatout.units import duration, size

if TYPE_CHECKING:
    from flatout.storage.rates import Storage

BAR = 24  # columns


def storage_lines(found: Storage, name: str, image_bytes: int | None) -> list[str]:
    """The measurement, and the images/s it can feed.

    Args:
        found: what was measured.
        name: of the storage, as the user wrote it.
        image_bytes: size of an image; None: the mean size of the small files.
    """
    lines = [
        shorten_middle(one_line(found.place if "://" in name else name), 70, "…"),
        f"  {found.files:,} files listed; the small ones have {size(found.mean_bytes)} in the mean",
        "",
        f"  first 4 KiB of a file   cold {duration(found.cold_s or 0)}, again {duration(found.warm_s or 0)} (medians)",
        "",
        "  at once     files/s        /s",
    ]
    best = max(rate.files_per_s for rate in found.small)
    knee = found.knee
    for rate in found.small:
        bar = "█" * max(round(BAR * rate.files_per_s / best), 1)
        mark = "  <- more gives little" if rate is knee else ""
        lines.append(f"  {rate.concurrency:>7}  {rate.files_per_s:10,.0f}  {size(rate.bytes_per_s):>9}  {bar}{mark}")
    if found.large:
        lines += ["", "  one large file, in pieces of 8 MiB"]
        lines += [f"  {rate.concurrency:>7}  {'':10}  {size(rate.bytes_per_s):>9}" for rate in found.large]
    assert knee is not None, "small files were read"
    image = found.mean_bytes if image_bytes is None else image_bytes
    lines += ["", f"What that feeds, computed, at {size(image)} an image:"]
    for rate in (found.small[0], knee):
        lines.append(f"  {found.files_per_s(rate, image):9,.0f} images/s with {rate.concurrency} reading at once")
    packed = max((rate.bytes_per_s for rate in found.large), default=0.0)
    if packed:
        lines.append(f"  {packed / image:9,.0f} images/s packed into large files")
    if not found.dropped:
        lines.append("The files could not be taken out of a page cache: cold may mean warm.")
    if found.repeated:
        lines.append("There are few files: some were read again, and may have been cached on the way.")
    return lines
