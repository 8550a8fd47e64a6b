"""Small real process trees to follow and to end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# Each says by a file named after its pid that it is ready.
SLEEPER = "import os, sys, time; open(f'{sys.argv[1]}/{os.getpid()}', 'w').close(); time.sleep(600)"
DEAF = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "open(f'{sys.argv[1]}/{os.getpid()}', 'w').close(); time.sleep(600)"
)
# Starts a child that starts a child.
NESTED = (
    "import os, subprocess, sys, time; depth = int(sys.argv[2]); "
    "open(f'{sys.argv[1]}/{os.getpid()}', 'w').close(); "
    "depth and subprocess.Popen([sys.executable, '-c', sys.argv[3], sys.argv[1], str(depth - 1), sys.argv[3]]); "
    "time.sleep(600)"
)
# Forks twice and leaves its session, as daemons do; what was started first has then ended.
DAEMON = (
    "import os, sys, time\n"
    "if os.fork(): sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "open(f'{sys.argv[1]}/{os.getpid()}', 'w').close()\n"
    "time.sleep(600)"
)


def wait_for(condition: Callable[[], bool], timeout_s: float = 100.0) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: It did not within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"still not so after {timeout_s} s")
        time.sleep(0.01)


def ready_pids(folder: Path) -> list[int]:
    """Who has said that it is ready."""
    return sorted(int(path.name) for path in folder.iterdir())


def gone(pid: int) -> bool:
    """Ended, whether or not it has been waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def started(program: str, folder: Path, *arguments: str, count: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until ``count`` processes are ready; whatever is left of them is killed after."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", program, str(folder), *arguments])
    try:
        wait_for(lambda: len(ready_pids(folder)) >= count)
        yield process
    finally:
        for pid in ready_pids(folder):
            if pid != process.pid and not gone(pid):
                psutil.Process(pid).kill()
        if process.poll() is None:
            process.kill()
        process.wait()
