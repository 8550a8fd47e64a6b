"""Attributes of torch, torchvision, timm and Lightning that the source names exist in the installed versions."""

from __future__ import annotations

import ast
import importlib
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src/flatout"
PACKAGES = ("torch", "torchvision", "timm", "pytorch_lightning", "torchmetrics", "lightning_fabric")


def test_every_name_that_is_taken_from_a_library_exists() -> None:
    used: set[tuple[str, str]] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for line, name in library_names(ast.parse(path.read_text("utf-8"))):
            used.add((f"{path.relative_to(SOURCE)}:{line}", name))
    assert len(used) > 200
    assert sorted(f"{place}: {name}" for place, name in used if not exists(name)) == []


def test_a_name_that_does_not_exist_is_found() -> None:
    source = "import torch\nfrom torch import nn\ntorch.set_float33(1)\nnn.Linear\ntorch.zeros(1).no_module.at_all\n"
    assert [name for _, name in library_names(ast.parse(source)) if not exists(name)] == ["torch.set_float33"]


def library_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and dotted name of everything that is reached through an import of the libraries."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PACKAGES:
                    names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in PACKAGES:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    found = []
    for node in ast.walk(tree):
        parts: list[str] = []
        inner: Any = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in names:
            found.append((inner.lineno, ".".join([names[inner.id], *reversed(parts)])))
    return found


def exists(dotted: str) -> bool:
    """Whether a name can be reached; attributes of instances are not judged."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for name in parts[count:]:
            if not isinstance(found, types.ModuleType | type):
                return True
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    pytest.skip(f"{parts[0]} is not installed")
