"""What holds for every test: one thread for torch, GPU tests skip with their reason, no process is left behind."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported, and for what the tests start. Where cores are taken, such as by the other workers of xdist,
# each operation of several threads waits until the last of them has had a core: 300 s instead of 7 s, for one test.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a script starts in the background ignores Ctrl-C, and what nohup starts a hang-up; so would all that the tests
# start. Handlers are not inherited.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# No test asserts a wall time: an example may take as long as a busy machine makes it, and so may drawing one.
settings.register_profile("flatout", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("flatout")

# Python starts these once a process and ends them itself.
SERVICES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
GRACE_S = 15.0  # an interpreter with torch takes a while to end on a busy machine


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A serial test is slow too: ``-m "not slow"`` leaves it out. Of the slow ones, those of one part run."""
    for item in items:
        if item.get_closest_marker("serial"):
            item.add_marker(pytest.mark.slow)
    left_out = [item for item in items if item.get_closest_marker("slow") and not _of_this_part(item.nodeid)]
    if left_out:
        items[0].config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _of_this_part(name: str) -> bool:
    """Whether a slow test runs. With FLATOUT_TEST_SLOW=K/N one in N does, drawn by its name: K = 0 to N - 1 are all."""
    part, _, parts = os.environ.get("FLATOUT_TEST_SLOW", "0/1").partition("/")
    return zlib.crc32(name.encode()) % int(parts) == int(part)


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest) -> None:
    """Skip a test marked ``gpu`` where there is no CUDA device; torch is imported for such tests only."""
    if request.node.get_closest_marker("gpu") is None:
        return
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: torch.cuda.is_available() is false")


@pytest.fixture
def without_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test whose processes coverage.py would change: it traces them, and stands in for ``os._exit``."""
    for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Fail a test that leaves child processes behind, and end them so that later tests are not disturbed."""
    before = _children()
    yield
    started = _children() - before
    left = {child: command for child in started if (command := _command(child))}
    if not left:
        return
    # A process may be on its way out: only what stays counts.
    _, alive = psutil.wait_procs(left, timeout=GRACE_S)
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)
    if alive:
        pytest.fail("left behind: " + "; ".join(f"{child.pid} {left[child]}" for child in alive))


def _children() -> set[psutil.Process]:
    """All processes below this one.

    psutil looks through every process of the machine, so it is asked only where the kernel knows of a child.
    """
    with suppress(OSError):  # a kernel without these files, or a thread that has just ended
        if not any((task / "children").read_bytes() for task in Path("/proc/self/task").iterdir()):
            return set()
    return set(psutil.Process().children(recursive=True))


def _command(child: psutil.Process) -> str | None:
    """The command line of a process that runs and is no service of Python's own, else None."""
    try:
        command = " ".join(child.cmdline()) or child.name()
        ended = child.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return None if ended or any(service in command for service in SERVICES) else command
