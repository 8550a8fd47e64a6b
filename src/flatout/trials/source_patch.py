"""A patch of a script's DataLoader call: keywords set or added, everything else as it is."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

KEYWORDS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "in_order", "batch_size")
_OTHERS = ("val", "valid", "eval", "test", "dev", "predict")


def patched(source: str, settings: Mapping[str, Any]) -> str | None:
    """The source with the settings in the training's DataLoader call.

    Args:
        source: of a Python file.
        settings: those that are keywords of DataLoader are written; others are left to other means.

    Returns:
        None when no such setting is there, or it is not clear which call makes the training's loader.
    """
    keywords = {name: value for name, value in settings.items() if name in KEYWORDS}
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    calls = _training_calls(tree)
    if not keywords or len(calls) != 1 or any(word.arg is None for word in calls[0].keywords):
        return None
    return _edited(source, calls[0], keywords)


def _training_calls(tree: ast.Module) -> list[ast.Call]:
    """DataLoader calls, but for those that are assigned to a name of validation."""
    others = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            if any(set(name.lower().split("_")) & set(_OTHERS) for name in names):
                others |= {id(part) for part in ast.walk(node.value)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in others and _name(node.func) == "DataLoader"
    ]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _edited(source: str, call: ast.Call, keywords: Mapping[str, Any]) -> str:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def position(line: int, column: int) -> int:
        return starts[line - 1] + column

    edits: list[tuple[int, int, bytes]] = []
    present = {word.arg: word.value for word in call.keywords}
    for name, value in keywords.items():
        if name in present:
            node = present[name]
            end = position(node.end_lineno or 0, node.end_col_offset or 0)
            edits.append((position(node.lineno, node.col_offset), end, repr(value).encode()))
    new = ", ".join(f"{name}={value!r}" for name, value in keywords.items() if name not in present)
    if new:
        arguments = [*call.args, *(word.value for word in call.keywords)]
        last = max(arguments, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0), default=None)
        if last is None:
            end = position(call.end_lineno or 0, call.end_col_offset or 0) - 1
            edits.append((end, end, new.encode()))
        else:
            end = position(last.end_lineno or 0, last.end_col_offset or 0)
            # A value in brackets ends before them.
            while data[end : end + 1] in (b")",) and end < position(call.end_lineno or 0, call.end_col_offset or 0) - 1:
                end += 1
            edits.append((end, end, f", {new}".encode()))
    for begin, end, text in sorted(edits, reverse=True):
        data = data[:begin] + text + data[end:]
    return data.decode()
