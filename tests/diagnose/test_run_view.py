"""The view of a recorded run, from a folder that was laid down event by event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout.diagnose.ranking import judge
from flatout.measure.build import build_view
from flatout.predict.context import Context
from flatout.record import load_run
from flatout.remedies import propose
from tests.record.synthetic import RunBuilder


def starved_run(folder: Path) -> Path:
    """One worker that computes 0.4 s for each batch; a step takes 0.1 s beside the wait."""
    run = RunBuilder(folder)
    main = run.process()
    loader = main.loader(num_workers=1, batch_size=4)
    worker = run.worker(main, 0)
    main.iterate(loader, workers=[worker])
    for batch in range(30):
        worker.fetch(batch=batch, samples=4, cpu_s=0.4)
        main.at(max(main.now_s, worker.now_s - 0.3))
        main.step(loader, wait_s=0.3, forward_s=0.03, backward_s=0.06, optimizer_s=0.01)
    path = run.write()
    (path / "machine.json").write_text(json.dumps({"cores": {"usable": 8.0}}), encoding="utf-8")
    return path


def test_a_recorded_run_becomes_a_view_whose_planted_fault_is_found(tmp_path: Path) -> None:
    view = build_view(load_run(starved_run(tmp_path)))
    assert view is not None
    assert view.cores == 8.0
    assert view.uses_gpu is False
    assert (view.validations, view.checkpoints) == (0, 0)
    causes, _ = judge(Context.of(view))
    assert causes[0].id == "too_few_workers"
    remedy = propose(Context.of(view), causes)[0][0]
    assert remedy.id == "num_workers"
    assert remedy.gain.predicted == pytest.approx(4.0, rel=0.1)


def test_without_a_machine_file_the_cores_are_unknown_and_the_confidence_is_low(tmp_path: Path) -> None:
    path = starved_run(tmp_path)
    (path / "machine.json").unlink()
    view = build_view(load_run(path))
    assert view is not None
    assert view.cores is None
    assert judge(Context.of(view))[0][0].confidence <= 0.5


def test_a_run_without_a_training_step_has_no_view(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    run.process()
    assert build_view(load_run(run.write())) is None
