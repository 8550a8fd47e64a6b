#!/usr/bin/env python3
"""How well steps are predicted for another GPU, on public measurements of whole models.

Each model that was measured on two parts is predicted for one from the other, as ``flatout plan --gpu`` scales kernels.

NeuSight's tables say how long each operator took, as a recorded step does. The share of its peak that a part reaches
is taken from the other families of models: that of the predicted one is left out. timm's tables do not say it: the
division into classes is estimated from operations and activations; every fifth row was used to choose the shares of
two parts, and is left out. Lambda's table says nothing of classes: their mix is fitted to the other parts.

Usage: python benchmarks/other_gpus/run.py --neusight CHECKOUT --timm CHECKOUT --lambda CHECKOUT [--output FILE]

CHECKOUT: clones of the repositories named in neusight.py, timm_tables.py and lambda_tables.py; nothing of them is
kept here.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

import lambda_tables  # noqa: E402
import neusight  # noqa: E402
import timm_tables  # noqa: E402
from checkout import Checkout  # noqa: E402

from flatout.measure.kernel_work import KernelWork  # noqa: E402
from flatout.plans.gpu_parts import GpuPart, chosen_part  # noqa: E402
from flatout.plans.kernel_scaling import Precision, time_factor  # noqa: E402
from flatout.plans.other_gpu import interval_factor  # noqa: E402

CHOSEN_ON = 5  # every so manieth row of timm's tables


@dataclass(frozen=True)
class Score:
    """One model, from one part to another: logarithms of predicted over measured time."""

    now: str
    then: str
    error: float
    by_bandwidth: float
    by_peak: float
    held: bool


def score(work: Sequence[KernelWork], now: GpuPart, then: GpuPart, measured: tuple[float, float]) -> Score:
    """Compare with the time measured there; the classes divide the whole time measured here."""
    here_s = sum(one.seconds for one in work)
    there_s = sum(one.seconds * time_factor(one, now, then, Precision()) for one in work)
    ratio = measured[0] / measured[1]
    error = math.log(ratio * there_s / here_s)
    precision = "fp16" if work[0].dtype == "float16" else "fp32"
    return Score(
        now.name,
        then.name,
        error,
        math.log(ratio * now.bandwidth / then.bandwidth),
        math.log(ratio * now.peaks[precision] / then.peaks[precision]),
        abs(error) <= math.log(interval_factor(now, then)),
    )


def reached(models: Sequence[neusight.Model], part: GpuPart) -> float:
    """Median over models of the share of its peak that a part's products reach in whole models."""
    shares = []
    for model in models:
        products = [one for one in model.work if one.kind == "matrix"]
        least_s = sum(max((one.flops or 0) / part.peaks["fp32"], (one.bytes or 0) / part.bandwidth) for one in products)
        slower = model.seconds / sum(one.seconds for one in model.work)
        shares.append(least_s / (slower * sum(one.seconds for one in products)))
    return statistics.median(shares)


def of_neusight(checkout: Checkout) -> Iterator[Score]:
    """Every model on every ordered pair of parts."""
    by_name: dict[str, list[neusight.Model]] = defaultdict(list)
    by_part: dict[str, list[neusight.Model]] = defaultdict(list)
    for model in neusight.models(checkout):
        by_name[model.name].append(model)
        by_part[model.part].append(model)
    for same in by_name.values():
        parts = {}
        for model in same:
            others = [one for one in by_part[model.part] if one.family != model.family]
            part = chosen_part(model.part)
            parts[model.part] = replace(part, sustained=reached(others, part))
        for here in same:
            for there in same:
                if here.part != there.part:
                    seconds = here.seconds, there.seconds
                    yield score(here.work, parts[here.part], parts[there.part], seconds)


def of_timm(checkout: Checkout) -> Iterator[Score]:
    """Every model on every ordered pair of parts of one version of PyTorch."""
    for tables in timm_tables.TABLES.values():
        listed = {}
        for part, name in tables.items():
            rows = list(timm_tables.rows(checkout, name))
            listed[part] = {row.name: row for place, row in enumerate(rows) if place % CHOSEN_ON}
        for now, rows_here in listed.items():
            for then, rows_there in listed.items():
                for name in (rows_here.keys() & rows_there.keys()) if now != then else ():
                    here, there = rows_here[name], rows_there[name]
                    part = chosen_part(now)
                    yield score(here.work(part), part, chosen_part(then), (here.seconds, there.seconds))


