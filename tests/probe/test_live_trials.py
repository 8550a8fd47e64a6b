"""Settings switched within one running training: every sample comes once, in the same order, and blocks are counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.probe import events
from tests.probe.parts import SCRIPTS
from tests.probe.recorded import Recorded, new_run_folder, probed_env, read_back

# Dozens of starts of workers, in one process: minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
# Name of a training in the script, and whether settings change between its passes.
WHOLE = {
    "default num_workers persistent_workers": False,
    "shuffled num_workers prefetch_factor": False,
    "persistent num_workers": False,
    "batch_sampler num_workers": False,
    "generator start_method worker_threads": False,
    "worker_init num_workers": False,
    "single_samples num_workers": False,
    "made_anew num_workers persistent_workers": False,
    "in_turn num_workers": False,
    "endless num_workers": False,
    "left_early num_workers persistent_workers": False,
    "short_one_worker num_workers persistent_workers": True,
    "short_persistent num_workers": True,
    "short_no_worker num_workers persistent_workers": True,
    "short_stream prefetch_factor": True,
    "bad_sample num_workers": False,
    "threads threads": False,
}
ENDED = {
    "stream prefetch_factor": "the place of each worker in an iterable data set cannot be handed over",
    "shuffled persistent_workers": "persistent_workers takes effect only where a pass begins",
    "default prefetch_factor": "prefetch_factor: there are no workers: set num_workers too",
    "own_passes num_workers": "its passes do not begin in DataLoader.__iter__",
    "no_pickle start_method": "pickle",
}


def start(folder: Path, script: Path, *arguments: str, plan: dict[str, Any] | None = None) -> Recorded:
    """Run a script under the probe, with the plan of a live trial in its run folder."""
    run = new_run_folder(folder)
    if plan is not None:
        (run / "live.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=probed_env(run, {**os.environ, "OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    return Recorded(done.returncode, done.stdout, done.stderr, read_back(run))


def test_switched_trainings_see_the_same_samples_and_what_cannot_be_switched_says_why(tmp_path: Path) -> None:
    """One test: its script takes minutes, and each worker of xdist would run it for itself."""
    done = start(tmp_path, SCRIPTS / "live_switches.py")
    assert done.code == 0, done.err[-3000:]
    told = {line["name"]: line for line in map(json.loads, done.out.splitlines())}
    wrong = []
    for name, by_pass in WHOLE.items():
        line = told[name]
        whole = line["same"] and (line["failed"], line["fault"], line["passes"]) == (None, None, by_pass)
        if not whole or not (line["blocks"] == 4 or name.startswith("generator")):
            wrong.append(line)
    for name, why in ENDED.items():
        line = told[name]
        if not line["same"] or line["fault"] is not None or why not in (line["failed"] or ""):
            wrong.append(line)
    line = told["shuffled in_order num_workers"]
    if not (line["same samples"] or "in_order" in (line["failed"] or "")):  # torch before 2.6 has none
        wrong.append(line)
    line = told["few_steps num_workers"]  # shorter than a block
    if not line["same"] or line["blocks"] or line["failed"] is not None:
        wrong.append(line)
    assert wrong == []


PLANNED = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((4,), float(index))

model = nn.Linear(4, 1)
for x in DataLoader(Numbers(), 2, num_workers=1):
    model(x).mean().backward()
"""


PLAN = {"order": [1, 0], "block_s": 0.04, "look_s": 0.04, "pass_s": 0.1, "least_batches": 4, "turns": 2}
PLAN["threshold"] = 0.03


def test_the_plan_in_the_run_folder_is_followed_and_its_blocks_are_recorded(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PLANNED)
    plan = {**PLAN, "candidates": [{"num_workers": 2}]}
    found = start(tmp_path, script, plan=plan)
    assert found.code == 0, found.err
    assert found.main.info["live"] == {"passes": False, "gained": [], "refused": {}}
    blocks = found.main.of_kinds(events.LIVE_BLOCK)
    assert blocks["arg"].tolist() == [0, 1]
    assert all(int(bits) & 0xFFFFFFFF >= 4 for bits in blocks["b"])
    assert blocks["a"].tolist() == [2 * (int(bits) & 0xFFFFFFFF) for bits in blocks["b"]]


def test_without_a_plan_nothing_is_switched(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PLANNED)
    found = start(tmp_path, script)
    assert "live" not in found.main.info and not len(found.main.of_kinds(events.LIVE_BLOCK))


