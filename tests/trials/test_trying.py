"""The order of a try: look, rounds that share the runs without the candidates, halving, verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flatout.compare.ratio import Ratio
from flatout.errors import CommandError, Interrupted, UsageError
from flatout.measure.crowding import Contention
from flatout.report.trying import lines, to_dict
from flatout.runner import Bounds
from flatout.trials.candidates import Candidate
from flatout.trials.decide import ruled_out
from flatout.trials.isolation import NAMESPACE, Isolation
from flatout.trials.losses import LossCheck
from flatout.trials.outcome import FAILED, GUARDED, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.trial_run import LOG, TrialSetup
from flatout.trials.try_result import TryResult
from flatout.trials.trying import Trying, TryOptions
from flatout.trials.verdicts import _outcome
from tests.trials.made_runs import trial_run

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/try.schema.json").read_text("utf-8"))
COMMAND = ("python", "train.py")


class Machine:
    """Runs no command: each candidate is a variable X, and its factor follows from the value."""

    run_s = 10.0

    def __init__(self, factors: Mapping[str, Any]) -> None:
        self.factors, self.calls, self.now_s = factors, [], 0.0

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        name = setup.environment.get("X", "")
        self.calls.append(name)
        self.now_s += self.run_s
        made = self.factors.get(name, 1.0)
        made = made(len(self.calls)) if callable(made) else made
        if isinstance(made, BaseException):
            raise made
        if isinstance(made, TrialRun):
            (setup.folder / LOG).write_text("epoch 1\n  0%|  |\r 50%|# |\r100%|##|\nValueError: no\n\n")
            return made
        rate, losses = made if isinstance(made, tuple) else (made, [1.0] * 40)
        return trial_run(100.0 * rate + 0.1 * (len(self.calls) % 3), losses)


def tried(
    tmp_path: Path,
    machine: Machine,
    *names: str,
    budget_s: float = 1000.0,
    allow: str = "identical",
    settings: Mapping[str, Any] | None = None,
) -> TryResult:
    setup = TrialSetup(COMMAND, tmp_path, tmp_path / "runs", Bounds(), Isolation(NAMESPACE))
    candidates = [Candidate(f"--env X={name}", environment={"X": name}, settings=settings or {}) for name in names]
    trying = Trying(
        setup,
        TryOptions(allow, budget_s),
        candidates,
        ProgressLog(True),
        run_once=machine.run,
        clock=lambda: machine.now_s,
    )
    found = trying.run()
    # Whatever the outcome, it reads well.
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(to_dict(found))))
    assert max(map(len, lines(found))) <= 80
    return found


def test_a_faster_candidate_is_proved_in_two_pairs(tmp_path: Path) -> None:
    machine = Machine({"fast": 1.5})
    found = tried(tmp_path, machine, "fast")
    assert machine.calls == ["", "", "fast", "fast", ""]
    assert found.proved and found.best.outcome == "proved" and found.best.same_training
    assert lines(found)[0].startswith("Proved: 1.50x as fast")


@pytest.mark.parametrize(
    ("made", "outcome", "said"),
    [
        (0.5, "slower", "Slower: 0.50x"),
        (1.0, "no_gain", "Not proved: 1.00x"),
        ((2.0, [9.0] * 40), "differs", "Faster, 2.0x"),
        ((2.0, [1.0] * 20 + [math.nan] * 20), "diverged", "It breaks the training: the loss of step 21 is nan"),
        (TrialRun(FAILED, "the command failed: ValueError: no", 3.0), "failed", "Not proved: it breaks the training"),
        (TrialRun("oom", "out of memory", 3.0), "oom", "Not proved: it runs out of memory"),
        ((2.0, [1.0] * 5), "differs", "not checked: 5 losses"),
    ],
)
def test_what_is_not_proved_says_why(tmp_path: Path, made: Any, outcome: str, said: str) -> None:
    found = tried(tmp_path, Machine({"x": made}), "x")
    assert not found.proved and found.best.outcome == outcome
    assert said in " ".join(lines(found))


def test_pairs_that_differ_much_rule_nothing_out() -> None:
    losses = LossCheck(passed=True, text="")
    narrow, wide = Ratio(0.98, 0.93, 1.04, 2), Ratio(0.95, 0.6, 1.47, 2)
    assert _outcome(narrow, losses, "", diverged=False)[0] == "no_gain"
    outcome, why = _outcome(wide, losses, "", diverged=False)
    assert outcome == "unconfirmed" and "2 pairs of runs show no gain, and differ too much to rule it out" in why


def test_a_setting_that_leaves_calls_out_may_not_change_a_bit(tmp_path: Path) -> None:
    other = (2.0, [1.0] * 30 + [1.0001] * 10)
    assert tried(tmp_path, Machine({"x": other}), "x").proved
    exact = tried(tmp_path, Machine({"x": other}), "x", settings={"call_every": "train.py:log:10"})
    assert exact.best.outcome == "differs" and "loss 31 is another one" in exact.best.why


def test_other_processes_beside_the_runs_are_told(tmp_path: Path) -> None:
    assert tried(tmp_path, Machine({"x": 1.5}), "x").crowded == ""
    made = trial_run(150.0)
    assert made.speed is not None
    beside = replace(made, speed=replace(made.speed, contention=Contention(1.2, 1.0, 2)))
    found = tried(tmp_path, Machine({"": beside, "x": beside}), "x")
    assert "used 1.2 cores" in found.crowded and "used 1.2 cores" in " ".join(lines(found))


def test_a_gain_that_other_processes_alone_may_have_made_is_not_proved(tmp_path: Path) -> None:
    made = {name: trial_run(rate).speed for name, rate in (("", 100.0), ("x", 140.0))}
    runs = {
        name: replace(trial_run(speed.rate), speed=replace(speed, contention=Contention(cores, 1.0, 2)))
        for (name, speed), cores in zip(made.items(), (1.0, 0.5), strict=True)
        if speed is not None
    }
    found = tried(tmp_path, Machine(runs), "x")
    assert found.best.outcome == "unconfirmed" and not found.proved
    assert "which alone may account for 1.50x" in " ".join(" ".join(lines(found)).split())
    runs[""] = replace(runs[""], speed=replace(made[""], contention=Contention(0.5, 1.0, 2)))
    assert tried(tmp_path, Machine(runs), "x").proved


def test_a_loss_that_other_processes_alone_may_have_made_is_not_decided() -> None:
    assert ruled_out(Ratio(0.8, 0.7, 1.3, 2, uneven=0.9)) and not ruled_out(Ratio(0.8, 0.7, 1.3, 2, uneven=0.6))
    assert ruled_out(Ratio(0.8, 0.7, 0.9, 2, uneven=1.5)) and not ruled_out(Ratio(1.1, 0.7, 1.3, 2))


def test_a_diverging_or_failing_candidate_gets_one_pair_and_a_slower_one_two(tmp_path: Path) -> None:
    for made in (0.5, (2.0, [math.nan] * 40), TrialRun(FAILED, "no", 3.0)):
        machine = Machine({"x": made})
        tried(tmp_path, machine, "x")
        assert machine.calls == (["", "", "x", "x", ""] if made == 0.5 else ["", "", "x"])


def test_one_pair_alone_makes_nothing_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(ProgressLog, "say", lambda self, text: said.append(text))
    found = tried(tmp_path, Machine({"x": 0.5}), "x", budget_s=22.0)
    assert any(
        text.startswith("the budget may have room for one pair of runs only, and a proof needs two") for text in said
    )
    assert found.best.outcome == "unconfirmed" and "one pair of runs only" in found.best.why


def test_the_last_lines_of_a_failure_are_shown(tmp_path: Path) -> None:
    found = tried(tmp_path, Machine({"x": TrialRun(FAILED, "no", 3.0)}), "x")
    assert found.best.printed == ("epoch 1", "100%|##|", "ValueError: no")
    assert "    ValueError: no" in lines(found)


def test_several_share_the_runs_without_them_and_the_slower_half_is_left_out(tmp_path: Path) -> None:
    machine = Machine({"a": 1.2, "b": 2.0, "c": 1.6, "d": 1.1})
    found = tried(tmp_path, machine, "a", "b", "c", "d")
    assert machine.calls == ["", "", "a", "b", "c", "d", "c", "b", ""]
    assert [one.title[-1] for one in found.candidates] == ["b", "c", "a", "d"]
    assert [one.outcome for one in found.candidates] == ["proved", "proved", "unconfirmed", "unconfirmed"]
    assert "--env X=b was faster" in found.candidates[2].stopped
    assert "  4    1.10x" in "\n".join(lines(found))


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    found = tried(tmp_path, Machine({"bad": TrialRun(FAILED, "no", 3.0), "good": 1.5}), "bad", "good")
    assert [one.outcome for one in found.candidates] == ["proved", "failed"]
    assert "    ValueError: no" in lines(found)


def test_lengths_that_count_as_samples_are_no_other_training_where_the_losses_are_the_same(tmp_path: Path) -> None:
    """Of batches with the time first the mean depends on how many steps a run had time for."""

    class Longer(Machine):
        def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
            made = super().run(setup, settings)
            if setup.environment and made.speed is not None:
                object.__setattr__(made.speed, "batch", 8.2)
            return made

    assert tried(tmp_path, Longer({"x": 2.0}), "x").proved


def test_more_samples_in_a_step_are_another_training_unless_allowed(tmp_path: Path) -> None:
    class Larger(Machine):
        def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
            made = super().run(setup, settings)
            if setup.environment and made.speed is not None:
                object.__setattr__(made.speed, "batch", 64.0)
            return made

    found = tried(tmp_path, Larger({"x": 2.0}), "x")
    assert found.best.outcome == "differs" and "64 samples instead of 8" in found.best.why
    assert tried(tmp_path, Larger({"x": 2.0}), "x", allow="optimisation").proved


def test_a_lower_rate_of_other_batches_is_not_called_slower(tmp_path: Path) -> None:
    class Fewer(Machine):
        def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
            made = super().run(setup, settings)
            if setup.environment and made.speed is not None:
                object.__setattr__(made.speed, "batch", 2.0)
            return made

    found = tried(tmp_path, Fewer({"x": 0.5}), "x")
    assert found.best.outcome == "differs" and "2 samples instead of 8" in found.best.why


@pytest.mark.parametrize(("guessed", "outcome"), [(True, "proved"), (False, "differs")])
def test_steps_count_where_only_the_losses_say_which_samples_they_have(
    tmp_path: Path, guessed: bool, outcome: str
) -> None:
    """As where a change calls one of two networks without gradients: half as many samples are seen, of the same."""

    class Halved(Machine):
        def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
            made = super().run(setup, settings)
            speed = made.speed
            assert speed is not None
            changes: dict[str, Any] = {"guessed": guessed, "steps_rate": speed.rate / 8}
            if setup.environment:
                changes.update(rate=speed.rate / 2, batch=4.0)
            return replace(made, speed=replace(speed, **changes))

    found = tried(tmp_path, Halved({"x": 1.5}), "x")
    assert found.best.outcome == outcome
    if guessed:
        assert found.best.ratio is not None and found.best.ratio.factor == pytest.approx(1.5, rel=0.01)


def test_a_budget_for_one_pair_confirms_nothing(tmp_path: Path) -> None:
    found = tried(tmp_path, Machine({"x": 2.0}), "x", budget_s=35.0)
    assert found.best.outcome == "unconfirmed" and "budget" in found.ended and not found.proved


def test_a_budget_for_less_than_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too small for one pair of runs") as refused:
        tried(tmp_path, Machine({}), "x", budget_s=15.0)
    assert "give at least" in str(refused.value)
    over = Machine({"": TrialRun(GUARDED, "the budget is over", 10.0)})
    with pytest.raises(UsageError, match=r"--budget 3.0 s is too small: it was over before the first look had ended"):
        tried(tmp_path, over, "x", budget_s=3.0)


def test_candidates_that_no_run_is_left_for_are_left_out(tmp_path: Path) -> None:
    machine = Machine({"x": 2.0, "y": 3.0, "z": 4.0})
    machine.run_s = 4.0
    found = tried(tmp_path, machine, "x", "y", "z", budget_s=13.0)
    first, *others = found.candidates
    assert (first.title, first.outcome) == ("--env X=x", "unconfirmed")
    assert {one.outcome for one in others} == {"unmeasured"}
    assert "the budget had no run left for it; give at least" in others[-1].why


def test_the_runs_before_the_budget_ends_count(tmp_path: Path) -> None:
    found = tried(tmp_path, Machine({"x": 2.0, "y": 3.0, "z": 4.0}), "x", "y", "z", budget_s=38.0)
    assert [one.outcome for one in found.candidates] == ["unconfirmed", "unconfirmed", "unmeasured"]
    assert found.candidates[0].title == "--env X=y" and "is used up" in found.ended


def test_an_unchanged_command_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot be measured: no; it printed: ValueError: no"):
        tried(tmp_path, Machine({"": TrialRun(FAILED, "no", 3.0)}), "x")


def test_an_unchanged_command_that_fails_later_leaves_nothing_said(tmp_path: Path) -> None:
    once = Machine({"": lambda call: 1.0 if call < 2 else TrialRun(FAILED, "disk gone", 3.0)})
    found = tried(tmp_path, once, "x")
    assert found.best.outcome == "unmeasured" and "disk gone" in found.best.why
    twice = Machine({"x": 2.0, "": lambda call: 1.0 if call < 4 else TrialRun(FAILED, "disk gone", 3.0)})
    assert tried(tmp_path, twice, "x").best.outcome == "unconfirmed"


def test_ctrl_c_shows_what_was_measured(tmp_path: Path) -> None:
    found = tried(tmp_path, Machine({"x": lambda call: 2.0 if call < 4 else Interrupted()}), "x")
    assert found.interrupted is not None and found.best.outcome == "unconfirmed"
    with pytest.raises(Interrupted) as nothing:
        tried(tmp_path, Machine({"": Interrupted()}), "x")
    assert nothing.value.lost.startswith("ended by Ctrl-C before the first run was complete")


def test_a_candidate_that_was_left_out_comes_back_when_it_is_ahead_again(tmp_path: Path) -> None:
    def lucky(call: int) -> float:
        return 1.6 if call < 7 else 1.05  # in the first round alone

    machine = Machine({"lucky": lucky, "luckier": lucky, "steady": 1.4, "none": 1.0})
    found = tried(tmp_path, machine, "lucky", "luckier", "steady", "none")
    assert machine.calls[1:6] == ["", "lucky", "luckier", "steady", "none"] and "steady" not in machine.calls[6:9]
    assert found.best.title == "--env X=steady" and found.best.outcome == "proved"
    assert [one.outcome for one in found.candidates if one.title == "--env X=none"] == ["unconfirmed"]
