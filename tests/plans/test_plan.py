"""Plans against a simulated training whose end is known, and what the command prints and refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from flatout import cli
from flatout.plans.costs import Costs, measure_costs
from flatout.plans.drawing import draw
from flatout.plans.gains import Gain
from flatout.plans.milestones import milestones
from flatout.plans.planning import make_plan
from flatout.plans.scenarios import Limits, Work, compare
from flatout.plans.timeline import Timeline, timeline_of
from flatout.probe.events import FORWARD
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/plan.schema.json").read_text("utf-8"))
# Case E: 51 s an epoch, of 5 folds of 30 in 11 minutes.
CASE_E = Costs(
    startup_s=10.0, steps=500, blocks_s=np.linspace(0.098, 0.102, 20), between_s=np.full(3, 1.0), ending_s=1.0
)


def simulated(epochs: int, steps: int = 40, cold: float = 2.0, seed: int = 0) -> Timeline:
    """5 s of start-up, steps of 100 ms give or take 10%, a cold first epoch, 1 s after each, 2 s at the end."""
    random = np.random.default_rng(seed)
    starts, ends, numbers, now = [], [], [], 4.9
    for epoch in range(epochs):
        for _ in range(steps):
            starts.append(now)
            now += 0.1 * random.uniform(0.9, 1.1) * (cold if epoch == 0 else 1.0)
            ends.append(now)
            numbers.append(epoch)
        now += 1.0
    return Timeline(np.array(starts), np.array(ends), np.array(numbers), finish_s=now + 2.0)


def recorded(folder: Path, epochs: int = 3, steps: int = 30) -> Path:
    run = RunBuilder(folder)
    process = run.process()
    process.pause(5.0)
    for _ in range(epochs):
        process.iterate(1)
        for _ in range(steps):
            process.step(1, wait_s=0.02, forward_s=0.03, backward_s=0.05)
        process.end_pass(1)
    return run.write()


def test_the_end_of_a_simulated_training_is_predicted_from_its_beginning() -> None:
    whole = simulated(epochs=20)
    assert whole.finish_s is not None
    seen = whole.until(0.25 * whole.finish_s)
    ends_s = draw(measure_costs(seen)).end_s(1, 20)
    low, middle, high = np.quantile(ends_s, (0.05, 0.5, 0.95))
    assert low < whole.finish_s < high and middle == pytest.approx(whole.finish_s, rel=0.02)


def test_costs_are_those_of_the_simulated_training() -> None:
    costs = measure_costs(simulated(epochs=6))
    assert costs.step_s == pytest.approx(0.1, rel=0.02) and costs.steps == 40
    assert costs.between_s == pytest.approx(np.full(5, 1.0), abs=0.02)
    assert costs.first_extra_s == pytest.approx(39 * 0.1, rel=0.05) and costs.ending_s == pytest.approx(3.0)
    assert any("first epoch took" in note for note in costs.notes)


def test_a_recording_without_an_end_of_an_epoch_says_so_and_is_less_sure() -> None:
    whole = simulated(epochs=10, cold=1.0)
    short, long = (measure_costs(whole.until(at_s), 40) for at_s in (8.0, 25.0))
    assert not len(short.between_s) and any("validation and checkpoints: not measured" in one for one in short.notes)
    widths = [np.ptp(np.quantile(draw(costs).end_s(1, 10), (0.05, 0.95))) for costs in (short, long)]
    assert widths[0] > widths[1]


def test_other_work_on_the_machine_is_told_and_makes_the_end_less_sure() -> None:
    whole = simulated(epochs=6)
    at_s = np.arange(5.0, 30.0)
    busy = replace(whole, waits=np.stack([at_s, 0.4 * at_s], 1))
    costs = measure_costs(busy.until(20.0))
    assert costs.queued == pytest.approx(0.4) and any("waited for a core 40%" in note for note in costs.notes)
    widths = [np.ptp(np.quantile(draw(one).end_s(1, 10), (0.05, 0.95))) for one in (costs, measure_costs(whole))]
    assert widths[0] > 1.5 * widths[1]


def test_case_e_does_not_fit_and_the_plan_says_what_does() -> None:
    plan = make_plan("run", CASE_E, Work(5, 30), Limits(660.0, 20.0, 1.2))
    asked = plan.asked_for
    assert 0 < asked.in_time < 0.001 and asked.expected_s == pytest.approx(10 + 150 * 51 + 20, rel=0.02)
    assert plan.reached == (1, 12)
    assert plan.fits and plan.fits.conservative_s <= 660 and plan.fits.in_time >= 0.95 and plan.fits.share < 0.1
    assert asked.price == pytest.approx(asked.expected_s / 3600 * 1.2)
    late = [one.latest_s for one in plan.milestones]
    assert late == sorted(late) and late[-1] < 640


def test_where_no_epoch_fits_the_share_of_data_is_said_of_which_one_does() -> None:
    plan = make_plan("run", CASE_E, Work(5, 30), Limits(50.0))
    assert plan.fits and plan.fits.name == "one epoch" and (plan.fits.work.folds, plan.fits.work.epochs) == (1, 1)
    assert 0.3 < plan.fits.work.subset < 1 and plan.fits.conservative_s <= 50
    assert make_plan("run", CASE_E, Work(5, 30), Limits(5.0)).fits is None


def test_a_proved_gain_changes_the_steps_and_nothing_else() -> None:
    draws = draw(CASE_E)
    faster = draws.faster(Gain(2.0, 2.0, 2.0).draw(len(draws.step_s)))
    saved = np.median(draws.end_s(1, 10) - faster.end_s(1, 10))
    assert saved == pytest.approx(10 * 500 * 0.05, rel=0.02)
    assert compare(faster, Work(1, 10), Limits(600.0))[0].share == 1.0


def test_a_milestone_missed_leaves_what_still_fits() -> None:
    draws = draw(CASE_E)
    half = milestones(draws, Work(1, 10), Limits(620.0))[1]
    assert (half.fold, half.epoch, half.step) == (1, 5, 2500)
    assert half.then is not None and 5 <= half.then.epochs <= 10


def test_the_command_prints_80_columns_and_what_its_schema_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices, proof = tmp_path / "prices.toml", tmp_path / "fix.json"
    prices.write_text('[a10]\nper_hour = 1.2\ncurrency = "USD"\ndate = 2026-11-01\nsource = "our offer"\n')
    proof.write_text(json.dumps({"proof": {"speedup": 1.5, "low": 1.4, "high": 1.6, "loss_passed": True}}))
    words = ["plan", "--deadline", "1m", "--folds", "5", "--epochs", "30", "--prices", str(prices)]
    words += ["--after", str(proof), str(recorded(tmp_path))]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "1.2 USD/h (our offer, 2026-11-01)" in text and "1.50x" in text
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert found["measured"]["step_s"] == pytest.approx(0.1, rel=0.02)
    assert found["after"][0]["expected_s"] < found["scenarios"][0]["expected_s"]


@pytest.mark.parametrize("columns", ["40", "57", "79"])
def test_the_command_keeps_to_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    proof = tmp_path / "fix.json"
    proof.write_text(json.dumps({"proof": {"speedup": 1.5, "low": 1.4, "high": 1.6, "loss_passed": True}}))
    words = ["plan", "--deadline", "1m", "--folds", "5", "--epochs", "30", "--price", "1.2/h", "--after", str(proof)]
    words.append(str(recorded(tmp_path)))
    assert cli.main(words) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(words) == 0
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= int(columns)
    said = " ".join(narrow.split())
    assert "asked for: folds x epochs 5 x 30" in said
    assert int(columns) > 40 or "step, waits included: 100 ms x 30 steps an epoch" in said
    missing = {word for word in re.findall(r"\d[\d.]*", wide) if word not in narrow}
    assert not missing  # no figure is left out


@pytest.mark.parametrize("command", [["plan", "--deadline", "5m", "--epochs", "3"], ["report"]])
@pytest.mark.parametrize(("content", "said"), [("", "it is empty"), ("[]", "it holds no JSON object")])
def test_a_run_whose_run_json_says_nothing_is_refused_by_the_path_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], content: str, said: str
) -> None:
    copy = recorded(tmp_path).rename(tmp_path / "copy")
    (copy / "run.json").write_text(content)
    assert cli.main([*command, str(copy)]) == 2
    told = capsys.readouterr().err
    assert f"{copy}/run.json is damaged ({said})" in told and told.count("\n") == 1


@pytest.mark.parametrize(("content", "said"), [(None, "run.json is missing"), ("{", "run.json cannot be read")])
def test_no_plan_is_made_from_a_run_whose_end_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    run = recorded(tmp_path)
    (run / "run.json").unlink()
    if content is not None:
        (run / "run.json").write_text(content)
    assert cli.main(["plan", "--deadline", "5m", "--epochs", "3", str(run)]) == 2
    told = capsys.readouterr().err
    assert f"{run}: {said}" in told and told.count("\n") == 1


def test_a_run_with_too_few_steps_is_named_by_the_path_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = recorded(tmp_path, epochs=1, steps=1).rename(tmp_path / "copy")
    assert cli.main(["plan", "--deadline", "5m", "--epochs", "3", str(copy)]) == 2
    assert f"{copy} holds 0 training steps" in capsys.readouterr().err


def test_a_training_that_failed_is_no_plan_that_can_be_relied_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path)
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "stop": "failed", "exit_code": 137}))
    words = ["plan", "--deadline", "5m", "--epochs", "3", str(run)]
    assert cli.main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("The recorded training did not end well: the command was ended by SIGKILL (exit code 137).")
    assert cli.main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failure"] == "the command was ended by SIGKILL (exit code 137)"


def test_one_word_after_the_separator_is_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--deadline", "5m", "--epochs", "3", "--runs-dir", str(tmp_path)]
    assert cli.main([*words, "--", "nosuchcmd"]) == 127
    assert "command not found: 'nosuchcmd'" in capsys.readouterr().err


def test_a_log_is_planned_from_as_far_as_it_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"Epoch {n}/50 finished, time: {20 + n % 2}.0 s, loss: 0.{9 - n}\n" for n in range(1, 6)))
    assert cli.main(["plan", "--deadline", "11m", "--epochs", "50", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"]["startup_s"] is None
    assert found["scenarios"][0]["expected_s"] == pytest.approx(50 * 20.5, rel=0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "cheap"], "--price cheap: give a price an hour"),
        (["--reserve", "2m"], "--reserve 2m leaves nothing"),
        (["--prices", "none.toml"], "none.toml: cannot be read (No such file or directory)"),
        (["--prices", "latin.toml"], "latin.toml: cannot be read (it is no UTF-8 text)"),
        (["--prices", "empty.toml"], "empty.toml: has no table of a price"),
        (["--prices", "two.toml"], "has several tables: give --price NAME, one of: a, b"),
        (["--after", "none.json"], "none.json: cannot be read (No such file or directory)"),
        (["--prices", "bare.toml"], "prices change: give date"),
        (["--prices", "bare.toml", "--price", "bear"], "did you mean bare?"),
        (["--after", "nothing.json"], "nothing was proved there"),
        (["--after", "bare.toml"], "is no JSON"),
        (["--epochs", "0"], "--epochs"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bare.toml").write_text("[bare]\nper_hour = 1.2\n")
    Path("latin.toml").write_bytes(b"# caf\xe9")
    Path("empty.toml").write_text("")
    Path("two.toml").write_text("[a]\n[b]\n")
    Path("nothing.json").write_text('{"proof": null}')
    assert cli.main(["plan", "--deadline", "1m", "--epochs", "3", *words, "no-run"]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.strip().splitlines()) == 1


def test_a_record_without_a_whole_epoch_asks_for_its_steps(tmp_path: Path) -> None:
    run = load_run(recorded(tmp_path, epochs=1))
    costs = measure_costs(timeline_of(run), 100)
    assert costs.steps == 100 and costs.startup_s == pytest.approx(5.1, abs=0.05)


def test_without_a_loader_an_epoch_lasts_from_one_validation_to_the_next(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    process = run.process()
    process.pause(2.0)
    for _ in range(3):
        for _ in range(20):
            process.step(forward_s=0.04, backward_s=0.06)
        process.mode(train=False)
        process.spend(FORWARD, 0.7, process.text("Net"), 0, 0)
        process.mode(train=True)
    for _ in range(20):
        process.step(forward_s=0.04, backward_s=0.06)
    costs = measure_costs(timeline_of(load_run(run.write())))
    assert costs.steps == 20 and costs.between_s == pytest.approx(np.full(3, 0.7), abs=0.01)
    assert costs.step_s == pytest.approx(0.1, rel=0.01) and any(
        "no DataLoader fed the steps" in one for one in costs.notes
    )
