"""What multiprocessing leaves in the temporary folder when a signal ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flatout.runner.leftovers import multiprocessing_folders, remove

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
