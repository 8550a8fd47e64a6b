"""A sampled stack holds the user's own frame, however deep below it a library works."""

from __future__ import annotations

import gc
import json
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.probe import sites, stacks

DEEP = """
def down(depth, look):
    return down(depth - 1, look) if depth else look()
"""


def stack_below(path: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of the frames recorded ``depth`` calls below this function, in code that lies at ``path``."""
    monkeypatch.setattr(sites, "_is_user", {path: False, __file__: True})
    namespace: dict[str, Any] = {}
    exec(compile(DEEP, path, "exec"), namespace)
    found = namespace["down"](depth, lambda: stacks._frames(sys._getframe(1)))
    return [code.co_filename for code, _ in found]


def test_the_users_frame_is_kept_below_many_of_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = str(tmp_path / "library.py")
    files = stack_below(library, 60, monkeypatch)
    assert files == [library] * sites.MAX_FRAMES + [__file__]


def test_a_short_stack_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = stack_below(str(tmp_path / "library.py"), 3, monkeypatch)
    assert len(files) == sites.MAX_FRAMES
    assert files[4] == __file__


def test_a_package_of_an_environment_below_this_one_is_no_code_of_the_user() -> None:
    assert not sites.is_user_file("/opt/base/lib/python3.11/site-packages/lightning/trainer.py")
    assert sites.is_user_file("/home/me/train.py")


def test_packages_in_a_folder_of_their_own_on_the_path_are_no_code_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("lib", "project", "work"):
        (tmp_path / folder).mkdir()
    for folder in ("lib", "work"):
        (tmp_path / folder / "gymnasium-1.0.dist-info").mkdir()  # as pip install --target leaves it
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in ("lib", "project", "work", "gone")])
    monkeypatch.setattr(sites, "_LIBRARIES", sites._library_folders())
    monkeypatch.setattr(sites, "_is_user", {})
    found = [
        sites.is_user_file(str(tmp_path / folder / "gymnasium" / "core.py")) for folder in ("lib", "project", "work")
    ]
    assert found == [False, True, True]


class Batch:
    """Stands for a tensor of the training."""


def test_a_sample_keeps_nothing_of_the_training_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(stacks.REC, "emit", lambda *values: emitted.append(values))
    monkeypatch.setattr(stacks.REC, "names", SimpleNamespace(add=lambda kind, **fields: 1))
    batches: list[weakref.ref[Batch]] = []
    trains, sampled = threading.Event(), threading.Event()

    def train() -> None:
        batch = Batch()
        batches.append(weakref.ref(batch))
        trains.set()
        assert sampled.wait(60)

    thread, sampler = threading.Thread(target=train), stacks._Sampler()
    thread.start()
    monkeypatch.setattr(stacks.REC, "training_thread", thread.ident)
    gc.disable()
    try:
        assert trains.wait(60)
        sampler.sample()
        assert emitted
        sampled.set()
        thread.join()
        assert batches[0]() is None
    finally:
        gc.enable()
        sampler.close_states()


@pytest.mark.serial  # a busy machine or coverage.py decides who gets the lock
def test_what_computes_with_the_interpreter_lock_is_sampled_rather_than_what_next_lets_it_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stacks_seen: dict[int, str] = {}
    seen: list[str] = []

    def add(kind: str, **fields: Any) -> int:
        names = [frame[2] for frame in fields["frames"]]
        stacks_seen[len(stacks_seen)] = "parse" if "JSONDecoder.raw_decode" in names else "open"
        return len(stacks_seen) - 1

    monkeypatch.setattr(stacks, "INTERVAL_S", 0.01)
    monkeypatch.setattr(stacks.REC, "on", True)
    monkeypatch.setattr(stacks.REC, "flush", lambda: None)
    monkeypatch.setattr(stacks.REC, "emit", lambda kind, start, end, number, *more: seen.append(stacks_seen[number]))
    monkeypatch.setattr(stacks.REC, "names", SimpleNamespace(add=add))
    monkeypatch.setattr(stacks.REC, "training_thread", threading.get_ident())
    monkeypatch.setattr(stacks, "OpenFiles", lambda: SimpleNamespace(look=lambda: None, write=lambda names: None))
    text = json.dumps([0.123456789] * 40_000)  # parsed in less than a switch interval, as a rule
    ended, before = threading.Event(), sys.getswitchinterval()
    sampler = threading.Thread(target=stacks._Sampler().run, args=(ended,))
    sampler.start()
    try:
        while len(seen) < 100 and sampler.is_alive():
            with open(tmp_path / "looked", "w"):  # lets the lock go
                json.loads(text)
    finally:
        ended.set()
        sampler.join()
    assert sys.getswitchinterval() == before
    assert seen.count("parse") > seen.count("open") and len(seen) >= 100
