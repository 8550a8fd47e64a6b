"""``flatout watch``: follow a run that is being recorded, from another terminal."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import RUNS_DIR, RunsDir

if TYPE_CHECKING:
    from flatout.live.live_page import Viewer
    from flatout.live.watched import Watched

Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs", metavar="N", min=1, help="Passes over the data that the training makes, to predict its end.",
        show_default=False,
    ),
]  # fmt: skip
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline", metavar="TIME", help="Warn if the training will end later than this after its start: 90m, 11h.",
        show_default=False,
    ),
]  # fmt: skip

Notify = Annotated[
    str | None,
    typer.Option(
        "--notify", metavar="COMMAND", show_default=False,
        help="Shell command to run at each new warning and at the end. FLATOUT_EVENT, FLATOUT_TEXT and FLATOUT_RUN_ID "
             "tell it what happened.",
    ),
]  # fmt: skip
AsJson = Annotated[
    bool, typer.Option("--json", help="Print each state as a line of JSON, one a second, instead of a panel.")
]

Page = Annotated[bool, typer.Option("--page", help="Also serve a page for a browser, on this machine only.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No panel: only warnings, and the page's address.")]


def watch(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="A run's id or its folder. Without it: the run that started last.", show_default=False
        ),
    ] = None,
    epochs: Epochs = None,
    deadline: DeadlineOption = None,
    notify: Notify = None,
    page: Annotated[
        bool, typer.Option("--page", help="Also serve a page for a browser, on this machine only.")
    ] = False,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS_DIR,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No panel: only warnings, and the page's address.")
    ] = False,
) -> None:
    """Watch a run that is being recorded, from another terminal.

    Shows steps/s, the share of waiting, GPU, memory and the projected end, and warns while there is time: of memory,
    /dev/shm or a disk that will run out, a loss that became NaN, idle GPUs, a training that hangs, a missed deadline.
    It reads the run's folder; the training is not touched. Ctrl-C ends watching, never the training.

    Example: flatout watch latest --epochs 10 --notify 'notify-send "$FLATOUT_TEXT"'

    In a browser: flatout watch --page
    """
    from flatout.live.notifying import Notifier
    from flatout.live.projection import Plan
    from flatout.live.watched import Watched
    from flatout.live.watching import JsonLines, Terminal, watch_run
    from flatout.record import find_run
    from flatout.units import parse_duration

    limit_s = parse_duration(deadline, option="--deadline") if deadline is not None else None
    path = find_run(run, runs_dir)
    watched = Watched(path, Plan(epochs, limit_s))
    viewer: Viewer = JsonLines() if as_json else Terminal(quiet=quiet)
    if page:
        viewer = _with_page(watched, viewer)
    watch_run(watched, viewer, Notifier(notify) if notify is not None else None)
    if not quiet:
        viewer.say(f"`flatout report {path.name}` shows where the time went")


def _with_page(watched: Watched, beside: Viewer) -> Viewer:
    """The viewer with a page.

    Raises:
        UsageError: no port of this machine can be opened.
    """
    from flatout.errors import UsageError
    from flatout.live.live_page import LivePage

    watched.look()  # the page names the command
    try:
        return LivePage(watched, beside, socket.gethostname())
    except OSError as error:
        raise UsageError(f"--page: no port of 127.0.0.1 can be opened ({error.strerror}); watch without it") from None
