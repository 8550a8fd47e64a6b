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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))
sys.path.insert(0, str(HERE))

import record  # noqa: E402
from conditions import head  # noqa: E402

from flatout.errors import UsageError  # noqa: E402
from flatout.plans.costs import Costs, measure_costs  # noqa: E402
from flatout.plans.drawing import RECORDED, Unmeasured, draw  # noqa: E402
from flatout.plans.timeline import Timeline  # noqa: E402

GOAL_ERROR, GOAL_HELD, GOAL_TRAININGS = 0.05, (0.85, 0.95), 30
MOST_SCALE, BISECTIONS = 64.0, 12
QUIET = 0.25
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
    def quiet(self) -> bool:
        """It hardly waited for a core."""
        return self.queued is not None and self.queued < QUIET

    @property
    def waited(self) -> str:
        """Share of its time that it waited for a core, in words."""
        return "not measured" if self.queued is None else f"{self.queued:.0%}"

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
    parser.add_argument("--trainings", type=Path, default=record.TRAININGS)
    parser.add_argument("--output", type=Path, help="a Markdown page")
    options = parser.parse_args()
    scored = {part: [*score(load(options.trainings, part))] for part in options.parts}
    trainings = load(options.trainings, options.parts[0])
    lines = page(scored, learn(trainings, needed_scales(trainings)))
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
        whole, kept = record.unpacked(found, name)
        steps = int(np.bincount(whole.epoch)[0])
        cut = whole.until(float(whole.end_s[max(math.ceil(part * len(whole)), 6) - 1]))
        try:
            seen = measure_costs(cut, steps)
        except UsageError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        trainings.append(Training(name, whole, int(kept["epochs"] or 0), kept["queued"], seen))
    return trainings


def learn(trainings: list[Training], scales: dict[str, float]) -> Unmeasured:
    """What these trainings had in the parts that a recording of their beginning does not show.

    The drift is as large as 90% of the quiet ones need, so that their ends lie in their intervals (split conformal
    prediction: Lei et al. 2018).
    """
    trainings = [one for one in trainings if one.quiet] or trainings
    rank = min(math.ceil(0.9 * (len(trainings) + 1)), len(trainings))
    scale = sorted(scales[one.name] for one in trainings)[rank - 1]
    return replace(_drift(scale), between=_between(trainings))


def needed_scales(trainings: list[Training]) -> dict[str, float]:
    """By name, the least drift with which a training's end lies in its own interval."""
    scales = {}
    for one in trainings:
        between = _between([other for other in trainings if other is not one])
        low, high = 0.0, MOST_SCALE
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if _score(one, replace(_drift(middle), between=between)).held:
                high = middle
            else:
                low = middle
        scales[one.name] = high
    return scales


def score(trainings: list[Training]) -> list[Score]:
    """Predict each training with what was learnt from the others."""
    scales = needed_scales(trainings)
    return [_score(one, learn([other for other in trainings if other is not one], scales)) for one in trainings]


def _score(one: Training, unmeasured: Unmeasured) -> Score:
    ends_s = draw(one.seen, unmeasured).end_s(1, one.made)
    low_s, expected_s, high_s = (float(end_s) for end_s in np.quantile(ends_s, (0.05, 0.5, 0.95)))
    return Score(one, expected_s, low_s, high_s)


def _drift(scale: float) -> Unmeasured:
    """A constant, and a part of the scatter: their ratio was chosen by hand, the scale is learnt."""
    return Unmeasured(float(f"{0.02 * scale:.2g}"), float(f"{0.1 * scale:.2g}"), (0.0,))


def _between(trainings: list[Training]) -> tuple[float, ...]:
    """Quantiles of the time beside the steps, as a share of that of the steps."""
    costs = [measure_costs(one.whole) for one in trainings]
    shares = [float(one.between_s.mean()) / (one.steps * one.step_s) for one in costs if len(one.between_s)]
    return tuple(float(f"{value:.2g}") for value in np.quantile(shares, np.linspace(0.0, 1.0, SHARES)))