def of_lambda(checkout: Checkout) -> Iterator[Score]:
    """Every network on every ordered pair of parts."""
    times = lambda_tables.seconds(checkout)
    parts = {name: chosen_part(name) for name in times}
    for network in lambda_tables.NETWORKS:
        measured = {name: one[network] for name, one in times.items() if network in one}
        for now, then in itertools.permutations(measured, 2):
            work = lambda_tables.mixed(parts, measured, now, then)
            yield score(work, parts[now], parts[then], (measured[now], measured[then]))


def lines(title: str, source: str, scores: Sequence[Score]) -> list[str]:
    """A section of the page: all pairs together, then each."""
    text = [f"## {title}", "", source, ""]
    text += ["| from | to | models | median error | 90% of errors below | bias | in the 90% interval |"]
    text += ["|---|---|---|---|---|---|---|", _row("all", "", scores)]
    pairs: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for one in scores:
        pairs[one.now, one.then].append(one)
    text += [_row(now, then, pairs[now, then]) for now, then in sorted(pairs)]
    by = [
        f"{statistics.median(_errors([getattr(one, name) for one in scores])):.1%} by {words} alone"
        for name, words in (("by_bandwidth", "the ratio of bandwidths"), ("by_peak", "the ratio of peaks"))
    ]
    return [*text, "", f"Median error of simpler predictions on the same pairs: {' and '.join(by)}.", ""]


def _goal(words: str, scores: Sequence[Score], goal: float) -> str:
    """The goal is what a mix of bandwidth and peak alone reached on this table before."""
    median = statistics.median(_errors([one.error for one in scores]))
    held = sum(one.held for one in scores) / len(scores)
    reached_goal = "reached" if median < goal else "missed"
    return (
        f"- {words} ({len(scores)}): median error {median:.1%}, goal below {goal:.1%}: {reached_goal}; {held:.0%} held."
    )


def _row(now: str, then: str, scores: Sequence[Score]) -> str:
    errors = _errors([one.error for one in scores])
    bias = math.expm1(statistics.median(one.error for one in scores))
    most = statistics.quantiles(errors, n=10)[-1] if len(errors) > 9 else max(errors)
    held = sum(one.held for one in scores) / len(scores)
    return (
        f"| {now} | {then} | {len(scores)} | {statistics.median(errors):.1%} | {most:.1%} | {bias:+.1%} | {held:.0%} |"
    )


def _errors(logarithms: Sequence[float]) -> list[float]:
    return [abs(math.expm1(one)) for one in logarithms]


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neusight", type=Path, required=True)
    parser.add_argument("--timm", type=Path, required=True)
    parser.add_argument("--lambda", type=Path, required=True, dest="training")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    measured, tables = Checkout(given.neusight), Checkout(given.timm)
    parts = sorted({model.part for model in neusight.models(measured)})
    shares = {}
    for name in parts:
        models = [model for model in neusight.models(measured) if model.part == name]
        shares[name] = reached(models, chosen_part(name))
    page = [
        "# How well a step is predicted for another GPU",
        "",
        f"`python benchmarks/other_gpus/run.py`, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "",
        (HERE / "about.md").read_text("utf-8").rstrip(),
        "",
        "Share of its float32 peak that a part's products reach, over all models (gpus.toml holds it): "
        + ", ".join(f"{name} {share:.2f}" for name, share in shares.items()) + ".",
        "",
    ]  # fmt: skip
    page += lines(
        "NeuSight: operators timed one by one", neusight.SOURCE.format(measured.commit()), list(of_neusight(measured))
    )
    page += lines("timm: classes estimated", timm_tables.SOURCE.format(tables.commit()), list(of_timm(tables)))
    training = Checkout(given.training)
    scores = list(of_lambda(training))
    page += lines("Lambda: classes fitted", lambda_tables.SOURCE.format(training.commit()), scores)
    servers = [one for one in scores if all(name.startswith(lambda_tables.DATA_CENTRE) for name in (one.now, one.then))]
    page += [_goal("all pairs", scores, 0.157), _goal("data-centre parts", servers, 0.094)]
    text = "\n".join(page).rstrip() + "\n"
    if given.output:
        given.output.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
