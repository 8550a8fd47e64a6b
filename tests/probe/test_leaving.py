"""A training that leaves its steps is seen before any of its own handlers runs, in each Python of the probe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flatout.probe

PROBE = Path(flatout.probe.__file__).parent
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SCRIPT = """
import importlib, importlib.util, io, json, os, socket, sqlite3, subprocess, sys

spec = importlib.util.spec_from_file_location(
    "_flatout_probe", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
sys.modules["_flatout_probe"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
leaving = importlib.import_module("_flatout_probe.experiments.leaving")
importlib.import_module("_flatout_probe.recorder").REC.run = "/nowhere"


class Held(BaseException):
    pass


def seen(text):
    said.append(text)
    raise Held


def inside(bad):
    try:
        {}["handled where it is raised"]
    except KeyError:
        pass
    if bad:
        raise ValueError("shapes differ\\nand more")


def loop():
    handled = 0
    try:
        for step in range(4):
            watch.look(sys._getframe())
            if step == 2:
                watch.await_files(True)
            try:
                {}["raised in unchanged steps too"]
            except KeyError:
                handled += 1
            for _ in iter([1]):
                pass
            inside(step == 3)
    except ValueError:
        said.append("the script's handler")
    finally:
        said.append(handled)


said = []
watch = leaving.Leaving(seen)
watched = watch.watch(True)
try:
    loop()
except Held:
    said.append("held")
watch.watch(False)
for path in ("written", "/dev/null"):
    try:
        open(path, "w").close()
    except Held:
        said.append("held")
held = []
for change in (
    lambda: subprocess.run([sys.executable, "-c", ""]),
    lambda: os.system("true"),
    lambda: os.mkdir("made"),
    lambda: os.rename("one", "other"),
    lambda: os.remove("removed"),
    lambda: sqlite3.connect("database"),
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: os.fork() or os._exit(1),
    lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}),
    lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),
    lambda: os.link("there", "linked"),
    lambda: os.symlink("/dev/null", "linked"),
    lambda: os.rmdir("removed"),
    lambda: os.truncate("cut", 0),
    lambda: os.remove("/nowhere/flatouts-own"),
    lambda: os.listdir("."),
):
    try:
        change()
        held.append(False)
    except Held:
        held.append(True)
    except OSError:
        held.append(False)
with open("steps.csv", "a") as log, io.open("steps.jsonl", "w") as rows:
    log.write("of a step that is none of the training's")
watch.await_files(False)
open("allowed", "w").close()
other = leaving.Leaving(seen)
sys.settrace(lambda *_: None)
found = {"held": held, "free": watch.free, "said": said}
print(json.dumps({**found, "watched": watched, "beside a debugger": other.watch(True)}))
"""


def interpreter(version: str) -> str:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"versions/{version}.*/bin/python"))]
    for found in filter(None, candidates):
        # pyenv's shim is there, and fails, where its version is not the one in use.
        if not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            return found
    pytest.skip(f"no Python {version} here")


@pytest.mark.parametrize("version", VERSIONS)
def test_exceptions_and_files_are_seen_before_the_script_handles_them(tmp_path: Path, version: str) -> None:
    command = [interpreter(version), "-c", SCRIPT, str(PROBE)]
    # Coverage has a trace function of its own, which is left in place.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["watched"]
    assert found["said"] == [
        "it raised ValueError: shapes differ",
        4,
        "held",
        "it opens written to write",
        "held",
        "it starts a process",
        "it starts a process",
        "it makes made",
        "it renames one",
        "it removes removed",
        "it opens the database database",
        "it connects to another program",
        "it starts a process",
        "it starts a process",
        "it starts a program",
        "it makes the link linked",
        "it makes the link linked",
        "it removes removed",
        "it truncates cut",
    ]
    assert found["held"] == [True] * 14 + [False] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["allowed"]
    # sys.monitoring has room for several tools, sys.settrace for one.
    new = tuple(map(int, version.split("."))) >= (3, 12)
    assert (found["free"], found["beside a debugger"]) == (new, new)
