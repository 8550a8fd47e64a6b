"""The order of a fix: look, try, keep, look again, prove; and every way in which it ends early."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.errors import CommandError, Interrupted, UsageError
from flatout.measure.crowding import Contention
from flatout.report.fix import lines, to_dict
from flatout.results import Diagnosis, Gain
from flatout.results import RemedyBundle as Bundle
from flatout.trials.export import Export
from flatout.trials.fix_options import Options
from flatout.trials.outcome import FAILED, OUT_OF_MEMORY, REFUSED, TOO_SHORT, TrialRun
from flatout.trials.trial_run import TrialSetup
from flatout.units import parse_duration
from tests.trials.fix_machine import Machine, fixed, fixing, remedy
from tests.trials.made_runs import ledger, trial_run


def test_what_gains_is_kept_and_the_whole_is_proved(tmp_path: Path) -> None:
    remedies = [remedy("workers", 2.0, num_workers=4), remedy("prefetch", 1.2, prefetch_factor=4)]
    machine = Machine(remedies, {"num_workers": 1.8, "prefetch_factor": 1.0})
    found = fixed(tmp_path, machine)
    assert [(trial.remedy, trial.outcome) for trial in found.tried] == [("workers", "kept"), ("prefetch", "dropped")]
    assert found.settings == {"num_workers": 4}
    assert found.proof is not None and found.proof.ratio.low > 1.6 and found.proof.loss_passed
    # A look, A B B A of the first, one pair that shows no gain, then the original against the whole.
    both = {"num_workers": 4, "prefetch_factor": 4}
    workers = {"num_workers": 4}
    assert machine.calls[:7] == [{}, {}, workers, workers, {}, workers, both]
    assert machine.calls[-4:] == [{}, workers, workers, {}]
    text = "\n".join(lines(found))
    assert "Proved: 1.80x" in text and "flatout apply --set num_workers=4 -- python train.py" in text
    assert max(map(len, text.splitlines())) <= 80
    shown = json.loads(json.dumps(to_dict(found)))
    assert shown["proof"]["speedup"] == pytest.approx(1.8, rel=0.01) and shown["kept"][0]["remedy"] == "workers"


def test_runs_that_others_left_very_different_cores_prove_nothing(tmp_path: Path) -> None:
    class Crowded(Machine):
        """Others take 1.2 of 2 cores from the runs without the remedy."""

        def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
            made = super().run(setup, settings, deadline_s)
            assert made.speed is not None
            taken = Contention(0.0 if settings else 1.2, 1.0, 2)
            return replace(made, speed=replace(made.speed, contention=taken))

    found = fixed(tmp_path, Crowded([remedy("workers", 2.0, num_workers=4)], {"num_workers": 7.6}))
    assert [trial.outcome for trial in found.tried] == ["unconfirmed"] and found.tried[0].ratio.pairs == 4
    assert found.proof is None and not found.settings
    said = " ".join("\n".join(lines(found)).split())
    assert "which alone may account for 2.5x" in said
    assert "needs a machine on which other processes leave both the same cores" in said


def test_a_change_of_the_training_needs_leave(tmp_path: Path) -> None:
    remedies = [remedy("half", 2.0, "numerics", autocast="bf16"), remedy("by_hand", 1.5)]
    machine = Machine(remedies, {"autocast": 1.5})
    found = fixed(tmp_path, machine)
    assert not found.tried and len(found.untried) == 2
    assert "--allow numerics" in "\n".join(lines(found))
    assert (
        fixed(tmp_path / "2", machine, Options(allowed=frozenset({"identical", "numerics"}))).kept[0].remedy == "half"
    )


@pytest.mark.parametrize(("budget", "first"), [("2m", "threads"), ("10m", "compiled")])
def test_a_compiler_comes_last_where_the_budget_has_no_room_for_its_minutes(
    tmp_path: Path, budget: str, first: str
) -> None:
    remedies = [remedy("compiled", 2.0, "numerics", compile="default"), remedy("threads", 1.5, "numerics", threads=1)]
    machine = Machine(remedies, {"compile": 1.8, "threads": 1.4})
    options = Options(allowed=frozenset({"identical", "numerics"}), budget_s=parse_duration(budget))
    found = fixed(tmp_path, machine, options)
    assert found.tried[0].remedy == first and {trial.remedy for trial in found.tried} == {"compiled", "threads"}


def test_faster_with_other_losses_is_not_kept(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {"num_workers": "diverges"})
    found = fixed(tmp_path, machine)
    assert found.tried[0].outcome == "dropped" and "faster, but the losses" in found.tried[0].why
    assert found.proof is None
    assert lines(found)[0] == "Nothing was kept: with what made this training faster, its losses were others."


def test_faster_with_too_few_losses_is_not_kept_and_the_gain_is_said(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {"num_workers": "few losses"})
    found = fixed(tmp_path, machine)
    assert found.tried[0].outcome == "unconfirmed" and found.proof is None and not found.settings
    text = " ".join(" ".join(lines(found)).split())
    assert text.startswith("Nothing is proved yet. Do workers is promising: 2.0x")
    assert text.count("but not shown to train the same: not checked: 7 losses were seen in a run, 10 are needed") == 2
    assert "no room" not in text and "pairs of runs did not prove" not in text


def test_out_of_memory_tries_the_next_smaller_value(tmp_path: Path) -> None:
    full = TrialRun(OUT_OF_MEMORY, "CUDA out of memory", 3.0)
    batch = remedy("batch", 2.0, "optimisation", batch_size=16, lr_factor=2.0)
    machine = Machine([batch], {("batch_size", 16): full, ("batch_size", 12): 1.3})
    found = fixed(tmp_path, machine, Options(allowed=frozenset({"identical", "optimisation"})))
    assert found.tried[0].outcome == "kept" and found.settings == {"batch_size": 12, "lr_factor": 1.5}
    assert "CUDA out of memory" in found.tried[0].why


@pytest.mark.parametrize(("outcome", "word"), [(FAILED, "ended"), (REFUSED, "was not changed")])
def test_a_run_that_fails_is_told_and_the_next_remedy_tried(tmp_path: Path, outcome: str, word: str) -> None:
    remedies = [remedy("first", 3.0, num_workers=4), remedy("second", 2.0, prefetch_factor=4)]
    machine = Machine(remedies, {"num_workers": TrialRun(outcome, "a reason", 3.0), "prefetch_factor": 1.5})
    found = fixed(tmp_path, machine)
    assert [trial.outcome for trial in found.tried] == [outcome, "kept"]
    assert f"{word}: a reason" in found.tried[0].why


def test_the_budget_is_kept_and_a_proof_fits_in_it(tmp_path: Path) -> None:
    remedies = [
        remedy(f"r{number}", 2.0, **{name: 4}) for number, name in enumerate(("num_workers", "prefetch_factor"))
    ]
    machine = Machine(remedies, {"num_workers": 2.0, "prefetch_factor": 2.0})
    found = fixed(tmp_path, machine, Options(budget_s=45.0))
    assert machine.now_s <= 46.0 and found.proof is not None and "budget" in found.ended


def test_a_budget_too_small_for_one_pair_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([], {})
    machine.look = tmp_path / "runs" / "20261122-1"
    machine.look.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"--budget 6.0 s is too small for one pair of runs.*give at least 40s") as no:
        fixed(tmp_path, machine, Options(budget_s=6.0))
    over = Machine([], {})
    monkeypatch.setattr(over, "run", lambda *_, **__: setattr(over, "now_s", 3.0) or TrialRun("failed", "no step", 3.0))
    with pytest.raises(UsageError, match=r"--budget 3.0 s is too small: it was over before the first training steps"):
        fixed(tmp_path / "over", over, Options(budget_s=3.0))
    # What the look found was measured all the same.
    assert "`flatout report 20261122-1` shows what the look found" in str(no.value)
    assert (tmp_path / ".flatout" / "runs" / "20261122-1").is_dir()


def test_one_pair_that_clears_the_threshold_is_promising_and_the_budget_for_a_second_is_said(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 3.0})
    found = fixed(tmp_path, machine, Options(budget_s=22.0))
    (trial,) = found.tried
    assert trial.outcome == "unconfirmed" and found.promising == (trial,) and found.proof is None
    assert trial.why.startswith("3.0x (")
    assert " in one pair, not proved: needs about " in trial.why
    text = "\n".join(lines(found))
    assert "Nothing is proved yet. Do workers is promising" in text and "not confirmed 3.0x: do workers" in text
    assert to_dict(found)["tried"][0]["outcome"] == "unconfirmed"
    # The budget that is named is enough.
    named = parse_duration(trial.why.partition("--budget ")[2].partition(" ")[0])
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 3.0})
    again = fixed(tmp_path / "2", machine, Options(budget_s=named))
    assert again.settings == {"num_workers": 4} and again.proof is not None


def test_one_pair_within_noise_is_dropped(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 1.02})
    assert [trial.outcome for trial in fixed(tmp_path, machine, Options(budget_s=22.0)).tried] == ["dropped"]


def wide(rate: float) -> TrialRun:
    """A run whose steps vary so much that one of it says little."""
    found = trial_run(rate)
    assert found.speed is not None
    speed = replace(found.speed, error=0.25)
    return replace(found, speed=speed, run=SimpleNamespace(path=Path("nowhere")))  # type: ignore[arg-type]


def test_runs_that_differ_too_much_for_more_pairs_are_not_blamed_on_the_budget(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": wide(107.0)})
    found = fixed(tmp_path, machine, Options(budget_s=600.0))
    assert [trial.outcome for trial in found.tried] == ["unconfirmed"]
    assert found.ended.startswith("Runs differ by so much that more pairs would hardly decide")


def test_a_wide_interval_around_a_gain_of_one_pair_is_not_decided(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": wide(125.0)})
    machine.plans = (bundle("do workers"),)
    found = fixed(tmp_path, machine, Options(budget_s=22.0))
    (trial,) = found.tried
    assert trial.outcome == "unconfirmed"
    assert trial.why.startswith("not decided: 1.25x (0.") and "--budget " in trial.why
    assert "no room for another pair" in found.ended and "noise" not in found.ended
    text = "\n".join(lines(found))
    assert "Do workers: not decided" in text and "promising" not in text
    assert len(found.plans) == 1


def bundle(*titles: str) -> Bundle:
    return Bundle("conservative", {"num_workers": 4}, titles, Gain(2.0, 1.5, 2.5), 0, "low")


def test_a_remedy_that_a_trial_refuted_leaves_the_plans(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 0.9})
    machine.plans = (bundle("do workers"), replace(bundle("do workers", "do more"), name="moderate"))
    found = fixed(tmp_path, machine)
    assert [trial.outcome for trial in found.tried] == ["dropped"]
    assert [plan.remedies for plan in found.plans] == [("do more",)]
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 2.0})
    machine.plans = (bundle("do workers"),)
    assert fixed(tmp_path, machine).plans == machine.plans


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    machine = Machine([], {})
    machine.run = lambda setup, settings, deadline_s=0.0: TrialRun(FAILED, "exit code 3", 1.0)  # type: ignore[method-assign]
    fix = fixing(tmp_path, machine)
    (fix.runs.setup.folder / "output.log").write_text("starting\nValueError: no data\n")
    with pytest.raises(CommandError, match="exit code 3; it printed: ValueError: no data"):
        fix.run()


def test_ctrl_c_shows_what_there_is_and_resume_goes_on(tmp_path: Path) -> None:
    remedies = [remedy("workers", 3.0, num_workers=4), remedy("prefetch", 2.0, prefetch_factor=4)]
    machine = Machine(remedies, {"num_workers": 1.8, "prefetch_factor": KeyboardInterrupt})
    found = fixed(tmp_path, machine)
    assert found.interrupted and [trial.remedy for trial in found.kept] == ["workers"]
    machine.factors["prefetch_factor"] = 1.5
    machine.calls.clear()
    again = fixed(tmp_path, machine, going_on=True)
    assert [trial.remedy for trial in again.kept] == ["workers", "prefetch"] and again.proof is not None
    assert machine.calls[0] == {"num_workers": 4}  # the look is at what was kept
    assert again.before == found.before


def test_a_signal_ends_it_and_is_named(tmp_path: Path) -> None:
    machine = Machine([remedy("w", 2.0, num_workers=4)], {"num_workers": Interrupted(signal.SIGTERM)})
    found = fixed(tmp_path, machine)
    assert found.interrupted is not None and found.interrupted.exit_code == 143
    assert found.ended == "Ended early by SIGTERM."


def test_a_copy_of_the_data_that_is_there_is_tried(tmp_path: Path) -> None:
    machine = Machine([replace(remedy("local_copy", 3.0), mechanics="local_copy")], {"read_from": 2.0})
    assert not fixed(tmp_path, machine).tried
    found = fixed(tmp_path / "2", machine, Options(staged="/real=/copy"))
    assert found.settings == {"read_from": "/real=/copy"} and found.proof is not None


def test_what_only_the_user_has_a_setting_for_is_not_tried_without_one(tmp_path: Path) -> None:
    machine = Machine([remedy("validate_less", 2.0, "optimisation", validation_factor=2.0)], {})
    found = fixed(tmp_path, machine, Options(allowed=frozenset({"identical", "optimisation"})))
    assert not found.tried and "by hand" in found.untried[0][1]


def test_progress_is_told_in_sentences_of_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine([remedy("workers" * 12, 3.0, num_workers=4)], {"num_workers": 3.0})
    fixing(tmp_path, machine, Options(budget_s=16.0), quiet=False).run()
    said = capsys.readouterr().err
    assert "samples/s. It waits." in said and "samples/s; " not in said
    assert max(len(line) for line in said.splitlines() if "workersworkers" not in line) <= 80


SHORT = TrialRun(TOO_SHORT, "it holds 4 training steps in its window, and 5 are needed to compare", 5.0)


class SlowSteps(Machine):
    """Steps of one second: a run that measures less than 6 s holds too few of them."""

    step_s = 1.0

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        found = super().run(setup, settings, deadline_s)
        assert setup.bounds.seconds is not None
        self.now_s += setup.bounds.seconds
        short = setup.bounds.seconds < 6 * self.step_s
        return replace(SHORT, run=found.run, wall_s=5.0 + setup.bounds.seconds) if short else found

    def diagnose(self, run: object) -> Diagnosis:
        found = super().diagnose(run)
        assert found.ledger is not None
        steps = replace(found.ledger.steps, count=4)
        return replace(found, ledger=replace(found.ledger, window_s=4 * self.step_s, steps=steps))


def test_runs_are_lengthened_until_they_hold_the_steps_that_a_comparison_needs(tmp_path: Path) -> None:
    machine = SlowSteps([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8})
    found = fixed(tmp_path, machine, Options(budget_s=180.0, seconds=4.0))
    assert [trial.outcome for trial in found.tried] == ["kept"] and found.proof is not None


class SeldomCalls(Machine):
    """A function that is called every few seconds: calls are left out of a run that measures 15 s or more."""

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        found = super().run(setup, settings, deadline_s)
        assert setup.bounds.seconds is not None
        self.now_s += setup.bounds.seconds
        if "call_every" in settings and setup.bounds.seconds < 15.0:
            return TrialRun(REFUSED, "no call was left out", 5.0, run=found.run, acts_later=True)
        return replace(found, wall_s=5.0 + setup.bounds.seconds)


@pytest.mark.parametrize(("budget_s", "outcome"), [(400.0, "kept"), (40.0, "refused")])
def test_runs_are_doubled_until_calls_are_left_out(tmp_path: Path, budget_s: float, outcome: str) -> None:
    machine = SeldomCalls([remedy("validate_less", 2.0, call_every="a.py:evaluate:5")], {"call_every": 1.8})
    found = fixed(tmp_path, machine, Options(budget_s=budget_s, seconds=4.0))
    assert [trial.outcome for trial in found.tried] == [outcome]


def test_runs_that_turn_out_too_short_are_lengthened(tmp_path: Path) -> None:
    machine = SlowSteps([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8})
    slow = machine.run

    def slower_after_the_look(setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        found = slow(setup, settings, deadline_s)
        machine.step_s = 2.0
        return found

    machine.run = slower_after_the_look  # type: ignore[method-assign]
    machine.diagnose = lambda run: replace(Machine.diagnose(machine, run), ledger=ledger(8.0))  # type: ignore[method-assign]
    found = fixed(tmp_path, machine, Options(budget_s=600.0, seconds=8.0))
    assert [trial.outcome for trial in found.tried] == ["kept"]


def test_a_look_that_is_too_short_is_made_again_or_the_budget_named_that_would_do(tmp_path: Path) -> None:
    machine = SlowSteps([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8})
    machine.step_s = 5.0
    with pytest.raises(
        UsageError, match=r"--budget 1 min 40 s is too small: a step takes 5.0 s.*give at least 3m"
    ) as no:
        fixed(tmp_path, machine, Options(budget_s=100.0))
    named = parse_duration(str(no.value).rpartition(" ")[2])
    machine.now_s = 0.0
    assert fixed(tmp_path / "2", machine, Options(budget_s=3 * named)).tried


def test_a_run_without_a_remedy_that_fails_is_not_the_remedys_fault(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {})
    look = machine.run

    def fails_after_the_look(setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        return look(setup, settings) if not machine.calls else TrialRun(FAILED, "exit code 3", 1.0)

    machine.run = fails_after_the_look  # type: ignore[method-assign]
    found = fixed(tmp_path, machine)
    (trial,) = found.tried
    assert trial.outcome == "unmeasured" and trial.why == "the run without it failed: exit code 3"
    text = " ".join("\n".join(lines(found)).split())
    assert "not measured: do workers" in text and "Nothing was kept: no trial could be measured." in text
    assert "noise" not in text and "failed: do workers" not in text


def test_without_a_trial_nothing_is_said_of_noise_in_trials(tmp_path: Path) -> None:
    text = " ".join("\n".join(lines(fixed(tmp_path, Machine([], {})))).split())
    assert text.startswith("Nothing was tried, so nothing was measured besides the training as it is.")


def test_the_first_step_is_waited_for_as_long_as_the_user_says(tmp_path: Path) -> None:
    machine, waits = Machine([], {}), []
    look = machine.run

    def noted(setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        waits.append(setup.bounds.first_step_within_s)
        return look(setup, settings)

    machine.run = noted  # type: ignore[method-assign]
    fixed(tmp_path, machine, Options(first_step_within_s=300.0))
    assert waits == [300.0]


def test_a_plan_that_is_what_was_proved_is_not_shown_as_unmeasured(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8})
    machine.plans = (bundle("do workers"),)
    found = fixed(tmp_path, machine)
    command = "flatout apply --set num_workers=4 -- python train.py"
    text = "\n".join(lines(found, plans={"conservative": Export(command)}))
    assert text.count(command) == 1 and "not measured" not in text


def test_a_budget_without_room_for_a_proof_is_said_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine([remedy("workers", 3.0, num_workers=4)], {"num_workers": 3.0})
    fixing(tmp_path, machine, Options(budget_s=16.0), quiet=False).run()
    said = " ".join(capsys.readouterr().err.split())
    before, _, after = said.partition("--budget 16.0 s has no room for a proof: its 2 pairs of runs take 12.0 s")
    assert "trial:" not in before and "after the look 11.0 s are left. --budget 40s has room" in after
    fixing(tmp_path / "2", machine, Options(budget_s=300.0), quiet=False).run()
    assert "no room for a proof" not in capsys.readouterr().err


class Timed(Machine):
    """Runs take 2 s to start, and 8 s more with the remedy."""

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        found = super().run(setup, settings, deadline_s)
        wall_s = 2.0 + (setup.bounds.seconds or 0.0) + (8.0 if settings else 0.0) if len(self.calls) > 1 else 10.0
        self.now_s += wall_s - 5.0
        return replace(found, wall_s=wall_s)


def test_a_second_pair_that_does_not_fit_is_made_of_shorter_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Timed([remedy("workers", 3.0, num_workers=4)], {"num_workers": 3.0})
    found = fixing(tmp_path, machine, Options(budget_s=58.0), quiet=False).run()
    assert "for a second pair, each run measures 4." in capsys.readouterr().err
    assert found.settings == {"num_workers": 4} and found.proof is not None and found.proof.ratio.pairs == 2
    assert machine.now_s <= 58.0
    # Not where the user says how long a run measures.
    machine = Timed([remedy("workers", 3.0, num_workers=4)], {"num_workers": 3.0})
    (trial,) = fixed(tmp_path / "2", machine, Options(budget_s=58.0, seconds=8.0)).tried
    assert trial.outcome == "unconfirmed" and "in one pair, not proved: needs about" in trial.why


def test_the_proof_of_the_only_kept_remedy_counts_its_trial_too(tmp_path: Path) -> None:
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8})
    found = fixed(tmp_path, machine)
    assert found.proof is not None and found.proof.ratio.pairs == 4 and len(machine.calls) == 9


class Unsteady(Machine):
    """Rates with the remedy vary from run to run."""

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        if settings:
            self.factors = {"num_workers": (1.0, 1.0, 1.35, 0.95)[len(self.calls) % 4]}
        return super().run(setup, settings, deadline_s)


def test_a_gain_that_all_pairs_leave_undecided_is_not_called_no_gain(tmp_path: Path) -> None:
    found = fixed(tmp_path, Unsteady([remedy("workers", 3.0, num_workers=4)], {}))
    (trial,) = found.tried
    assert trial.outcome == "unconfirmed" and trial.ratio is not None and trial.ratio.pairs == 4
    assert trial.why.startswith("not decided: ") and "no gain" not in trial.why
    assert found.ended == "A gain was seen that 4 pairs of runs did not prove."
