"""What a section of the check is: items that are measured one by one, each a row of its table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from running import Bench


@dataclass(frozen=True)
class Row:
    """One measured item.

    Attributes:
        cells: of the table, after the item's name.
        met: whether it is as it should be; None: nothing was expected.
    """

    cells: list[str]
    met: bool | None = None


@dataclass(frozen=True)
class Section:
    """A part of the check.

    Attributes:
        name: as on the command line.
        title: of its table.
        goal: what every row is held against.
        minutes: that it may take on a GPU.
        head: names of the columns, after the item's.
        items: from the bench, name -> measurement; each raises ``Failed`` where it cannot be made.
    """

    name: str
    title: str
    goal: str
    minutes: float
    head: tuple[str, ...]
    items: Callable[[Bench], dict[str, Callable[[], Row]]]
