#!/usr/bin/env python3
"""How well ``flatout plan`` predicts the end of a training from its first tenth.

Each recorded training (record.py) is cut off when a tenth of its steps is done, and its end is predicted from that as
for any recording. What no recording shows (how much later steps differ, how long an unseen validation takes) is learnt
from the other trainings: the one that is predicted is left out.

Usage: python benchmarks/plans/run.py [--parts 0.1 ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))
sys.path.insert(0, str(HERE))

from conditions import head  # noqa: E402
from record import TRAININGS, unpacked  # noqa: E402

from flatout.errors import UsageError  # noqa: E402
from flatout.plans.costs import Costs, measure_costs  # noqa: E402
from flatout.plans.drawing import RECORDED, Unmeasured, draw  # noqa: E402
from flatout.plans.timeline import Timeline  # noqa: E402

GOAL_ERROR, GOAL_HELD, GOAL_TRAININGS = 0.05, (0.85, 0.95), 30
NORMAL90 = 1.645
SHARES = 9  # quantiles kept of what is not measured


@dataclass(frozen=True)
class Training:
    """A recorded training, and what a recording of its beginning measures."""

    name: str
    whole: Timeline
    epochs: int
    queued: float | None
    seen: Costs

    @property
    def true_s(self) -> float:
        """When it ended."""
        return self.whole.finish_s or math.nan

    @property
    def made(self) -> int:
        """Epochs that it made: fewer than it was to make if it stopped early."""
        return int(self.whole.epoch[-1]) + 1


@dataclass(frozen=True)
class Score:
    """A prediction beside what came."""

    training: Training
    expected_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        """Relative: above 0, it was predicted to end later than it did."""
        return self.expected_s / self.training.true_s - 1

    @property
    def held(self) -> bool:
        """The 90% interval holds the end."""
        return self.low_s <= self.training.true_s <= self.high_s


def main() -> None:
    """Predict, score, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=float, nargs="+", default=[0.1, 0.05, 0.25, 0.5], help="of the steps, seen")
    parser.add_argument("--trainings", type=Path, default=TRAININGS)
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    scored = {part: [*score(load(options.trainings, part))] for part in options.parts}
    lines = page(scored, learn(load(options.trainings, options.parts[0])))
    text = "\n".join(lines) + "\n"
    if options.output:
        options.output.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)


def load(file: Path, part: float) -> list[Training]:
    """Each training as a recording of the first ``part`` of its steps shows it."""
    found = dict(np.load(file))
    trainings = []
    for name in sorted({key.split("/")[0] for key in found}):
        whole, kept = unpacked(found, name)
        steps = int(np.bincount(whole.epoch)[0])
        cut = whole.until(float(whole.end_s[max(math.ceil(part * len(whole)), 6) - 1]))
        try:
            seen = measure_costs(cut, steps)
        except UsageError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        trainings.append(Training(name, whole, int(kept["epochs"] or 0), kept["queued"], seen))
    return trainings


def learn(trainings: list[Training]) -> Unmeasured:
    """What these trainings had in the parts that a recording of their beginning does not show.

    The drift is the most likely one, then scaled so that 90% of these trainings lie in its 90% interval.
    """
    whole = [measure_costs(one.whole) for one in trainings]
    drifts = np.array([math.log(costs.step_s / one.seen.step_s) for one, costs in zip(trainings, whole, strict=True)])
    scatters = np.array([scatter(one.seen) for one in trainings])
    drawn = scatters / np.sqrt([len(one.seen.blocks_s) for one in trainings])  # what the bootstrap itself adds
    best, least = (0.0, 0.0), math.inf
    for constant in np.geomspace(0.005, 0.3, 40):
        for follows in np.linspace(0.0, 2.0, 41):
            variances = drawn**2 + (constant + follows * scatters) ** 2
            unlikely = float((np.log(variances) + drifts**2 / variances).sum())
            if unlikely < least:
                best, least = (float(constant), float(follows)), unlikely
    deviations = np.sqrt(drawn**2 + (best[0] + best[1] * scatters) ** 2)
    scale = float(np.quantile(np.abs(drifts) / deviations, 0.9)) / NORMAL90
    shares = [float(one.between_s.mean()) / (one.steps * one.step_s) for one in whole if len(one.between_s)]
    quantiles = np.quantile(shares, np.linspace(0.0, 1.0, SHARES))
    return Unmeasured(
        drift=float(f"{scale * best[0]:.2g}"),
        follows=float(f"{scale * best[1]:.2g}"),
        between=tuple(float(f"{value:.2g}") for value in quantiles),
    )


