"""The setting that has threads give up the interpreter lock sooner."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.probe.injections import backends
from flatout.runner.command import injecting_environment

SWITCHING = """
import json, sys, torch
print(json.dumps([sys.getswitchinterval(), sys.setswitchinterval(0.002), sys.getswitchinterval()]))
"""


def test_threads_give_up_the_interpreter_lock_sooner_unless_the_script_sets_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SWITCHING)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": '{"switch_interval_us": 500}'}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    before, _, set_by_it = json.loads(done.stdout)
    assert (before, set_by_it) == (pytest.approx(0.0005), pytest.approx(0.002))
    assert "could not be set" not in done.stderr


def test_a_sooner_switch_is_undone() -> None:
    before = sys.getswitchinterval()
    undo = backends.switch("switch_interval_us", 500)
    switched = sys.getswitchinterval()
    undo()
    assert (switched, sys.getswitchinterval()) == (pytest.approx(0.0005), before)
