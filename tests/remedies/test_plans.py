"""Plans bundle remedies by what they may change, and predict the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.predict.pipeline import Change
from flatout.predict.rate_model import fit
from flatout.remedies.plans import bundle, with_overlaps
from flatout.remedies.proposal import Proposal
from flatout.results import Gain, Remedy
from tests.diagnose.views import healthy, starved


def remedy(id: str, semantic_class: str, risk: str, memory: int | None = 0) -> Remedy:
    return Remedy(id, "c", id, semantic_class, risk, Gain(1.5, 1.4, 1.6), memory, "how", "basis", {id: 1})


def proposal(change: Change) -> Proposal:
    return Proposal(title="", change=change, how="", basis="", memory_bytes=0)


def test_each_plan_holds_the_one_before_and_no_plan_repeats_another() -> None:
    view = starved()
    model = fit(view)
    assert model is not None
    found = [
        (remedy("workers", "identical", "low", 100), proposal(Change(num_workers=8))),
        (remedy("half", "numerics", "medium", None), proposal(Change(step_removed_s=0.001))),
        (remedy("by hand", "identical", "low"), proposal(Change(num_workers=4))),
    ]
    found[2] = (Remedy(**{**vars(found[2][0]), "settings": {}}), found[2][1])
    plans = bundle(model, found)
    assert [plan.name for plan in plans] == ["conservative", "moderate"]
    assert plans[0].settings == {"workers": 1} and plans[0].memory_bytes == 100 and plans[0].risk == "low"
    assert (
        plans[1].settings == {"workers": 1, "half": 1} and plans[1].memory_bytes is None and plans[1].risk == "medium"
    )
    assert plans[0].gain == model.gain(Change(num_workers=8), Change(num_workers=8), Change(num_workers=8))
    assert plans[1].gain.predicted >= plans[0].gain.predicted


def test_two_remedies_for_one_cause_are_not_counted_twice() -> None:
    model = fit(starved())
    assert model is not None
    change = Change(num_workers=8)
    twice = [(remedy(name, "identical", "low"), proposal(change)) for name in ("a", "b")]
    assert bundle(model, twice)[0].gain.predicted == model.factor(change)


def test_of_two_ways_to_do_one_thing_a_plan_holds_the_better() -> None:
    model = fit(healthy())
    assert model is not None
    found = [
        (remedy(name, "identical", "low"), proposal(Change(step_removed_s=seconds)))
        for name, seconds in (("huge_pages", 0.003), ("memory_kept", 0.002), ("other", 0.001))
    ]
    assert bundle(model, found)[0].remedies == ("huge_pages", "other")
    assert bundle(model, [found[1], found[0], found[2]])[0].remedies == ("memory_kept", "other")


@pytest.mark.parametrize(
    ("name", "values", "both"),
    [
        ("compile", ("default", "reduce-overhead"), False),
        ("start_method", ("fork", "fork"), True),
        ("debugging_off", ("anomaly_mode", "deterministic"), True),
    ],
)
def test_a_choice_has_one_value_in_a_plan_unless_it_takes_several(
    name: str, values: tuple[str, str], both: bool
) -> None:
    model = fit(healthy())
    assert model is not None
    found = [
        (
            replace(remedy(value + str(place), "identical", "low"), settings={name: value}),
            proposal(Change(step_removed_s=s)),
        )
        for place, (value, s) in enumerate(zip(values, (0.003, 0.002), strict=True))
    ]
    assert len(bundle(model, found)[0].remedies) == 1 + both


def test_what_only_the_users_own_option_can_change_is_in_no_plan() -> None:
    model = fit(healthy())
    assert model is not None
    found = [
        (remedy(name, "identical", "low"), proposal(Change(step_removed_s=0.002)))
        for name in ("validation_factor", "a")
    ]
    assert [plan.remedies for plan in bundle(model, found)] == [("a",)]


def test_changes_one_after_the_other() -> None:
    both = Change(num_workers=2, fetch_cpu_factor=0.5, between_steps_removed_s=1.0, helper_cpu_factor=0.5).and_then(
        Change(num_workers=4, fetch_cpu_factor=0.5, between_steps_removed_s=2.0, lock_removed=True)
    )
    assert both == Change(
        num_workers=4, fetch_cpu_factor=0.25, between_steps_removed_s=3.0, helper_cpu_factor=0.5, lock_removed=True
    )
    assert Change(num_workers=3).and_then(Change()) == Change(num_workers=3)


def test_what_adds_nothing_to_those_before_it_is_in_no_plan() -> None:
    model = fit(starved())
    assert model is not None
    found = [
        (remedy("workers", "identical", "low"), proposal(Change(num_workers=2))),
        (remedy("step", "identical", "low"), proposal(Change(step_removed_s=0.005))),  # still waits for batches
    ]
    assert [plan.remedies for plan in bundle(model, found)] == [("workers",)]


def test_a_remedy_for_which_one_before_it_leaves_nothing_says_so() -> None:
    model = fit(starved())
    assert model is not None
    found = [
        (remedy("workers", "identical", "low"), proposal(Change(num_workers=8))),
        (remedy("fewer", "identical", "low"), proposal(Change(num_workers=4))),
        (remedy("unmodelled", "identical", "low"), proposal(Change())),
        (remedy("memory_kept", "identical", "low"), proposal(Change(step_removed_s=0.003))),
        (remedy("huge_pages", "identical", "low"), proposal(Change(step_removed_s=0.002))),
    ]
    marked = {one.id: one.adds_nothing_to for one, _ in with_overlaps(model, found)}
    assert marked == {
        "workers": "",
        "fewer": "workers",
        "unmodelled": "",
        "memory_kept": "",
        "huge_pages": "memory_kept",
    }


def test_what_several_remedies_take_out_of_a_step_is_never_more_than_the_step() -> None:
    model = fit(healthy())
    assert model is not None
    step_s = model.now.step_s
    found = [(remedy(name, "identical", "low"), proposal(Change(step_removed_s=0.6 * step_s))) for name in "ab"]
    together = Change().and_then(found[0][1].change, step_s).and_then(found[1][1].change, step_s)
    assert together.step_removed_s == pytest.approx(0.84 * step_s)
    assert bundle(model, found)[0].gain.predicted == pytest.approx(model.factor(together))


def test_a_plan_makes_batches_larger_in_one_way() -> None:
    model = fit(healthy())
    assert model is not None
    accumulate = replace(remedy("a", "optimisation", "medium"), settings={"accumulate": 2})
    bigger = replace(remedy("b", "optimisation", "medium"), settings={"batch_size": 2, "lr_factor": 1.41})
    change = proposal(Change(step_removed_s=0.001))
    assert bundle(model, [(accumulate, change), (bigger, change)])[0].settings == {"accumulate": 2}
