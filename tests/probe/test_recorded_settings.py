"""A recording of a training with settings in it sees all that one without them does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flatout.probe.settings import SETTINGS
from flatout.record import load_run
from tests.probe.recorded import run_probed
from tests.probe.test_injections import TRAINING

pytestmark = pytest.mark.slow

VALUES: dict[str, Any] = {
    "start_method": "spawn",
    "lr_factor": 1.5,
    "autocast": "bf16",
    "compile": "default",
    "optimizer_form": "foreach",
    "read_from": "/nowhere=/elsewhere",
    "read_through": "/nowhere=/elsewhere:1000",
    "debugging_off": "anomaly_mode",
    "call_every": "script.py:report:2",
    "memoize": "script.py:sample",
    "fused_functions": "script.py:swish",
    "features_once": "Sequential",
    "trim_padding": "mask",
}
TYPICAL = {int: 2, bool: True}
INJECTED = {name: VALUES.get(name, TYPICAL.get(one.type)) for name, one in SETTINGS.items() if one.injector}
# Compiling takes long; a start method other than fork imports torch in each worker.
SLOW = {"compile", "start_method"}
GROUPS = 8


def recorded(folder: Path, settings: dict[str, Any]) -> None:
    probed = run_probed(folder, TRAINING, env={"FLATOUT_SETTINGS": json.dumps(settings)})
    assert probed.code == 0, probed.err[-3000:]
    assert probed.faults() == []
    assert probed.run is not None
    assert probed.main.info["not_patched"] == {}
    assert not [problem for problem in probed.run.problems if "could not be timed" in problem]
    counts = probed.counts()
    # Two passes of the training and two of the validation, 64 samples each.
    assert counts["ITER_START"] == 4
    assert counts["BATCH_WAIT"] == 2 * 64 // settings.get("batch_size", 8) + 2 * 64 // 8
    assert counts["OPTIMIZER"] == counts["BACKWARD"] // settings.get("accumulate", 1)


def test_all_settings_together(tmp_path: Path) -> None:
    assert None not in INJECTED.values()
    recorded(tmp_path, {name: value for name, value in INJECTED.items() if name not in SLOW | {"batch_size"}})


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_few_settings_at_once(tmp_path: Path, group: int) -> None:
    """What one setting hides in a run with all of them shows without it."""
    recorded(tmp_path, {"num_workers": 1} | {name: INJECTED[name] for name in sorted(INJECTED)[group::GROUPS]})


def test_what_could_not_be_timed_is_a_problem_of_the_record(tmp_path: Path) -> None:
    probed = run_probed(tmp_path, TRAINING)
    assert probed.run is not None
    path = next((probed.run.path / "processes").glob("*.json"))
    info = json.loads(path.read_text())
    info["not_patched"] = {"loaders": "NotInstrumented: gone"}
    path.write_text(json.dumps(info))
    (problem,) = load_run(probed.run.path).problems[-1:]
    assert problem == "loaders could not be timed (NotInstrumented: gone): what depends on it is missing"