def page(scored: dict[float, list[Score]], learnt: Unmeasured) -> list[str]:
    """The page of measurements."""
    first = next(iter(scored.values()))
    shown = ", ".join(f"{value:g}" for value in learnt.between)
    lines = [
        *head("How well the end of a training is predicted", "benchmarks/plans/run.py", ("flatout", "numpy"), {}),
        f"- {_recorded(first)} by benchmarks/plans/record.py on this machine, which was quiet but for tests of a few "
        "seconds.",
        "- Before, on 2026-11-23, 42 recordings were made while other work took up to both cores: 15.3% median error "
        "from 10% of the steps, 76% held; of the 16 that waited for a core for less than "
        "25% of their time, 4.1% and 94%.",
        "- own_...: benchmarks/plans/several_epochs.py and by_trainer.py, some recorded twice (again). run_...: "
        "recorded before, for other reasons. The others are scripts of benchmarks/diagnosis; those whose epochs lasted "
        "so long that fewer than four fitted into a recording were left out.",
        f"- Quiet: recordings of trainings that waited for a core for less than {QUIET:.0%} of their time. In the "
        "others the rest of the training met another load than its first tenth, which no plan can know; nothing is "
        "learnt from them. "
        f"{sum(one.training.seen.queued is None for one in first)} recordings do not say how long their beginning "
        "waited, so that their intervals are not widened by it, as those of `flatout plan` are.",
        "- The end is that of the command for own_... and finished runs, and the beginning of the last, "
        "incomplete epoch for the others.",
        "- Each is cut off after the first part of its steps; its end is predicted as `flatout plan` predicts it, and "
        "compared with the recorded end. Steps an epoch and epochs are known, as a user knows them; a training that "
        "stopped early is scored on the epochs that it made.",
        "- What a recording does not show is learnt from the other quiet trainings; the predicted one is left out. "
        "Learnt from "
        f"all of them: drift {learnt.drift:g}, follows {learnt.follows:g}, between {shown}. "
        "src/flatout/plans/drawing.py has "
        f"{RECORDED.drift:g}, {RECORDED.follows:g}, {', '.join(f'{value:g}' for value in RECORDED.between)}.",
        "- How the figures came about: the split into quiet and not quiet was made after results had been seen, first "
        "at 10%, then at 25%; three ways of learning the drift were tried. Each prediction leaves its own training "
        "out, but none of these trainings is unseen. 18 of the 30 were written for this page; long epochs are rare.",
        "- Error: of the expected end, without its sign. Held: ends inside the 90% interval. Width: of the interval, "
        "as a share of the end, median.",
        "",
        "| steps seen | recordings | median error | goal | 90% of errors below | held | goal | width |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(f"{part:.0%}", scores) for part, scores in scored.items()),
        "",
    ]
    part = f"{next(iter(scored)):.0%}"
    groups = {
        "quiet": [one for one in first if one.training.quiet],
        "not quiet": [one for one in first if not one.training.quiet],
        "the end of an epoch was seen": [one for one in first if len(one.training.seen.between_s)],
        "no end of an epoch was seen": [one for one in first if not len(one.training.seen.between_s)],
        "quiet, and the end of an epoch was seen": [
            one for one in first if one.training.quiet and len(one.training.seen.between_s)
        ],
    }
    lines += [
        f"From {part} of the steps, by what they were like:",
        "",
        "| recordings | number | median error | goal | 90% of errors below | held | goal | width |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(name, scores) for name, scores in groups.items() if scores),
        "",
        f"Each recording, from {part} of its steps, the worst first:",
        "",
        "| training | epochs | steps | seen | waited for a core | ended after | predicted | 90% interval | error | "
        "held |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(first, key=lambda score: -abs(score.error)):
        training = one.training
        ended_early = f" of {training.epochs}" if training.made < training.epochs else ""
        cells = (
            training.name,
            f"{training.made}{ended_early}",
            f"{len(training.whole):,}",
            "epochs" if len(training.seen.between_s) else "a part of one",
            training.waited,
            f"{training.true_s:.1f} s",
            f"{one.expected_s:.1f} s",
            f"{one.low_s:.1f} to {one.high_s:.1f} s",
            f"{one.error:+.1%}",
            "yes" if one.held else "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
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


def _recorded(scores: list[Score]) -> str:
    lasted = [one.training.true_s for one in scores]
    epochs = [one.training.made for one in scores]
    trainings = len({one.training.name.removesuffix("_again") for one in scores})
    few = "" if trainings >= GOAL_TRAININGS else f" (the goal was {GOAL_TRAININGS})"
    return (
        f"{len(scores)} recordings of {trainings} trainings{few}, of {min(lasted):.0f} to {max(lasted):.0f} s (median "
        f"{statistics.median(lasted):.0f} s) and {min(epochs)} to {max(epochs)} epochs each,"
    )


if __name__ == "__main__":
    main()
