"""What trainings of all modules here share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.loader.photographs import make_class_folders


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_class_folders(tmp_path_factory.mktemp("photographs"), 3, 24, 64)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of small files are written here; whether they outlive a power failure is tested with the writer."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
