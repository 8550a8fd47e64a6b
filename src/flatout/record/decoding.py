"""Decoders for untrusted JSON values.

A decoder takes a value from ``json`` and returns one of its own type, or raises ``ValueError``. A field of an
object whose value is of a wrong type is dropped, and its name noted: one damaged field does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Decoder = Callable[[Any, list[str]], Any]

MOST_TEXT = 1 << 20
LARGEST = 1 << 62  # fits into 64 bits, and so do sums of two


class Damaged(ValueError):
    """A value is not of the type that belongs there."""


def whole(low: int = 0, high: int = LARGEST) -> Decoder:
    """A whole number from ``low`` to ``high``."""

    def decode(value: Any, damage: list[str]) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Damaged
        return value

    return decode


def number(low: float = -1e18, high: float = 1e18) -> Decoder:
    """A finite number from ``low`` to ``high``."""

    def decode(value: Any, damage: list[str]) -> float:
        # Comparing, unlike math.isfinite, takes integers of any length; NaN is inside no bounds.
        if type(value) not in (int, float) or not low <= value <= high:
            raise Damaged
        result: float = value
        return result

    return decode


def flag(value: Any, damage: list[str]) -> bool:
    """True or false; also 1 or 0, which people write for them."""
    if type(value) not in (bool, int) or value not in (0, 1):
        raise Damaged
    return bool(value)


def text(value: Any, damage: list[str]) -> str:
    """A string of at most MOST_TEXT characters, such as a path: nothing in it is made safe to print."""
    if type(value) is not str or len(value) > MOST_TEXT:
        raise Damaged
    return value


def scalar(value: Any, damage: list[str]) -> Any:
    """A string, a finite number, true, false or null."""
    if value is None or type(value) is bool:
        return value
    return text(value, damage) if type(value) is str else number()(value, damage)


def items(decode: Decoder, most: int) -> Decoder:
    """A list of at most ``most`` values of one type."""

    def decode_all(value: Any, damage: list[str]) -> list[Any]:
        if type(value) is not list or len(value) > most:
            raise Damaged
        return [decode(item, damage) for item in value]

    return decode_all


def row(*decoders: Decoder) -> Decoder:
    """A list with one value for each decoder."""

    def decode(value: Any, damage: list[str]) -> list[Any]:
        if type(value) is not list or len(value) != len(decoders):
            raise Damaged
        return [decoder(item, damage) for decoder, item in zip(decoders, value, strict=True)]

    return decode


def table(decode: Decoder, most: int = 4096) -> Decoder:
    """An object with any names and values of one type; entries of another are left out."""

    def decode_all(value: Any, damage: list[str]) -> dict[str, Any]:
        if type(value) is not dict or len(value) > most:
            raise Damaged
        found: dict[str, Any] = {}
        for name, item in value.items():
            try:
                found[name] = decode(item, damage)
            except Damaged:
                if item is not None:  # null: not measured
                    damage.append(name)
        return found

    return decode_all


def record(fields: Mapping[str, Decoder], required: tuple[str, ...] = (), nulls: bool = False) -> Decoder:
    """An object with these fields; others are left out.

    Args:
        fields: the decoder of each.
        required: without one of these the whole object is damaged.
        nulls: keep fields that are null; otherwise they count as absent.
    """

    def decode(value: Any, damage: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            raise Damaged
        found: dict[str, Any] = {}
        for name, decoder in fields.items():
            item = value.get(name)
            if item is None:
                if nulls and name in value:
                    found[name] = None
                continue
            try:
                found[name] = decoder(item, damage)
            except Damaged:
                damage.append(name)
        if any(name not in found for name in required):
            raise Damaged
        return found

    return decode
