"""What a fix tries, besides what its look proposes, and what it lists as not tried."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.results import Diagnosis, Gain
from flatout.trials.fix_options import Options
from tests.trials.fix_machine import Machine, fixed, fixing, remedy


@pytest.mark.parametrize("machine_name", ["2 cores", "8 cores"])
def test_what_a_profile_on_this_machine_proposed_is_tried_too(tmp_path: Path, machine_name: str) -> None:
    earlier = (remedy("threads", 5.0, threads=1), remedy("by_hand", 1.5))
    machine = Machine([remedy("workers", 2.0, num_workers=4)], {"num_workers": 1.8, "threads": 1.5})
    profile: Any = SimpleNamespace(id="profile", processes=())

    def diagnose(run: Any, refuted: Collection[str] = ()) -> Diagnosis:
        made = replace(machine.diagnose(run), machine="2 cores")
        return replace(made, remedies=earlier, machine=machine_name) if run is profile else made

    fix = fixing(tmp_path, machine, profiled=profile)
    fix._diagnose = diagnose
    found = fix.run()
    same = machine_name == "2 cores"
    assert [trial.remedy for trial in found.tried] == ["threads"] * same + ["workers"]
    assert [title for title, _ in found.untried] == ["do by_hand, predicted 1.50x (1.35-1.65)"] * same


def test_a_sure_gain_is_tried_before_a_larger_one_that_may_be_none(tmp_path: Path) -> None:
    unsure = replace(remedy("autocast", 1.43, threads=1), gain=Gain(1.43, 1.0, 2.64))
    sure = replace(remedy("workers", 1.32, num_workers=4), gain=Gain(1.32, 1.09, 1.85))
    found = fixed(tmp_path, Machine([unsure, sure], {"num_workers": 1.3}))
    assert [trial.remedy for trial in found.tried] == ["workers", "autocast"]


def test_what_has_a_reason_not_to_be_tried_is_not_said_to_lack_time(tmp_path: Path) -> None:
    found = remedy("workers", 2.0, num_workers=4)
    choice = fixing(tmp_path, Machine([found], {})).choice
    diagnosis = Machine([found], {}).diagnose(None)
    assert choice.eligible(diagnosis, [], {}) == [found]
    choice.untried[found.title] = (found.title, "the first pass takes too long")
    choice.note_untried([], {})
    assert list(choice.untried.values()) == [(found.title, "the first pass takes too long")]


def test_without_time_each_remedy_that_could_have_been_tried_is_listed(tmp_path: Path) -> None:
    remedies = [remedy("workers", 2.0, num_workers=4), remedy("threads", 1.6, threads=1), remedy("prefetch", 1.3)]
    remedies[2] = replace(remedies[2], settings={"prefetch_factor": 4})
    machine = Machine(remedies, {"num_workers": 1.8})
    found = fixed(tmp_path, machine, Options(budget_s=45.0))
    assert [trial.remedy for trial in found.tried] == ["workers"]
    assert [why for _, why in found.untried] == ["no time left in the budget"] * 2


def test_what_a_trial_cannot_tell_from_noise_is_listed_in_one_line(tmp_path: Path) -> None:
    remedies = [remedy("workers", 2.0, num_workers=4)]
    remedies += [replace(remedy(name, 1.01, threads=1), gain=Gain(1.01, 0.97, 1.04)) for name in ("a", "b")]
    found = fixed(tmp_path, Machine(remedies, {"num_workers": 1.8}))
    assert [trial.remedy for trial in found.tried] == ["workers"]
    ((title, why),) = found.untried
    assert title == "do a, predicted 1.01x (0.97-1.04); do b, predicted 1.01x (0.97-1.04)"
    assert why == "less than a trial could distinguish from noise"
