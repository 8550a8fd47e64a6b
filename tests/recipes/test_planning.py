"""Deadlines, folds, patience, chance, learning rates: rules on made-up figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flatout.errors import UsageError
from flatout.recipes.chance import at_chance
from flatout.recipes.deadline import Deadline, feasibility, plan
from flatout.recipes.early_stopping import Patience, share_after_best
from flatout.recipes.fitting import smaller_batch
from flatout.recipes.folds import stratified_folds
from flatout.recipes.image_sections import Training
from flatout.recipes.interfaces import EpochRecord
from flatout.recipes.lr_range import smooth, suggest
from flatout.recipes.optimization import LearningRate, scaled_lr
from flatout.recipes.resolved import late_average
from flatout.recipes.schema import Recipe
from flatout.recipes.sections import Optimizer, Schedule


def record(epoch: int, *, train_s: float = 1.0, validation_s: float = 0.5, **metrics: float) -> EpochRecord:
    named = {name.replace("_", "/"): value for name, value in metrics.items()}
    return EpochRecord(
        epoch=epoch,
        steps=1,
        samples=1,
        metrics=named,
        train_s=train_s,
        wait_s=0.0,
        validation_s=validation_s,
        checkpoint_s=0.0,
    )


def test_thirteen_epochs_in_667_seconds_mean_150_take_over_two_hours() -> None:
    epoch_s = 667 / 13
    made = plan(660, epoch_s=epoch_s, fold_overhead_s=5, epochs=30, folds=5)
    said = feasibility(epoch_s, 660, 30, 5, made)
    assert "2 h 8 min" in said and "5 × 30 epochs" in said
    assert made.folds == 1 and made.epochs == 12 and made.fits
    assert "8.0% of the work" in said


@given(
    left=st.floats(0, 5000),
    epoch=st.floats(0.1, 200),
    overhead=st.floats(0, 30),
    epochs=st.integers(1, 40),
    folds=st.integers(1, 6),
    done=st.integers(0, 5),
    begun=st.integers(0, 40),
)
def test_a_plan_never_needs_more_than_is_left_and_never_takes_back_what_is_done(
    left: float, epoch: float, overhead: float, epochs: int, folds: int, done: int, begun: int
) -> None:
    done, begun = min(done, folds - 1), min(begun, epochs)
    made = plan(
        left, epoch_s=epoch, fold_overhead_s=overhead, epochs=epochs, folds=folds, folds_done=done, epochs_done=begun
    )
    assert done < made.folds <= folds and 1 <= made.epochs <= epochs
    assert not made.fits or made.needed_s <= left + 1e-6
    # Folds are dropped only once epochs cannot be dropped any further.
    if made.folds < folds and made.fits and made.epochs > begun:
        least = max(1, round(epochs / 3))
        more = (folds - done - 1) * (overhead + least * epoch) + max(least - begun, 0) * epoch
        assert more > left or made.folds == folds


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@settings(deadline=None)
@example(limit=30.0, step=0.6875, steps=30, after=5.0, epochs=1, folds=1, start=4.0)
@example(limit=30.0, step=0.0625, steps=2, after=2.0, epochs=1, folds=5, start=3.5)
@given(
    limit=st.floats(30, 2000),
    step=st.floats(0.01, 3),
    steps=st.integers(2, 60),
    after=st.floats(0.01, 5),
    epochs=st.integers(1, 30),
    folds=st.integers(1, 5),
    start=st.floats(0, 4),
)
def test_when_the_times_hold_a_training_ends_before_its_deadline(
    limit: float, step: float, steps: int, after: float, epochs: int, folds: int, start: float
) -> None:
    clock = Clock()
    deadline = Deadline(limit, epochs=epochs, folds=folds, began=0.0, clock=clock)
    predict_s = min(0.5, after)  # no longer than a validation, which is what is kept back for the first one
    trained = 0
    unknown = 0.0
    for fold in range(folds):
        if fold and not deadline.room_for_a_fold():
            break
        clock.now += start
        deadline.fit_begins()
        for epoch in range(epochs):
            begun, why = clock.now, None
            for number in range(steps):
                clock.now += step
                why = deadline.after_step(epoch, number)
                if why:
                    break
            # In the first epoch, nothing was validated or predicted yet that could be kept back.
            unknown = step + after + predict_s if not fold and not epoch else 0.0
            took = clock.now - begun
            clock.now += after
            ended = deadline.after_epoch(record(epoch, train_s=took, validation_s=after))
            if why or ended:
                break
        trained += 1
        clock.now += predict_s
        deadline.measured_prediction(predict_s)
        deadline.fold_ended()
    assert trained >= 1
    assert clock.now <= limit + unknown + 1e-6


def test_time_used_before_a_resume_counts(tmp_path: Path) -> None:
    clock = Clock()
    first = Deadline(100, epochs=9, began=0.0, clock=clock, file=tmp_path / "deadline.json")
    clock.now = 40.0
    first.after_epoch(record(0))
    clock.now = 1000.0
    second = Deadline(100, epochs=9, began=1000.0, clock=clock, file=tmp_path / "deadline.json", resume=True)
    assert second.left_s == pytest.approx(100 - 2 - 40)
    clock.now = 1040.0
    second.after_epoch(record(1))
    kept = json.loads((tmp_path / "deadline.json").read_text())
    assert [plan["epochs_done"] for plan in kept["plans"]] == [1, 2] and kept["limit_s"] == 100
    clock.now = 1000.0
    fresh = Deadline(100, epochs=9, began=1000.0, clock=clock, file=tmp_path / "deadline.json")
    assert fresh.left_s == pytest.approx(98)


def test_folds_are_stratified_disjoint_and_repeat() -> None:
    labels = [0] * 23 + [1] * 10 + [2] * 17
    folds = stratified_folds(labels, 5, 42)
    assert sorted(place for fold in folds for place in fold) == list(range(50))
    assert {len(fold) for fold in folds} == {10}
    for label in range(3):
        counts = [sum(labels[place] == label for place in fold) for fold in folds]
        assert max(counts) - min(counts) <= 1
    assert folds == stratified_folds(labels, 5, 42) != stratified_folds(labels, 5, 43)
    with pytest.raises(UsageError, match="5 images of each class"):
        stratified_folds([0, 0, 0, 0, 0, 1], 5, 0)


def test_patience_ends_with_the_best_epoch_named() -> None:
    patience = Patience("val/acc1", 2, 0.0, 30)
    said = [patience.after_epoch(record(n, val_acc1=score)) for n, score in enumerate((0.1, 0.5, 0.4, 0.45))]
    assert said[:3] == [None] * 3
    assert said[3] == "no better val/acc1 than 0.5 of epoch 2 for 2 epochs"
    losses = [record(0, val_loss=1.0), record(1, val_loss=0.5), record(2, val_loss=0.7), record(3, val_loss=0.9)]
    assert share_after_best(losses, "val/loss") == 0.5


def test_a_run_that_learns_while_validation_guesses_is_flagged_with_its_numbers() -> None:
    plain = Training(label_smoothing=0.0)

    def judged(training: Training = plain, steps: int = 500, epochs: int = 2, **metrics: float) -> str | None:
        one = replace(record(0, **metrics), steps=steps)
        return at_chance([replace(one, epoch=epoch) for epoch in range(epochs)], 100, training)

    said = judged(train_loss=4.24, val_loss=4.945, val_acc1=0.012)
    assert said is not None and "4.24" in said and "4.61" in said and "1.2%" in said and "class indices" in said
    assert judged(train_loss=4.24, val_loss=4.3, val_acc1=0.06) is None  # validates
    assert judged(train_loss=4.6, val_loss=4.945, val_acc1=0.012) is None  # does not learn yet
    assert judged(train_loss=4.24, val_loss=4.945, val_acc1=0.012, epochs=1) is None  # too early to say
    smoothed = Training(label_smoothing=0.1)
    assert judged(smoothed, train_loss=4.5, val_loss=4.9, val_acc1=0.01) is None


def test_young_batch_statistics_and_averages_are_no_validation_at_chance() -> None:
    # As measured in healthy runs of 5 steps an epoch: they validate at chance at first, with an enormous loss.
    young = [replace(record(n, train_loss=1.2, val_loss=85.0, val_acc1=0.125), steps=5) for n in range(4)]
    assert at_chance(young, 8, Training(label_smoothing=0.0)) is None
    old = [replace(one, steps=200) for one in young]
    assert at_chance(old, 8, Training(label_smoothing=0.0)) is not None
    assert at_chance(old, 8, Training(label_smoothing=0.0, ema_decay=0.9999)) is None
    recovered = [*old, replace(record(4, train_loss=1.0, val_loss=0.5, val_acc1=0.9), steps=200)]
    assert at_chance(recovered, 8, Training(label_smoothing=0.0)) is None


def test_learning_rates_follow_the_batch_and_the_cosine() -> None:
    optimizer = Optimizer(lr=0.5, lr_batch_size=256)
    assert scaled_lr(optimizer, 384) == (0.75, "0.5 × 384/256")
    assert scaled_lr(optimizer.model_copy(update={"lr_scaling": "sqrt"}), 1024)[0] == 1.0
    assert scaled_lr(optimizer.model_copy(update={"lr_scaling": "off"}), 1024)[0] == 0.5


def rates(schedule: Schedule, progress: Sequence[float], planned: float = 90) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    rate = LearningRate(optimizer, schedule, 2.0, planned)
    found = []
    for done in progress:
        rate.set(done)
        found.append(optimizer.param_groups[0]["lr"] / 2)
    return found


def test_the_learning_rate_follows_the_schedule_of_a_name() -> None:
    assert rates(Schedule(), [0, 2.5, 5, 47.5]) == pytest.approx([0.001, 0.5005, 1.0, 0.5])
    assert rates(Schedule(final_lr_share=0.1), [90]) == pytest.approx([0.1])
    assert rates(Schedule(warmup_epochs=0), [30, 59.9], planned=60) == pytest.approx([0.5, 0.0], abs=1e-4)
    steps = Schedule(name="step", warmup_epochs=0, decay_epochs=2, decay_rate=0.5)
    assert rates(steps, [1.9, 2, 5]) == pytest.approx([1, 0.5, 0.25])
    several = Schedule(name="multistep", warmup_epochs=0, milestones=(1, 3))
    assert rates(several, [0.9, 1, 3.5]) == pytest.approx([1, 0.1, 0.01])
    cycles = Schedule(warmup_epochs=2, cycles=3, cycle_growth=2, cycle_decay=0.5)  # of 1, 2 and 4 epochs
    assert rates(cycles, [2, 2.5, 3, 4, 5, 7, 9], planned=9) == pytest.approx([1, 0.5, 0.5, 0.25, 0.25, 0.125, 0])
    cooled = Schedule(warmup_epochs=0, cooldown_epochs=4, final_lr_share=0.1)
    assert rates(cooled, [0, 3, 6, 9], planned=10) == pytest.approx([1, 0.55, 0.1, 0.1])
    assert rates(Schedule(warmup_epochs=0, k_decay=2), [45]) == pytest.approx([0.8536], abs=1e-4)
    stable = Schedule(name="wsd", warmup_epochs=2, decay_share=0.5)
    assert rates(stable, [1, 2, 6, 7, 10], planned=10) == pytest.approx([0.5005, 1, 1, 0.5, 0])
    assert rates(Schedule(name="rsqrt", warmup_epochs=1), [1, 4], planned=90) == pytest.approx([1, 0.5])
    shortened = Schedule(name="wsd", warmup_epochs=5)  # by a deadline
    assert rates(shortened, [1], planned=2) == pytest.approx([0.2008])
    assert rates(Schedule(name="constant", warmup_epochs=2), [1, 2, 80]) == pytest.approx([0.5005, 1, 1])
    for name in ("tanh", "poly"):
        begin, middle, end = rates(Schedule(name=name, warmup_epochs=0, decay_rate=1.0), [0, 45, 89.9])
        assert begin > 0.98 and 0.3 < middle < 0.99 and end < 0.1


def test_batches_shrink_by_halves_and_three_quarters() -> None:
    sizes, size = [], 512
    while size:
        sizes.append(size)
        size = smaller_batch(size)
    assert sizes == [512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1]


def test_a_range_test_suggests_the_steepest_fall_or_says_why_not() -> None:
    lrs = [1e-5 * 10 ** (6 * n / 99) for n in range(100)]
    logs = [math.log10(lr) for lr in lrs]
    falling = [2.3 - 1.5 / (1 + math.exp(-4 * (log + 2.5))) + max(0.0, 5 * (log + 0.5)) for log in logs]
    rate, why = suggest(lrs, falling, falling)
    assert rate is not None and 1e-3 < rate < 1e-2 and "most steeply" in why
    flat = [2.3] * 100
    assert suggest(lrs, flat, flat)[0] is None and "does not fall" in suggest(lrs, flat, flat)[1]
    assert "diverged after 10 steps" in suggest(lrs[:10], flat[:10], flat[:10])[1]
    assert smooth([1.0] * 5) == pytest.approx([1.0] * 5)


def test_an_average_of_the_weights_that_is_longer_than_the_training_is_a_note() -> None:
    def note(**training: object) -> str | None:
        made = Recipe(training=Training(epochs=9, **training))  # type: ignore[arg-type]
        return late_average(made, 3)

    said = note(ema_decay=0.9998)
    assert said is not None and "after all 27 steps 99.5% of the averaged weights" in said
    assert "training.ema_decay=0.843" in said  # 0.843^27 = 0.01
    assert note() is None and note(ema_decay=0.9) is None and note(ema_decay=0.9998, ema_warmup=True) is None
