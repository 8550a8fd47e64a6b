"""A headless browser that opens a page offline, and notes every request and every error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of the machine; the test is skipped with the reason where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Any]:
    """The page at ``path``, shown; the test fails if it made a request or an error occurred."""
    with browser() as chromium:
        context = chromium.new_context(offline=True, **options)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: faults.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready === 'yes'", timeout=30_000)
        yield page
        assert faults == []
