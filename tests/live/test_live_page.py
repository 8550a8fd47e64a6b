"""The page of a run that goes on: who may see it, what it shows, and that nobody holds it up."""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.live.live_page import LivePage
from flatout.live.projection import Plan
from flatout.live.server import LiveServer
from flatout.live.snapshot import MOST_BARS, snapshot
from flatout.live.state import State, state_of
from flatout.live.watched import Watched
from tests.live.test_growing_steps import recorded
from tests.live.test_warnings import history
from tests.report.html.browser import browser


@pytest.fixture
def server() -> Iterator[LiveServer]:
    made = LiveServer("<!doctype html><title>the page</title>")
    yield made
    made.close(within_s=0.0)


def asked(server: LiveServer, path: str, host: str | None = None, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.port}"})
    return connection.getresponse()


def path_of(server: LiveServer, name: str) -> str:
    return f"/{name}?{server.url.partition('?')[2]}"


def test_only_who_has_the_address_and_comes_by_a_name_of_this_machine_sees_the_page(server: LiveServer) -> None:
    whole = asked(server, path_of(server, ""))
    assert whole.status == 200 and b"the page" in whole.read() and whole.headers["Referrer-Policy"] == "no-referrer"
    assert asked(server, path_of(server, ""), "localhost:9999").status == 200  # the near end of a tunnel
    for path, host in (("/", None), ("/events", None), ("/?token=x", None), (path_of(server, ""), "evil.example:80"),
                       (path_of(server, "events"), "127.0.0.1.evil.example")):  # fmt: skip
        refused = asked(server, path, host)
        assert refused.status == 403 and b"the page" not in refused.read()
    assert asked(server, path_of(server, "etc/passwd")).status == 404
    assert asked(server, path_of(server, ""), method="POST").status == 501


@pytest.mark.parametrize(("name", "status"), [("", 200), ("events", 200), ("etc/passwd", 404)])
def test_the_head_alone_is_answered_and_names_no_version(server: LiveServer, name: str, status: int) -> None:
    answer = asked(server, path_of(server, name), method="HEAD")
    assert (answer.status, answer.read()) == (status, b"")
    assert answer.headers["Server"].strip() == "flatout" and server.viewers == 0


def events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := answer.readline():
        if line.startswith((b"data: ", b"event: ")):
            yield line.strip()


def test_viewers_get_the_newest_snapshot_and_the_end(server: LiveServer) -> None:
    server.publish(b"1")
    seen = events(asked(server, path_of(server, "events")))
    assert next(seen) == b"data: 1" and server.viewers == 1
    server.publish(b"2")
    assert next(seen) == b"data: 2"
    server.publish(b"3", over=True)
    assert list(seen)[:2] == [b"data: 3", b"event: over"]


def test_a_viewer_that_reads_nothing_holds_up_neither_the_run_nor_other_viewers(server: LiveServer) -> None:
    standing = socket.create_connection(("127.0.0.1", server.port))
    standing.sendall(f"GET {path_of(server, 'events')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    while not server.viewers:
        time.sleep(0.01)
    big = b"x" * (1 << 20)
    for _ in range(20):
        server.publish(big)
    reading = events(asked(server, path_of(server, "events")))
    assert len(next(reading)) == len(big) + 6
    server.publish(b"last", over=True)
    assert b"data: last" in list(reading)
    standing.close()


def test_a_snapshot_is_bounded_and_is_json_whatever_the_loss_is() -> None:
    made = history(600)
    for number in range(50_000):
        parts = {"waiting": 0.02, "forward": 0.03, "backward": 0.04, "optimizer": 0.005, "other": 0.005}
        made.rows.add(number, number * 100_000_000, 0.1, parts)
    made.metrics["loss"] = (10, math.nan)
    made.not_finite = ("loss", math.nan, 10)
    text = snapshot(made, state_of(made, Plan()))
    assert len(text) < 60_000 and b"\n" not in text
    found: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    steps = found["steps"]
    assert len(steps["start"]) <= MOST_BARS and sum(steps["count"]) == 50_000
    assert steps["total"][0] == pytest.approx(0.1) and steps["parts"]["waiting"][-1] == pytest.approx(0.02)
    assert found["state"]["warnings"][0]["id"] == "loss_not_finite"


class Lines:
    """A viewer that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show(self, state: State) -> None:
        """A state."""

    def say(self, text: str) -> None:
        """A line."""
        self.said.append(text)

    def close(self) -> None:
        """The end."""


def test_the_page_grows_in_a_browser_and_shows_the_end(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    info = json.loads((run / "run.json").read_text())
    hostile = ["python", "</script><script>document.title=9876</script>.py"]
    (run / "run.json").write_text(json.dumps({**info, "end_ns": None, "command": hostile}))
    watched, beside = Watched(run, Plan()), Lines()
    watched.look()
    with browser() as chromium:
        live = LivePage(watched, beside, "host")
        url = beside.said[0].removeprefix("live page: ")
        assert beside.said[1] == f"from another machine, first: ssh -L {url[17:].partition('/')[0]}:127.0.0.1:" + (
            f"{url[17:].partition('/')[0]} host"
        )
        page = chromium.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: faults.append(request.url) if not request.url.startswith(url[:22]) else None)
        page.goto(url)
        page.get_by_text("Connected").wait_for()
        live.show(watched.look())
        page.wait_for_selector("html[data-ready]", timeout=30_000)
        assert page.inner_text("#verdict").startswith(f"Step {watched.history.steps}")
        assert hostile[1] in page.inner_text(".mono") and "9876" not in page.title()
        page.get_by_role("button", name="Pause").click()
        (run / "run.json").write_text(json.dumps({**info, "stop": "finished", "command": hostile}))
        live.show(watched.look())
        page.wait_for_selector("html[data-over]", timeout=30_000)
        assert page.inner_text("#verdict").startswith("Step")
        page.get_by_role("button", name="Go on").click()
        assert page.inner_text("#verdict") == "The recording has ended: finished"
        live.close()
        assert faults == []
