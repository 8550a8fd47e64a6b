"""Damage to run folders, drawn by a seeded generator: flipped bits, cuts, and values of other types in JSON."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from flatout.probe.events import EVENT, HEADER_BYTES

# What a number, a string, a list or an object is replaced with.
ODD = (
    None, True, -1, 0, 3, 60_000, 1 << 63, 10**30, 10**400, -(10**18), 1e308, 0.5, float("nan"), float("inf"), "", "x",
    "17", "\ud800", "\x1b]0;x\x07", "\u202e", "y" * 5000, [], [1], ["a", None], [[]], {}, {"a": 1}, {"": {}},
    [{"index": "a"}],
)  # fmt: skip


def damage(run: Path, draw: random.Random) -> str:
    """Damage one file of a run folder in one way; says how."""
    path = draw.choice(sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size))
    ways = [_flip, _flip, _cut, _swap_bytes]
    if path.suffix in (".json", ".jsonl", ".names"):
        ways += [_swap_value] * 8
    elif path.suffix == ".events":
        ways += [_swap_word] * 4 + [_swap_column]
    way = draw.choice(ways)
    return f"{path.name}: {way.__name__} {way(path, draw)}"


def _flip(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return f"byte {place}"


def _cut(path: Path, draw: random.Random) -> str:
    size = draw.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"at {size}"


def _swap_bytes(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    data[place : place + 8] = draw.randbytes(8)
    path.write_bytes(data)
    return f"8 bytes at {place}"


WORDS = (0, 1, -1, 2**63 - 1, -(2**63), 2**62, 10**18, 2**32, 2**48)


def _swap_column(path: Path, draw: random.Random) -> str:
    """Replace a time or an amount in many events."""
    data = bytearray(path.read_bytes())
    field, value = draw.choice((8, 16, 24, 32)), draw.choice(WORDS)
    for event in range(HEADER_BYTES, len(data) - EVENT.size, EVENT.size):
        if draw.random() < 0.5:
            data[event + field : event + field + 8] = value.to_bytes(8, "little", signed=True)
    path.write_bytes(data)
    return f"bytes {field} to {field + 8} of half the events to {value}"


def _swap_word(path: Path, draw: random.Random) -> str:
    """Replace an aligned 64-bit word of an events file."""
    data = bytearray(path.read_bytes())
    place = draw.randrange(max(len(data) // 8, 1)) * 8
    value = draw.choice(WORDS)
    data[place : place + 8] = value.to_bytes(8, "little", signed=True)
    path.write_bytes(data)
    return f"word at {place} to {value}"


def _swap_value(path: Path, draw: random.Random) -> str:
    """Replace one value, at any depth, of one JSON line."""
    lines = path.read_text(errors="replace").splitlines()
    number = draw.randrange(len(lines))
    try:
        value = json.loads("\n".join(lines) if path.suffix == ".json" else lines[number])
    except (ValueError, RecursionError):
        return "nothing"
    odd = draw.choice(ODD)
    places = list(_places(value))
    if not places:
        return "nothing"
    holder, key = draw.choice(places)
    if draw.random() < 0.05:
        odd = nested(draw.choice((60, 2000, 200_000)))
        text = json.dumps(value)
        whole = text[:-1] + (', "deep": ' if isinstance(value, dict) else ", ") + odd + text[-1]
    else:
        holder[key] = odd
        whole = json.dumps(value)
    path.write_text(
        whole if path.suffix == ".json" else "\n".join([*lines[:number], whole, *lines[number + 1 :]]) + "\n"
    )
    return f"{key!r} in line {number} to {str(odd)[:40]!r}"


def nested(depth: int) -> str:
    """Lists within lists, as JSON."""
    return "[" * depth + "]" * depth


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield value, place
            yield from _places(inner)


def copy(run: Path, to: Path) -> Path:
    """A fresh copy of a run folder."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to)
    return to
