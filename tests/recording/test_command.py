"""The words that are started, and the line for a command that keeps the probe out."""

import io

import pytest

from flatout.runner.bounds import Bounds
from flatout.runner.command import PROBE_FOLDER, with_probe
from flatout.runner.live import Live
from flatout.runner.progress import Progress


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ("python train.py", "python train.py"),
        ("env PYTHONPATH=.. python train.py", f"env PYTHONPATH={PROBE_FOLDER}:.. python train.py"),
        ("/usr/bin/env -u A PYTHONPATH= python t.py", f"/usr/bin/env -u A PYTHONPATH={PROBE_FOLDER} python t.py"),
        (
            "env --unset A -vu B PYTHONPATH=x python t.py",
            f"env --unset A -vu B PYTHONPATH={PROBE_FOLDER}:x python t.py",
        ),
        ("env A=1 env PYTHONPATH=x python t.py", f"env A=1 env PYTHONPATH={PROBE_FOLDER}:x python t.py"),
        ("python t.py env PYTHONPATH=x", "python t.py env PYTHONPATH=x"),
        ("env A=1 python t.py PYTHONPATH=x", "env A=1 python t.py PYTHONPATH=x"),
        ("python t.py PYTHONPATH=x", "python t.py PYTHONPATH=x"),
    ],
)
def test_a_path_that_env_sets_keeps_the_probe(given: str, started: str) -> None:
    assert with_probe(given.split()) == tuple(started.split())


def test_a_path_in_a_command_of_one_word_keeps_it_too() -> None:
    started = with_probe(["env", "-S", "A=1 PYTHONPATH=x python t.py"])
    assert started == ("env", "-S", f"A=1 PYTHONPATH={PROBE_FOLDER}:x python t.py")


def test_while_no_process_has_the_probe_the_progress_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.runner.progress.FIRST_LINE_S", 0.0)
    said = io.StringIO()
    progress = Progress(Bounds(), quiet=False, stream=said)
    progress.look(Live())
    progress.look(Live(processes=1))
    assert said.getvalue().count("PYTHONPATH=...:$PYTHONPATH") == 1
