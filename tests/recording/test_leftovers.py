"""What multiprocessing leaves in the temporary folder when a signal ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flatout.machine.tree import descendants, end_tree
from flatout.runner.leftovers import multiprocessing_folders, remove, stop_and_find

LISTEN = """
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("on", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("name", "found"), [("pymp-x1", True), ("mine", False)])
def test_only_multiprocessings_own_folders_of_living_descendants_are_found(
    tmp_path: Path, name: str, found: bool
) -> None:
    (tmp_path / name).mkdir()
    bystander = tmp_path / "pymp-of-somebody-else"
    bystander.mkdir()
    command = [sys.executable, "-c", LISTEN, f"{name}/listener-a"]
    # An address that is relative says nothing about where it lies.
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as relative:
        assert relative.stdout is not None
        relative.stdout.readline()
        assert multiprocessing_folders() == set()
        relative.kill()
    (tmp_path / name / "listener-a").unlink()
    command[-1] = f"{tmp_path}/{name}/listener-a"
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        folders = multiprocessing_folders()
        child.kill()
    assert folders == ({tmp_path / name} if found else set())
    remove(folders)
    assert (tmp_path / name).exists() is not found
    assert bystander.exists()


STARTS_LISTENERS = """
import multiprocessing, os, socket, sys, tempfile, time

def listen():
    folder = tempfile.mkdtemp(prefix="pymp-")
    time.sleep(0.02)
    server = socket.socket(socket.AF_UNIX)
    server.bind(folder + "/listener-a")
    server.listen()
    time.sleep(600)

context = multiprocessing.get_context("fork")
while True:
    context.Process(target=listen).start()
    print("on", flush=True)
    time.sleep(0.01)
"""


def test_processes_that_start_while_the_tree_is_ended_leave_no_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="g") as temporary:
        environment = {**os.environ, "TMPDIR": temporary}
        command = [sys.executable, "-c", STARTS_LISTENERS]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            while len(list(Path(temporary).iterdir())) < 5:
                parent.stdout.readline()
            folders = stop_and_find(lambda: descendants(os.getpid()), parent.pid)
            left = list(Path(temporary).iterdir())
            assert end_tree(parent.pid) == []
        remove(folders)
        assert len(left) >= 5
        assert list(Path(temporary).iterdir()) == []
