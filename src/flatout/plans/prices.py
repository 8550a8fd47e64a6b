"""What an hour of the machine costs: said by the user, or in a file of theirs with date and source."""

from __future__ import annotations

import datetime
import difflib
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import UsageError


@dataclass(frozen=True)
class Price:
    """An hour of a machine, and where the figure comes from."""

    per_hour: float
    currency: str = ""
    source: str = "--price"


def parse_price(text: str) -> Price:
    """Read "1.20/h".

    Raises:
        UsageError: it is none.
    """
    amount = _amount(text.removesuffix("/h")) if text.endswith("/h") else None
    if amount is None:
        raise UsageError(f"--price {text}: give a price an hour, such as 1.20/h, or with --prices FILE a name in it")
    return Price(amount)


def read_price(file: Path, name: str | None) -> Price:
    """Read one table of a file.

    Such as::

        [a10]
        per_hour = 1.20
        currency = "USD"
        date = 2026-11-01
        source = "offer of our provider"

    Args:
        file: TOML.
        name: of the table; None: the file has one only.

    Raises:
        UsageError: the file cannot be read, has no such table, or its table lacks a price, a date or a source.
    """
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"--prices {file}: cannot be read ({why})") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--prices {file}: is no TOML ({error})") from None
    tables = {key: value for key, value in found.items() if isinstance(value, dict)}
    if name is None and len(tables) == 1:
        name = next(iter(tables))
    if not tables:
        raise UsageError(f"--prices {file}: has no table of a price: give one, such as [a10] with per_hour = 1.20")
    if name not in tables:
        near = difflib.get_close_matches(name or "", tables, 1)
        named = f"has no [{name}]" if name else "has several tables"
        meant = f"did you mean {near[0]}?" if near else f"give --price NAME, one of: {', '.join(tables)}"
        raise UsageError(f"--prices {file}: {named}: {meant}")
    return _price(tables[name], f"--prices {file} [{name}]")


def _price(table: dict[str, object], where: str) -> Price:
    amount = _amount(table.get("per_hour"))
    if amount is None:
        raise UsageError(f"{where}: per_hour is {table.get('per_hour')!r}, but must be a price an hour, such as 1.20")
    date, source = table.get("date"), table.get("source")
    if not isinstance(date, datetime.date) or not isinstance(source, str) or not source:
        raise UsageError(f"{where}: prices change: give date = 2026-11-01, and source, where the figure comes from")
    return Price(amount, str(table.get("currency", "")), f"{source}, {date:%Y-%m-%d}")


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
