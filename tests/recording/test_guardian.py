"""The guardian ends what a killed flatout started, and removes what those processes leave."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from flatout.runner import guardian

# Begins to listen, as a worker does that hands over its first tensor, when it is asked to end; and does not end.
LATE = """
import os, signal, socket, sys, time
folder = os.path.join(sys.argv[1], "pymp-late")
def listen(*_):
    os.mkdir(folder)
    listener.bind(os.path.join(folder, "listener"))
    listener.listen()
listener = socket.socket(socket.AF_UNIX)
signal.signal(signal.SIGTERM, listen)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


@pytest.mark.slow
def test_the_folder_of_a_process_that_listens_only_while_it_is_ended_is_removed() -> None:
    with tempfile.TemporaryDirectory(prefix="g") as temporary:  # short: a socket is made in it
        # Of somebody else, who carries no mark.
        other = Path(temporary, "pymp-other")
        other.mkdir()
        words = [sys.executable, "-I", "-S", guardian.__file__, "run-of-this-test"]
        with (
            subprocess.Popen(words, stdin=subprocess.PIPE) as guarding,
            subprocess.Popen(
                [sys.executable, "-c", LATE, temporary],
                env={"FLATOUT_RUN": "run-of-this-test"}, stdout=subprocess.PIPE, text=True,
            ) as late,
        ):  # fmt: skip
            assert late.stdout is not None and late.stdout.readline() == "ready\n"
            assert guarding.stdin is not None
            guarding.stdin.close()  # as when flatout is killed
            assert guarding.wait() == 0
            assert late.wait() == -9
        assert [path.name for path in Path(temporary).iterdir()] == ["pymp-other"]


# Makes its folder, and listens in it some time later, as on a busy machine.
SLOW = """
import os, socket, sys, time
folder = os.path.join(os.environ["TMPDIR"], "pymp-slow")
listener = socket.socket(socket.AF_UNIX)
os.mkdir(folder)
print("made", flush=True)
time.sleep(0.3)
listener.bind(os.path.join(folder, "listener"))
listener.listen()
while True:
    time.sleep(60)
"""


def test_a_folder_that_has_just_been_made_is_removed_once_its_process_listens_in_it() -> None:
    with tempfile.TemporaryDirectory(prefix="g") as temporary:
        words = [sys.executable, "-I", "-S", guardian.__file__, "run-of-this-test"]
        environment = {"FLATOUT_RUN": "run-of-this-test", "TMPDIR": temporary}
        with (
            subprocess.Popen(words, stdin=subprocess.PIPE) as guarding,
            subprocess.Popen([sys.executable, "-c", SLOW], env=environment, stdout=subprocess.PIPE, text=True) as slow,
        ):
            assert slow.stdout is not None and slow.stdout.readline() == "made\n"
            assert guarding.stdin is not None
            guarding.stdin.close()  # as when flatout is killed
            assert guarding.wait() == 0
            assert slow.wait() == -15
        assert list(Path(temporary).iterdir()) == []


@pytest.mark.parametrize(("name", "age_s", "made"), [("pymp-a", 0, True), ("pymp-a", 60, False), ("mine", 0, False)])
def test_only_new_and_empty_folders_of_multiprocessing_are_waited_for(
    tmp_path: Path, name: str, age_s: float, made: bool
) -> None:
    (tmp_path / name).mkdir()
    modified_s = time.time() - age_s
    os.utime(tmp_path / name, (modified_s, modified_s))
    assert guardian.being_made({str(tmp_path), str(tmp_path / "missing")}) is made
    (tmp_path / name / "listener-a").touch()
    assert not guardian.being_made({str(tmp_path)})


def test_a_new_folder_of_another_user_does_not_hide_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pymp-1", "pymp-2", "pymp-3"):
        (tmp_path / name).mkdir()
    listed = os.listdir

    def refused(path: str) -> list[str]:
        if not path.endswith("2"):
            raise PermissionError(path)
        return listed(path)

    monkeypatch.setattr(guardian.os, "listdir", refused)
    assert guardian.being_made({str(tmp_path)})


def test_a_folder_is_removed_once_its_socket_is_closed_and_spared_while_it_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="g") as temporary, socket.socket(socket.AF_UNIX) as stays:
        slow, kept = Path(temporary, "pymp-slow"), Path(temporary, "pymp-kept")
        listeners = {slow: socket.socket(socket.AF_UNIX), kept: stays}
        for folder, listener in listeners.items():
            folder.mkdir()
            listener.bind(str(folder / "listener"))
            listener.listen()
        slept = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                listeners[slow].close()

        monkeypatch.setattr(guardian.time, "sleep", sleep)
        monkeypatch.setattr(guardian.time, "monotonic", lambda: float(len(slept)))
        guardian.remove_left(set(), {str(slow), str(kept)})
        assert len(slept) > 3 and not slow.exists() and kept.is_dir()


def test_the_reserved_space_of_a_killed_recording_is_released(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(b"0")
    words = [sys.executable, "-I", "-S", guardian.__file__, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as guarding:
        assert guarding.stdin is not None
        guarding.stdin.close()  # as when flatout is killed
        assert guarding.wait() == 0
    assert list(tmp_path.iterdir()) == []
