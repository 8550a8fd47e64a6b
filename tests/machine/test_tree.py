from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flatout.machine.tree import descendants, end_tree
from tests.machine.trees import DAEMON, DEAF, NESTED, SLEEPER, gone, ready_pids, started, wait_for


def test_descendants_are_found_at_every_depth(tmp_path: Path) -> None:
    with started(NESTED, tmp_path, "2", NESTED, count=3) as process:
        below = {child.pid for child in descendants(process.pid)}
        assert below == set(ready_pids(tmp_path)) - {process.pid}
        assert len(below) == 2
        assert {process.pid} | below <= {child.pid for child in descendants(os.getpid())}


def test_descendants_of_a_process_that_is_gone_are_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert descendants(process.pid) == []


def test_a_zombie_is_no_longer_a_descendant(tmp_path: Path) -> None:
    with started(SLEEPER, tmp_path) as process:
        process.kill()
        wait_for(lambda: gone(process.pid))
        assert process.pid not in {child.pid for child in descendants(os.getpid())}


def test_a_tree_with_grandchildren_is_ended_and_the_roots_status_is_left_to_its_parent(tmp_path: Path) -> None:
    with started(NESTED, tmp_path, "2", NESTED, count=3) as process:
        assert end_tree(process.pid, grace_s=60) == []
        assert all(gone(pid) for pid in ready_pids(tmp_path))
        assert process.wait() == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    with started(DEAF, tmp_path) as process:
        assert end_tree([process.pid], grace_s=0.2) == []
        assert process.wait() == -signal.SIGKILL


def test_a_grandchild_that_outlives_its_parent_is_still_killed(tmp_path: Path) -> None:
    # The parent ends at once, so that the deaf grandchild is handed to init before the grace is over.
    parent = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]]).wait()"
    with started(parent, tmp_path, DEAF) as process:
        (grandchild,) = ready_pids(tmp_path)
        assert end_tree(process.pid, grace_s=0.5) == []
        assert process.wait() == -signal.SIGTERM
        assert gone(grandchild)


def test_the_first_signal_can_be_chosen(tmp_path: Path) -> None:
    with started(DEAF, tmp_path) as process:
        assert end_tree(process.pid, grace_s=60, first=signal.SIGHUP) == []
        assert process.wait() == -signal.SIGHUP


def test_a_stopped_process_still_ends_by_the_first_signal(tmp_path: Path) -> None:
    with started(SLEEPER, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert end_tree(process.pid, grace_s=60) == []
        assert process.wait() == -signal.SIGTERM


def test_a_tree_that_has_already_ended_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert end_tree(process.pid, grace_s=0.1) == []


@pytest.mark.parametrize("pid", [1, os.getppid()])
def test_a_process_that_is_not_below_this_one_is_never_signalled(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("flatout.machine.tree._send", lambda process, number: sent.append(process.pid))
    assert end_tree(pid, grace_s=0.05) == []
    assert sent == []


def test_a_sibling_of_the_tree_lives_on(tmp_path: Path) -> None:
    with started(SLEEPER, tmp_path / "sibling") as sibling, started(SLEEPER, tmp_path / "tree") as process:
        assert end_tree(process.pid, grace_s=60) == []
        assert sibling.poll() is None


def in_a_process_of_its_own(program: str, folder: Path) -> str:
    """Being a subreaper stays with a process for good, so it is tried in a fresh one."""
    setup = "import os, signal, subprocess, sys, time; from flatout.machine.tree import *\n"
    script = setup + textwrap.dedent(program)
    arguments = [sys.executable, "-c", script, str(folder), DAEMON, SLEEPER]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, env=os.environ)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_daemon_is_ended_and_reaped_through_the_subreaper(tmp_path: Path) -> None:
    program = """
    assert become_subreaper()
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]])
    while not os.listdir(sys.argv[1]): time.sleep(0.01)
    child.wait()
    (daemon,) = map(int, os.listdir(sys.argv[1]))
    assert [p.pid for p in descendants(os.getpid()) if p.pid == daemon] == [daemon]
    assert end_tree([child.pid, os.getpid()], grace_s=60) == []
    print(os.path.exists(f"/proc/{daemon}"), child.returncode)
    """
    assert in_a_process_of_its_own(program, tmp_path) == "False 0"


def test_spared_processes_are_left_alone(tmp_path: Path) -> None:
    program = """
    spared, other = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in "ab")
    left = end_tree([os.getpid(), other.pid], grace_s=60, spared=[spared.pid])
    print(left, spared.poll(), other.wait())
    spared.kill()
    spared.wait()
    """
    assert in_a_process_of_its_own(program, tmp_path) == f"[] None {-signal.SIGTERM}"


def test_children_that_start_during_the_grace_are_ended_too(tmp_path: Path) -> None:
    # Answers SIGTERM by starting another process, and goes on for a moment.
    program = (
        "import os, signal, subprocess, sys, time\n"
        "def answer(*_):\n"
        "    subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]])\n"
        "    time.sleep(600)\n"
        "signal.signal(signal.SIGTERM, answer)\n"
        "open(f'{sys.argv[1]}/{os.getpid()}', 'w').close()\n"
        "time.sleep(600)"
    )
    with started(program, tmp_path, DEAF) as process:
        assert end_tree(process.pid, grace_s=1.5) == []
        assert process.wait() == -signal.SIGKILL
        wait_for(lambda: all(gone(pid) for pid in ready_pids(tmp_path)))
