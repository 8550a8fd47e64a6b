"""``flatout plan``: how much of a training fits into a deadline."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from flatout.commands.options import FIRST_STEP_WITHIN, RUNS_DIR, AsJson, Quiet, RunsDir

if TYPE_CHECKING:
    from flatout.plans.costs import Costs
    from flatout.plans.other_gpu import OtherGpu
    from flatout.plans.prices import Price
    from flatout.record import Run


_SEPARATED = "flatout.separated"


class WithSeparator(TyperCommand):
    """A command that knows whether ``--`` stands before its arguments: what follows it is a program, never a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse them, and keep whether it was there."""
        ctx.meta[_SEPARATED] = "--" in args
        return super().parse_args(ctx, args)


What = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN | LOG | -- COMMAND", help="A run, a log, or the training command as you run it."),
]
Deadline = Annotated[str, typer.Option("--deadline", metavar="TIME", help="From the start of the command: 11m.")]
Epochs = Annotated[int, typer.Option("--epochs", metavar="N", help="Epochs of each fold.")]
Folds = Annotated[int, typer.Option("--folds", metavar="N", help="Folds, one after the other.")]
Reserve = Annotated[
    str | None,
    typer.Option("--reserve", metavar="TIME", help="Of it, kept for the last prediction.", show_default=False),
]
Look = Annotated[str, typer.Option("--look", metavar="TIME", help="With COMMAND: record it for at most this long.")]
StepsPerEpoch = Annotated[
    int | None, typer.Option("--steps-per-epoch", metavar="N", help="Default: as recorded.", show_default=False)
]
After = Annotated[
    Path | None,
    typer.Option("--after", metavar="FILE", help="Plan with the gain proved in it: JSON of flatout fix or try."),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="NAME", help="Predict the same training on this GPU: A10, H100-SXM.", show_default=False
    ),
]
Amount = Annotated[
    str | None, typer.Option("--price", metavar="PRICE", help="1.20/h, or a name in --prices.", show_default=False)
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="TOML: per_hour, date and source of each; --price names one of several.",
        show_default=False,
    ),
]


def plan(
    context: typer.Context,
    deadline: Deadline,
    epochs: Epochs,
    what: What = None,
    folds: Folds = 1,
    reserve: Reserve = None,
    look: Look = "60s",
    steps_per_epoch: StepsPerEpoch = None,
    after: After = None,
    gpu: Gpu = None,
    price: Amount = None,
    prices: Prices = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS_DIR,
    first_step_within: Annotated[str, FIRST_STEP_WITHIN] = "10m",
    quiet: Quiet = False,
) -> None:
    """Plan a training into a deadline: what fits, and when it ends.

    From a recorded run, from a log, or from the command itself, which is recorded for at most --look and then ended.
    It prints the projected end of what you ask for and of less of it, by when how much must be done, and what to cut.

    With --gpu it also predicts a run that was recorded on one GPU for another one.

    Example: flatout plan --deadline 11m --folds 5 --epochs 30 -- python train.py

    Example: flatout plan --deadline 2h --epochs 90 --gpu H100-SXM latest
    """
    from flatout.errors import UsageError
    from flatout.plans.gains import read_gain
    from flatout.plans.gpu_parts import chosen_part
    from flatout.plans.planning import make_plan
    from flatout.plans.scenarios import Limits, Work
    from flatout.report.plan import lines, terminal_width, to_dict
    from flatout.units import parse_duration

    _check_counts({"--epochs": epochs, "--folds": folds, "--steps-per-epoch": steps_per_epoch})
    deadline_s = parse_duration(deadline, option="--deadline")
    reserve_s = parse_duration(reserve, option="--reserve") if reserve is not None else 0.0
    if reserve_s >= deadline_s:
        raise UsageError(f"--reserve {reserve} leaves nothing of --deadline {deadline}: give less")
    hourly = _price(price, prices)
    gain = read_gain(after) if after else None
    if gpu is not None:
        chosen_part(gpu)  # an unknown name is refused before anything is recorded
    separated = bool(context.meta.get(_SEPARATED))
    source, costs, run = _measure(
        what or [], separated, steps_per_epoch, runs_dir, look, first_step_within, quiet=quiet, trace=gpu is not None
    )
    other = _on_other_gpu(run, gpu, source) if gpu is not None else None
    limits = Limits(deadline_s, reserve_s, hourly.per_hour if hourly else None)
    failure = run.ending.failure if run is not None else None
    made = make_plan(source, costs, Work(folds, epochs), limits, price=hourly, gain=gain, other=other, failure=failure)
    typer.echo(
        json.dumps(to_dict(made), indent=2, allow_nan=False) if as_json else "\n".join(lines(made, terminal_width()))
    )
    if failure:
        raise typer.Exit(1)


def _check_counts(counts: dict[str, int | None]) -> None:
    from flatout.errors import UsageError
    from flatout.units import check_count

    for option, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"{option} is {count}, but must be at least 1")
        check_count(count or 1, option=option)


def _price(price: str | None, prices: Path | None) -> Price | None:
    from flatout.plans.prices import parse_price, read_price

    if prices is not None:
        return read_price(prices, price)
    return parse_price(price) if price is not None else None


def _measure(
    what: list[str],
    separated: bool,
    steps_per_epoch: int | None,
    runs_dir: Path,
    look: str,
    first_step_within: str,
    *,
    quiet: bool,
    trace: bool,
) -> tuple[str, Costs, Run | None]:
    """What is planned from, in words, its costs, and its record; None: it is a log.

    Raises:
        UsageError: nothing was given to plan from.
    """
    from flatout.errors import UsageError
    from flatout.plans.costs import measure_costs
    from flatout.plans.from_log import costs_of_log
    from flatout.plans.timeline import timeline_of
    from flatout.record import find_run, load_run

    if not what:
        raise UsageError("give a run, such as latest, a log, or the training command: flatout plan ... -- COMMAND")
    if len(what) > 1 or separated or _is_program(what[0]):
        folder = _record(what, runs_dir, look, first_step_within, quiet=quiet, trace=trace)
    elif Path(what[0]).is_file():
        return f"log {what[0]}", costs_of_log(Path(what[0]), steps_per_epoch), None
    else:
        folder = find_run(what[0], runs_dir)
    run = load_run(folder)
    if not run.info:
        raise UsageError(f"{folder}: {run.problems[0]}, so how the recording ended is not known: record it again")
    return f"run {run.id}", measure_costs(timeline_of(run), steps_per_epoch, source=str(folder)), run


def _on_other_gpu(run: Run | None, gpu: str, source: str) -> OtherGpu:
    """The recorded step on another GPU.

    Raises:
        UsageError: what was given does not hold what that needs.
    """
    from flatout.errors import UsageError
    from flatout.measure.build import build_view
    from flatout.plans.other_gpu import on_other_gpu

    if run is None:
        raise UsageError(f"--gpu {gpu}: {source} does not say what a step consists of: give a run, or -- COMMAND")
    view = build_view(run)
    if view is None:
        raise UsageError(f"--gpu {gpu}: {source} holds no whole step: record for longer")
    return on_other_gpu(view, gpu)


def _is_program(word: str) -> bool:
    return os.access(word, os.X_OK) if Path(word).is_file() else not Path(word).exists() and bool(shutil.which(word))


def _record(command: list[str], runs_dir: Path, look: str, first_step_within: str, *, quiet: bool, trace: bool) -> Path:
    """Record the command for at most ``look`` from its first step; its output goes to standard error.

    What it writes is gone with it: a training that is ended early must not replace checkpoints of a whole one.

    Raises:
        CommandError: no training step was seen.
    """
    from flatout.errors import CommandError
    from flatout.measure.thresholds import LEAST_STEPS
    from flatout.runner import Bounds, record
    from flatout.runner.command import check_command
    from flatout.runner.failure import explain
    from flatout.trials.isolation import held_back
    from flatout.units import parse_duration, parse_seconds

    bounds = Bounds(
        seconds=parse_seconds(look, option="--look"),
        first_step_within_s=parse_duration(first_step_within, option="--first-step-within"),
        least_steps=LEAST_STEPS + 1,
    )
    check_command(command, "flatout plan --deadline 11m --epochs 30")
    with held_back(command, runs_dir) as (words, environment):
        outcome = record(
            words, runs_dir, bounds, quiet=quiet, stdout_to_stderr=True, trace=trace, experiments=False,
            environment=environment, shown=command,
        )  # fmt: skip
    if outcome.ended_with:
        raise typer.Exit(outcome.ended_with)
    if not outcome.live.first_step_ns:
        message, exit_code = explain(outcome)
        shutil.rmtree(outcome.run, ignore_errors=True)  # the record is empty
        raise CommandError(message, exit_code)
    return outcome.run
