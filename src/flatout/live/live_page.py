"""The live page as a viewer of a watched run."""

from __future__ import annotations

from typing import Protocol

from flatout.live.server import LiveServer
from flatout.live.snapshot import snapshot
from flatout.live.state import State
from flatout.live.watched import Watched
from flatout.report.html.page import page
from flatout.terminal_text import shell_line


class Viewer(Protocol):
    """Shows states one after the other."""

    def show(self, state: State) -> None:
        """Show a state."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """No state comes any more."""


class LivePage:
    """Shows states on a page, and in another viewer beside it."""

    def __init__(self, watched: Watched, beside: Viewer, host: str) -> None:
        """Serve the page, and say its address.

        Args:
            watched: the run.
            beside: gets each state too.
            host: name of this machine, for the line that opens a tunnel to it.

        Raises:
            OSError: no port can be opened.
        """
        self._watched, self._beside = watched, beside
        info = watched.history.info
        data = {"run": watched.run.name, "command": shell_line(info.get("command") or ())}
        text = "This page needs JavaScript; in a terminal: flatout watch"
        self._server = LiveServer(page(f"flatout: {watched.run.name}", "live.js", data, text, connects=True))
        beside.say(f"live page: {self._server.url}")
        port = self._server.port
        beside.say(f"from another machine, first: ssh -L {port}:127.0.0.1:{port} {host}")

    def show(self, state: State) -> None:
        """Show a state; it costs next to nothing while no page is open."""
        self._beside.show(state)
        over = self._watched.over
        if self._server.viewers or over:
            self._server.publish(snapshot(self._watched.history, state), over=over)

    def say(self, text: str) -> None:
        """A line beside the page."""
        self._beside.say(text)

    def close(self) -> None:
        """End the page; those that are open keep what they show."""
        self._server.close()
        self._beside.close()
