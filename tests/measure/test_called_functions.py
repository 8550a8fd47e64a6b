"""The functions that a training loop calls besides its steps: which one of a stack is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.build import build_view
from flatout.measure.called_functions import _feeds_step, _outermost, hook_functions, package_of
from flatout.measure.samples import stack_samples
from flatout.record import load_run
from flatout.results import Line
from tests.record.synthetic import RunBuilder

HERE, SITE = "/home/me/train.py", "/venv/lib/python3.11/site-packages"
LOOP = {(HERE, "<module>"), (HERE, "train"), (HERE, "Trainer.step")}


def user(function: str, file: str = HERE) -> list[object]:
    return [file, 7, function, "", True]


def library(path: str, function: str) -> list[object]:
    return [f"{SITE}/{path}", 1, function, "", False]


MAIN = [user("train"), user("<module>")]


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ([user("quality"), user("Journal.write"), *MAIN], "Journal.write"),
        ([user("Monitor.make.<locals>.hook"), user("Trainer.step"), *MAIN], "Monitor.make.<locals>.hook"),
        ([library("sklearn/metrics/_ranking.py", "roc_auc_score"), *MAIN], "roc_auc_score"),
        ([library("numpy/lib/_npyio.py", "savetxt"), *MAIN], None),
        ([library("transformers/trainer.py", "Trainer.evaluate"), *MAIN], "Trainer.evaluate"),
        ([library("transformers/trainer.py", "Trainer.log"), *MAIN], None),
        ([library("pytorch_lightning/loops/evaluation_loop.py", "_EvaluationLoop.run"), *MAIN], "_EvaluationLoop.run"),
        ([user("train.<locals>.<lambda>"), *MAIN], None),
        ([user("depth"), user("train.<locals>.<listcomp>"), *MAIN], "depth"),
        (MAIN, None),
    ],
)
def test_the_outermost_function_that_is_no_part_of_the_step(frames: list[list[object]], name: str | None) -> None:
    found = _outermost(frames, LOOP)
    assert (found and found[1]) == name


@pytest.mark.parametrize(
    ("function", "line", "feeds"),
    [
        ("Data.get_slice", "inputs, A, targets = data.get_slice(i)", True),
        ("Net.compute_scores", "return targets, model.compute_scores(hidden, mask)", True),
        ("draw", "for noise in draw(64):", True),
        ("draw", "x, y = draw(64)", True),
        ("Journal.write", "journal.write(step, loss)", False),
        ("quality", "values.append(quality(output))", False),
        ("Ranking.value", "train_auc = ranking.value()", False),
        ("accuracy", "top = accuracy(output, y)", False),
        ("log_losses", "shown = log_losses(loss)", False),
        ("logits_of", "found = logits_of(x)", True),
        ("get_state", "state = get_state(env)", True),
        ("depth", "", False),
    ],
)
def test_a_function_feeds_the_step_where_its_result_is_taken(function: str, line: str, feeds: bool) -> None:
    loop = [HERE, 9, "train", line, True]
    assert _feeds_step([user("inner"), user(function), loop, user("<module>")], (HERE, function)) == feeds


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("auc(x)", False),
        ("kept.data.copy_(kept.data * 0.9 + new.data * 0.1)", True),
        ("kept.lerp_(new, 0.1)", True),
        ("kept.data[0] = new", True),
        ("target.load_state_dict(source.state_dict())", True),
        ("if kept.data == new: self.print_(x)", True),  # nobody knows what it does
        ("if kept.data == new: write(x.view_as(y))", False),
    ],
)
def test_its_time_is_its_share_of_the_account(tmp_path: Path, text: str, changes: bool) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=0)
    main.iterate(loader)
    for _ in range(4):
        main.step(loader, forward_s=0.3, backward_s=0.3, optimizer_s=0.1, host_s=0.3)
    loop = [HERE, 3, "train", "report(model(x))", True]
    for step in range(4):
        main.sample(step + 0.2, "model(x)", function="train")
        main.sample(step + 0.4, "model(x)", function="train")
        main.sample(step + 0.9, text, function="report", outer=[loop])
    view = build_view(load_run(run.write()))
    assert view is not None
    (report,) = view.called("host_other")
    assert (report.file, report.name, report.changes_tensors) == (HERE, "report", changes)
    assert report.seconds == pytest.approx(view.seconds("host_other"))


def test_of_a_hook_without_a_name_what_it_calls_is_left_out(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    main.step(forward_s=0.5, backward_s=0.5)
    lambda_ = [HERE, 9, "Monitor.__init__.<locals>.<lambda>", "self.observe(out)", True]
    main.sample(0.2, "x.std()", function="Monitor.observe", outer=[lambda_, [HERE, 3, "train", "model(x)", True]])
    process = load_run(run.write()).processes[0]
    samples = stack_samples(process.events, process.names)
    hooks = [Line(HERE, 9, "Monitor.__init__.<locals>.<lambda>", "", 0.3), Line(HERE, 20, "watch", "", 0.1)]
    assert [(one.name, one.seconds) for one in hook_functions(samples, hooks)] == [
        ("Monitor.observe", 0.3),
        ("watch", 0.1),
    ]


def test_metrics_that_steps_compute_are_told_from_the_model(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    collection = library("torchmetrics/collections.py", "MetricCollection.forward")
    outer = [library("torchmetrics/metric.py", "Metric.forward"), collection, user("fit")]
    for number in range(10):
        step = float(number)
        main.step(forward_s=0.8, backward_s=0.1)
        main.sample(step + 0.2, "self.net(x)", function="training_step")
        main.sample(step + 0.4, "auroc(y)", function="update", outer=outer)
    view = build_view(load_run(run.write()))
    assert view is not None
    (metric,) = view.called("metrics")
    assert (metric.name, package_of(metric.file)) == ("MetricCollection.forward", "torchmetrics")
    assert metric.seconds == pytest.approx(view.seconds("forward") / 2, rel=0.2)
    assert package_of("/home/me/metrics.py") == "metrics.py"