FLAGS = """
import gc, json, os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

trial = sys.modules["_flatout_probe.recorder"].REC.live
torch.autograd.set_detect_anomaly(True)
notes = [[number] for number in range(300_000)]
model = nn.Linear(4, 1)
seen, saved = [], 0
for x in DataLoader(TensorDataset(torch.ones(8000, 4)), 2):
    loss = model(x[0]).mean()
    node = loss.grad_fn
    seen.append("traceback_" in node.metadata)  # anomaly detection is really on
    loss.backward()
    gc.collect()
    torch.save(model.state_dict(), "last.pt")
    saved += os.path.getsize("last.pt") > 0
    if trial.over:
        break
print(json.dumps([seen, torch.is_anomaly_enabled(), saved == len(seen), gc.get_threshold(), gc.get_freeze_count()]))
"""


@pytest.mark.serial  # how much a candidate gains decides how many blocks it gets
def test_flags_are_switched_and_what_gains_stays_for_the_candidates_after_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FLAGS)
    candidates = [{"collect_seldom": True}, {"debugging_off": "anomaly_mode"}, {"checkpoint_beside": True}]
    candidates += [{"lazy_scalars": True}, {"num_workers": 1, "start_method": "nonsense"}]
    order = [0, 1, 1, 0, 0, 1]
    found = start(tmp_path, script, plan={**PLAN, "candidates": candidates, "order": order, "look_s": 0.2})
    assert found.code == 0, found.err
    told = found.main.info["live"]
    assert 0 in told["gained"] and set(told["refused"]) == {"3", "4"} and "failed" not in told
    assert told["refused"]["3"] == "lazy_scalars: nothing took it in its blocks"
    seen, anomaly, saved, thresholds, frozen = json.loads(found.out.splitlines()[-1])
    assert True in seen and False in seen and seen[-1] and anomaly  # as the script has it once the blocks are over
    assert saved and thresholds[0] == 700 and frozen == 0
    blocks = set(found.main.of_kinds(events.LIVE_BLOCK)["arg"].tolist())
    assert {number // len(order) for number in blocks} >= {0, 1, 2, 3}
    assert set(range(3 * len(order))) - blocks  # two pairs decided at least one of those that gain


REPORTS = """
import json, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

trial = sys.modules["_flatout_probe.recorder"].REC.live
calls = {"report": [], "note": []}

def report(step):
    calls["report"].append(step)
    time.sleep(0.02)

def note(step):
    calls["note"].append(step)
    time.sleep(0.002)

model = nn.Linear(4, 1)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.ones(8000, 4)), 2)):
    model(x).mean().backward()
    report(step), note(step)
    if trial.over:
        over = over + 1 if "over" in globals() else 0
        if over == 15:
            break
print(json.dumps([step, calls]))
"""


def test_functions_are_called_less_often_in_blocks_and_as_the_script_does_after_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(REPORTS)
    candidates = [{"call_every": "script.py:report:10"}, {"call_every": "script.py:note:10"}]
    candidates += [{"call_every": "script.py:absent:10"}]
    plan = {**PLAN, "candidates": candidates, "order": [0, 1, 1, 0, 0, 1], "block_s": 0.3, "least_batches": 20}
    found = start(tmp_path, script, plan=plan)
    assert found.code == 0, found.err
    told = found.main.info["live"]
    assert "failed" not in told and 0 in told["gained"]
    steps, calls = json.loads(found.out.splitlines()[-1])
    # One that gained stays with the candidates after it.
    assert len(calls["report"]) < 0.7 * steps and len(calls["note"]) < 0.9 * steps
    assert calls["report"][-10:] == calls["note"][-10:] == list(range(steps - 9, steps + 1))


TIMED = """
import json, sys, torch
from torch import nn

in_place = sys.modules["_flatout_probe.in_place"]
calls = []

class Trainer:
    def save(self, step):
        calls.append(step)
        return step

def saved(step):
    calls.append(step)

timed = []
for function in (Trainer.save, saved):
    in_place.instrument(function, lambda *args: timed.append(1) or (), lambda token, result: None)
model, trainer = nn.Linear(4, 1), Trainer()
for step in range(40):
    model(torch.ones(2, 4)).mean().backward()
    trainer.save(step)
print(json.dumps([calls, len(timed)]))
"""


def test_a_method_that_the_probe_times_is_called_less_often_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TIMED)
    run = new_run_folder(tmp_path)
    settings = json.dumps({"call_every": "script.py:Trainer.save:10,script.py:saved:10"})
    environment = probed_env(run, {**os.environ, "FLATOUT_SETTINGS": settings})
    words = [sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    calls, timed = json.loads(done.stdout)
    assert len(calls) == timed < 12
    refused = read_back(run).processes[0].info["refused"]["call_every"]
    assert refused == "script.py:saved: saved is timed, and no method of a class"
