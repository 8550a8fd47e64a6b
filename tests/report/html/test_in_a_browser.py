"""The HTML page of a run, as a browser shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from flatout.cli import main
from tests.record.rich import rich_run
from tests.report.html.browser import browser, opened
from tests.report.html.test_html_page import HOSTILE

pytestmark = pytest.mark.slow


def made(folder: Path, mark: str = "") -> tuple[Path, dict[str, Any]]:
    """A page, and the report that it shows."""
    run, out, saved = rich_run(folder, mark=mark), folder / "page.html", folder / "report.json"
    assert main(["report", str(run), "--html", "-o", str(out)]) == 0
    assert main(["report", str(run), "--json", "-o", str(saved)]) == 0
    return out, json.loads(saved.read_text())


def test_the_page_shows_the_numbers_of_the_report_and_asks_for_nothing(tmp_path: Path) -> None:
    path, report = made(tmp_path)
    with opened(path) as page:
        assert page.locator("h1").inner_text() == report["verdict"]
        causes = report["causes"]
        assert causes
        shown = page.locator("article[data-cause]")
        assert [each.get_attribute("data-cause") for each in shown.all()] == [cause["id"] for cause in causes]
        first = page.locator("article h3").first.inner_text()
        assert first.startswith(causes[0]["title"]) and f"{round(100 * causes[0]['share'])}%" in first
        link = page.locator("a[download]").get_attribute("href")
        assert json.loads(unquote(link.partition(",")[2])) == report


def test_a_click_shows_one_account_alone_and_escape_goes_back(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    with opened(path) as page:
        parts = page.locator(".icicle button")
        before = parts.count()
        account = page.locator(".icicle button[data-id=batch_wait]")
        narrow = account.bounding_box()["width"]
        account.click()
        assert page.locator(".icicle button[data-id=batch_wait]").bounding_box()["width"] > 1.2 * narrow
        page.keyboard.press("Escape")
        assert parts.count() == before
        page.locator(".icicle button[data-id=batch_wait]").focus()
        page.keyboard.press("Enter")
        assert parts.count() != before or page.get_by_role("button", name="Back").is_visible()
        page.get_by_role("button", name="Back").click()
        assert parts.count() == before


def test_charts_zoom_by_button_and_key_and_scrolling_stays_the_pages(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    with opened(path) as page:
        canvas = page.locator("canvas").first

        def drawn() -> str:
            return str(page.evaluate("document.querySelector('canvas').toDataURL()"))

        whole = drawn()
        page.get_by_role("button", name="Zoom in").click()
        page.wait_for_function("before => document.querySelector('canvas').toDataURL() !== before", arg=whole)
        canvas.focus()
        page.keyboard.press("0")
        page.wait_for_function("before => document.querySelector('canvas').toDataURL() === before", arg=whole)
        canvas.scroll_into_view_if_needed()
        canvas.hover()
        at = page.evaluate("window.scrollY")
        page.mouse.wheel(0, 200)
        page.wait_for_function("at => window.scrollY !== at", arg=at)


def test_every_span_and_account_can_be_read_by_keyboard(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    with opened(path) as page:
        page.locator(".icicle button").first.focus()
        page.keyboard.press("ArrowDown")
        told = page.locator(".icicle + p")
        first = told.inner_text()
        assert first.startswith("waiting for batches: ")
        page.keyboard.press("ArrowRight")
        assert told.inner_text() != first
        page.keyboard.press("ArrowUp")
        assert told.inner_text().startswith("training window: ")

        spans = page.locator("canvas").first
        told = page.locator("canvas + figcaption").first
        spans.focus()
        page.keyboard.press("Enter")
        assert "rank 0: step, " in told.inner_text()
        number = int(told.inner_text().partition(", step ")[2].split(",")[0])
        page.keyboard.press("ArrowRight")
        assert f", step {number + 1}," in told.inner_text()
        page.keyboard.press("ArrowDown")
        assert "waiting for a batch" in told.inner_text()
        page.keyboard.press("Escape")
        assert told.inner_text().startswith("Point at a span")


def test_the_classes_of_the_remedies_are_explained(tmp_path: Path) -> None:
    path, report = made(tmp_path)
    with opened(path) as page:
        shown = page.locator("dl.classes dt").all_inner_texts()
        assert set(shown) == {remedy["class"] for remedy in report["remedies"]}
        assert "the same training, only faster" in page.locator("dl.classes").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (400, "dark"), (1200, "dark")])
def test_the_page_fits_a_narrow_screen_and_the_dark(tmp_path: Path, width: int, scheme: str) -> None:
    path, _ = made(tmp_path)
    with opened(path, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        remedy = page.locator("table.stacked td").first.bounding_box()
        assert remedy["width"] > 300
        page.emulate_media(media="print", color_scheme=scheme)
        assert page.evaluate("colour('--paper')") == "#ffffff"
        assert (
            page.locator(".icicle button").first.evaluate("part => getComputedStyle(part).color")
            == "rgb(255, 255, 255)"
        )


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    path, _ = made(tmp_path, HOSTILE)
    with opened(path) as page:
        assert "</script><script>alert(1)" in page.locator("main").inner_text()
        assert "\u202e" not in page.locator("main").inner_text()


def test_a_page_without_javascript_shows_the_report_as_text(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    with browser() as chromium:
        page = chromium.new_context(java_script_enabled=False).new_page()
        page.goto(path.as_uri())
        assert "Where the time went" in page.locator("pre").inner_text()


def test_a_comparison_shows_the_factor_and_the_difference_of_each_account(tmp_path: Path) -> None:
    a, b = (str(rich_run(tmp_path / name, id=name)) for name in "ab")
    out, saved = tmp_path / "page.html", tmp_path / "comparison.json"
    assert main(["compare", a, b, "--html", "-o", str(out)]) == 0
    with opened(out) as page:
        assert page.locator("h1").inner_text().startswith("Indistinguishable at 90%: B runs at 1.00x of A")
        link = page.locator("a[download]").get_attribute("href")
        saved.write_text(unquote(link.partition(",")[2]))
        widths = [each.bounding_box()["width"] for each in page.locator(".icicle").all()]
        assert len(widths) == 2 and widths[0] == pytest.approx(widths[1], rel=0.01)
    assert json.loads(saved.read_text())["ratio"]["factor"] == pytest.approx(1.0)
