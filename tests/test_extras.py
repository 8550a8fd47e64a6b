"""What is said where an optional package is missing."""

from __future__ import annotations

import pytest

from flatout import extras
from flatout.errors import UsageError


def test_an_extra_that_is_installed_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "train", ("json", "importlib.util"))  # everybody has these
    extras.require("train")


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "train", ("numpy", "no_such_package", "no.such.part"))
    with pytest.raises(UsageError) as refused:
        extras.require("train")
    assert str(refused.value) == "this needs no_such_package, no.such.part: pip install 'flatout[train]'"


def test_only_the_packages_that_are_needed_now_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "volumes", ("no_such_package", "numpy"))
    extras.require("volumes", ("numpy",))
