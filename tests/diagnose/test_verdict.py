"""The sentence at the top of a report, and the command at its end."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flatout.diagnose.causes import BY_ID
from flatout.diagnose.ranking import judge
from flatout.diagnose.sentences import called_from
from flatout.diagnose.verdict import NO_STEP, ONE_STEP, next_command, verdict
from flatout.measure.experiments import Experiments
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.results import Gain, Line, Remedy
from tests.diagnose.views import (
    COMPUTE,
    LINE,
    crowded,
    healthy,
    make_ledger,
    remote,
    saturated,
    silent,
    starved,
    tried,
    without_workers,
)


def say(view: MeasuredRun) -> str:
    context = Context.of(view)
    return verdict(context, judge(context)[0])


def test_the_wait_is_stated_with_what_the_workers_do_meanwhile() -> None:
    assert say(saturated(uses_gpu=True)) == (
        "The GPU waits 62% of the time for batches: each of the 2 workers spends 67% of its time decoding files."
    )


def test_the_users_function_is_named_and_a_packages_is_not() -> None:
    own = Line("/home/me/train.py", 20, "load_picture", "return decode(data)", 1.0)
    library = Line("/venv/lib/python3.11/site-packages/PIL/Image.py", 20, "open", "", 1.0)
    assert say(saturated(lines_of_group={"decode": (own,)})).endswith("decoding files (load_picture, train.py:20).")
    assert say(saturated(lines_of_group={"decode": (library,)})).endswith("decoding files.")


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("load.<locals>.<listcomp>", "load"),
        ("Photos.__getitem__.<locals>.<lambda>", "Photos.__getitem__"),
        ("main.<locals>.Photos.__getitem__", "Photos.__getitem__"),
        ("<module>", "<module>"),
    ],
)
def test_a_comprehension_is_named_by_its_function(function: str, named: str) -> None:
    assert called_from([Line("/home/me/train.py", 20, function, "", 1.0)]) == f" ({named}, train.py:20)"


def test_a_run_on_the_cpu_names_the_training_and_not_a_gpu() -> None:
    assert say(starved()).startswith("The training waits 80% of the time for batches: its only worker spends")


def test_a_remote_store_is_named_by_what_workers_wait_for() -> None:
    assert say(remote()).endswith("waiting for the network.")


def test_nobody_says_that_nothing_is_to_gain_where_nobody_has_looked() -> None:
    sentence = say(healthy())
    assert sentence.startswith("The model's own computation takes 97% of the time, waiting for batches 2.9%.")
    assert sentence.endswith("Whether that is slow is not known, because no kernel trace was taken.")


def test_what_was_tried_in_vain_is_said() -> None:
    vain = {"threads=1": tried(-0.4), "anomaly_mode": tried(0.01)}
    run = replace(healthy(), experiments=Experiments(tried=vain, steps=40))
    assert say(run).endswith("was taken; it is no faster with 1 thread, without anomaly detection.")


def test_missing_workers_are_named() -> None:
    assert say(without_workers()).endswith("num_workers is 0.")


def test_crowded_cores_are_named() -> None:
    assert say(crowded()).endswith("take turns on 2 cores.")


def test_a_wait_without_a_known_cause_is_called_unexplained() -> None:
    sentence = say(silent())
    assert "4 workers cannot fetch them in time" in sentence
    assert re.search(r"no known cause explains most of it\. The model's own computation takes \d+%\.$", sentence)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (healthy(busy=COMPUTE | {"host_other": 0.01}, lines={"host_other": LINE}), "(train.py:12)"),
        (healthy(busy=COMPUTE | {"logging": 0.01}), "Writing logs"),
        (healthy(gaps={"checkpoint": 1.0}), "checkpoints are written"),
        (healthy(gaps={"validation": 1.0}), "Validation takes 33%"),
        (healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}), "the same for a larger batch"),
        (
            healthy(busy=COMPUTE | {"device_sync": 0.02}, uses_gpu=True, usage={"device_busy_share": 0.5}),
            "reads values back",
        ),
        (
            healthy(persistent_workers=False, worker_starts_in_window=8, gaps={"epoch_boundary": 1.0}),
            "Starting workers anew",
        ),
    ],
)
def test_each_leading_cause_has_its_sentence(view: MeasuredRun, words: str) -> None:
    assert words in say(view)


def test_a_small_cause_does_not_stand_for_a_large_wait() -> None:
    view = silent(gaps={"checkpoint": 0.5})
    assert [cause.id for cause in judge(Context.of(view))[0]] == ["checkpoint"]
    assert "no known cause explains most of it" in say(view)


def test_without_a_step_there_is_nothing_to_diagnose() -> None:
    assert verdict(None, ()) == NO_STEP


def test_a_single_step_is_not_called_none() -> None:
    view = starved()
    steps = replace(view.ledger.steps, count=0)
    assert verdict(Context.of(replace(view, ledger=replace(view.ledger, steps=steps))), ()) == ONE_STEP


def test_without_a_cause_the_largest_part_of_the_time_is_stated() -> None:
    view = MeasuredRun(ledger=make_ledger({"host_start": 0.6, "forward": 0.4}), loading=None, cores=2)
    assert verdict(Context.of(view), ()) == "No cause stands out: the largest part of the time is host start, 60%."


def test_the_next_command_explains_a_fault_that_fix_cannot_remove_and_reports_a_healthy_run() -> None:
    command = ("python", "train.py", "--name", "two words")
    causes = judge(Context.of(starved()))[0]
    assert next_command("r1", command, causes) == f"flatout explain {causes[0].id}"
    other = Remedy("log_less", "logging", "log", "identical", "low", Gain(1.1, 1.0, 1.2), 0, "", "", {"log_every": 10})
    assert next_command("r1", command, causes, (other,)) == f"flatout explain {causes[0].id}"
    bits = replace(other, cause=causes[0].id, semantic_class="numerics", settings={"threads": 1})
    allowed = next_command("r1", command, causes, (other, bits))
    assert allowed == "flatout fix --allow numerics -- python train.py --name 'two words'"
    hidden = (causes[0], replace(causes[0], id="logging", hidden_by=causes[0].id))
    assert "fix -- python" in next_command("r1", command, hidden, (other,))
    assert "fix --allow numerics" in next_command("r1", command, hidden, (other, bits))
    assert next_command("r1", command, judge(Context.of(healthy()))[0]) == "flatout report r1 --markdown"
    assert " --full -- " in next_command("r1", command, (), ledger=healthy().ledger)
    none = replace(healthy().ledger, steps=replace(healthy().ledger.steps, count=0))
    assert " --steps 12 -- " in next_command("r1", command, causes, ledger=none)
    assert " --steps 12 -- " in next_command("r1", command, ())  # it may train without end


@pytest.mark.parametrize("mechanics", ["local_copy", ""])
def test_a_remedy_by_a_copy_is_tried_without_a_setting(mechanics: str) -> None:
    remedy = Remedy(
        "local_copy",
        "storage_latency",
        "copy",
        "identical",
        "low",
        Gain(2.0, 1.5, 3.0),
        0,
        "",
        "",
        mechanics=mechanics,
    )
    said = next_command("r1", ("python", "train.py"), judge(Context.of(remote()))[0], (remedy,))
    assert said == ("flatout fix -- python train.py" if mechanics else "flatout explain storage_latency")


@pytest.mark.parametrize(("count", "only"), [(1, "one step was"), (4, "4 steps were")])
def test_few_steps_are_no_diagnosis_and_the_time_that_would_do_is_named(count: int, only: str) -> None:
    view = healthy()
    steps = replace(view.ledger.steps, count=count)
    view = replace(view, ledger=replace(view.ledger, window_s=2.0 * count, steps=steps))
    assert say(view) == f"Only {only} complete: record longer with --seconds 24."
    said = next_command("r1", ("python", "train.py"), judge(Context.of(view))[0], (), view.ledger)
    assert said == "flatout profile --seconds 24 -- python train.py"


def test_what_filled_few_steps_is_named() -> None:
    """Such as a compilation of several seconds in each of them, which leaves no time for more steps."""
    view = healthy(busy=COMPUTE | {"compile": 0.5})
    view = replace(view, ledger=replace(view.ledger, steps=replace(view.ledger.steps, count=2)))
    assert say(view).startswith("Only 2 steps were complete, and compile took 98% of the time: record longer")


def test_a_training_that_ended_by_itself_cannot_be_recorded_for_longer() -> None:
    few = healthy(batches=2)
    said = verdict(Context.of(few), (), ended="ended by itself")
    assert said.startswith("Only 2 steps were complete before the training ended by itself")
    assert "--seconds" not in said and "--steps" not in said
    assert next_command("run", ["python", "train.py"], (), ledger=few.ledger, ended="ended by itself") == (
        "flatout profile --full -- python train.py"
    )


def test_the_sentence_of_transforms_names_them_where_decoding_alone_is_larger_than_each() -> None:
    groups = {"decode": 0.4, "transform": 0.3, "convert": 0.3}
    said = say(saturated(uses_gpu=True, cpu_groups=groups))
    assert said.endswith("spends 58% of its time transforming and converting samples."), said
    cause = judge(Context.of(saturated(cpu_groups=groups)))[0][0]
    assert cause.id == "cpu_transform"
    unknown = Context.of(saturated(cpu_groups={}))  # no stack sample fell into a fetch
    sentence = BY_ID["cpu_transform"].sentence
    assert sentence is not None and "cannot fetch them in time" not in sentence(unknown, cause)
    assert "computing samples" in sentence(unknown, cause)