def scatter(costs: Costs) -> float:
    """Relative standard deviation of the blocks, as ``draw`` sees it."""
    return float(costs.blocks_s.std(ddof=1) / costs.blocks_s.mean()) if len(costs.blocks_s) > 1 else 0.1


def score(trainings: list[Training]) -> list[Score]:
    """Predict each training with what was learnt from the others."""
    scores = []
    for one in trainings:
        others = learn([other for other in trainings if other is not one])
        ends_s = draw(one.seen, others).end_s(1, one.made)
        low_s, expected_s, high_s = (float(end_s) for end_s in np.quantile(ends_s, (0.05, 0.5, 0.95)))
        scores.append(Score(one, expected_s, low_s, high_s))
    return scores


def page(scored: dict[float, list[Score]], learnt: Unmeasured) -> list[str]:
    """The page of measurements."""
    first = next(iter(scored.values()))
    shown = ", ".join(f"{value:g}" for value in learnt.between)
    lines = [
        *head("How well the end of a training is predicted", "benchmarks/plans/run.py", ("flatout", "numpy"), {}),
        f"- {len(first)} trainings, recorded to their end by benchmarks/plans/record.py with low priority on this "
        "machine, while the load average of its 2 cores was 3 to 10: other work ran beside. "
        f"{_lasted(first)}",
        "- Each is cut off after the first part of its steps; its end is predicted as `flatout plan` predicts it, and "
        "compared with the recorded end. Steps an epoch and epochs are known, as a user knows them; a training that "
        "stopped early is scored on the epochs that it made.",
        "- What a recording does not show is learnt from the other trainings; the predicted one is left out. Learnt "
        "from "
        f"all of them: drift {learnt.drift:g}, follows {learnt.follows:g}, between {shown}. "
        "src/flatout/plans/drawing.py has "
        f"{RECORDED.drift:g}, {RECORDED.follows:g}, {', '.join(f'{value:g}' for value in RECORDED.between)}.",
        "- Error: of the expected end, without its sign. Held: ends inside the 90% interval. Width: of the interval, "
        "as a share of the end, median.",
        "",
        "| steps seen | trainings | median error | goal | 90% of errors below | held | goal | width |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(f"{part:.0%}", scores) for part, scores in scored.items()),
        "",
    ]
    seen = [one for one in first if len(one.training.seen.between_s)]
    unseen = [one for one in first if not len(one.training.seen.between_s)]
    part = f"{next(iter(scored)):.0%}"
    lines += [
        f"Of {part}: with the end of an epoch among the steps seen, and without.",
        "",
        "| end of an epoch | trainings | median error | goal | 90% of errors below | held | goal | width |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(name, scores) for name, scores in (("seen", seen), ("not seen", unseen)) if scores),
        "",
        f"Each training, from {part} of its steps, the worst first:",
        "",
        "| training | epochs | steps | seen | ended after | predicted | 90% interval | error | held |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(first, key=lambda score: -abs(score.error)):
        training = one.training
        ended_early = f" of {training.epochs}" if training.made < training.epochs else ""
        lines.append(
            f"| {training.name} | {training.made}{ended_early} | {len(training.whole):,} | "
            f"{'epochs' if len(training.seen.between_s) else 'a part of one'} | {training.true_s:.1f} s | "
            f"{one.expected_s:.1f} s | {one.low_s:.1f} to {one.high_s:.1f} s | {one.error:+.1%} | "
            f"{'yes' if one.held else 'no'} |"
        )
    return lines


def _row(name: str, scores: list[Score]) -> str:
    errors = [abs(one.error) for one in scores]
    middle, held = statistics.median(errors), statistics.fmean(one.held for one in scores)
    width = statistics.median((one.high_s - one.low_s) / one.training.true_s for one in scores)
    least, most = GOAL_HELD
    return (
        f"| {name} | {len(scores)} | {middle:.1%} | at most {GOAL_ERROR:.0%}{_missed(middle <= GOAL_ERROR)} | "
        f"{np.quantile(errors, 0.9):.1%} | {held:.0%} | {least:.0%} to {most:.0%}{_missed(least <= held <= most)} | "
        f"{width:.0%} |"
    )


def _missed(met: bool) -> str:
    return "" if met else ", missed"


def _lasted(scores: list[Score]) -> str:
    lasted = [one.training.true_s for one in scores]
    epochs = [one.training.made for one in scores]
    few = "" if len(scores) >= GOAL_TRAININGS else f" The goal was {GOAL_TRAININGS} trainings: missed."
    return (
        f"They last {min(lasted):.0f} to {max(lasted):.0f} s (median {statistics.median(lasted):.0f} s) and make "
        f"{min(epochs)} to {max(epochs)} epochs.{few}"
    )


if __name__ == "__main__":
    main()
