"""Claims about rates and durations: whether iterations, seconds, epochs and samples fit each other."""

from __future__ import annotations

import re

from flatout.logs.claims.verdict import Claim, judged, span, time_span
from flatout.logs.facts import EpochTime, FileFacts, Statement
from flatout.logs.observations import Source
from flatout.logs.quantities import Quantity
from flatout.logs.throughput import steps_of_epoch
from flatout.units import counted

_TOTAL = re.compile(r"(?i)\b(?:in total|total|altogether|overall|all)\b")
_LIMIT = re.compile(r"(?i)\b(?:limit|deadline|budget|within|at most|timeout)\b")
_REACHED = re.compile(r"(?i)\b(?:after|in|took|elapsed|spent)\b")
_CHANGE = re.compile(r"(?i)\bfrom\s*$")
# A duration of a part of the step.
_PART = re.compile(r"(?i)\b(?:data|load\w*|gpu|comput\w*|forward|backward|transfer|optimi[sz]er|wait\w*)\b")
_WISHED = re.compile(r"(?i)\b(?:target|goal|limit|budget|requires?)\b")
NEAR = 5  # lines: a rate further above is of something else
_SMOOTHED = 0.15  # a bar's printed rate is a moving mean: so far from the mean of the whole is usual


def rate_times_time(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """The rate printed for an epoch, times its duration, gives its steps."""
    claims = []
    for one in facts.epochs:
        if one.of != "text" or not (one.its and one.seconds):
            continue
        steps, why = steps_of_epoch(facts, one)
        if steps is None:
            continue
        found = one.its * one.seconds
        words = (f"epoch {one.epoch:.0f}: {one.its:g} it/s for {one.seconds:.0f} s", f"{found:.1f} steps; {why}")
        claim = judged("rate_times_time", (found, found), (steps, steps), words, (one.source,))
        if claim.verdict == "off" and found < steps:
            lacking = f"; {1 - found / steps:.0%} are missing: read before the epoch's end, or a smoothed rate"
            claim = Claim(claim.id, "off", claim.said, claim.found + lacking, claim.sources, claim.off_by)
        claims.append(claim)
    return claims


def duration_of_epochs(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Steps over rate is the time of an epoch, and that times the epochs the whole time."""
    claims = []
    for one in facts.statements:
        rate = _rate_before(facts, one)
        steps = facts.nearest("steps_per_epoch", one.source.line)
        if rate is None or steps is None:
            continue
        (slowest, fastest), source = rate
        epoch = steps.value / fastest, steps.value / slowest
        if source != one.source and _WISHED.search(one.said):
            continue
        base = f"{steps.value:,.0f} steps at {_rate(slowest, fastest)} take {time_span(*epoch)}"
        sources = (one.source, steps.source, source)
        said = _epoch_duration(one)
        if said is not None:
            # "About 7 hours" is rounded to the hour.
            rounding = 0.06 if said.text.lower().startswith(("about", "~", "around", "roughly", "≈")) else 0.03
            words = (f"an epoch takes {time_span(said.low, said.high)}", base)
            claims.append(judged("epoch_duration", (said.low, said.high), epoch, words, sources, rounding))
        whole = _whole(facts, one, said)
        if whole is not None:
            total, epochs = whole
            found = epoch[0] * epochs, epoch[1] * epochs
            words = (
                f"{epochs:.0f} epochs take {time_span(total.low, total.high)}",
                f"{base}, {epochs:.0f} epochs {time_span(*found)}",
            )
            claims.append(judged("total_duration", (total.low, total.high), found, words, sources, 0.03))
    return claims


def _epoch_duration(one: Statement) -> Quantity | None:
    """The duration of an epoch that a line claims; none where it also claims a factor, which another check takes."""
    if one.speedups:
        return None
    if found := one.all("s_epoch"):
        return found[0]
    spoken = re.search(r"(?i)\b(?:one|an|each|per) epoch\b[^,;.]*", one.said)
    if spoken:
        return next((q for q in one.all("s") if spoken.start() <= q.start < spoken.end()), None)
    return None


def _whole(facts: FileFacts, one: Statement, epoch: Quantity | None) -> tuple[Quantity, float] | None:
    """The total time that a line claims, and of how many epochs."""
    times = [q for q in one.all("s") if q is not epoch and q.high > 3600]
    if not times or one.speedups:
        return None
    epochs = next((q for q in one.all("epochs") if q.start < times[-1].start), None)
    if epochs is not None:
        return times[-1], epochs.low
    planned = facts.setting("epochs")
    if planned is not None and _TOTAL.search(one.said) and epoch is not None:
        return times[-1], planned.value
    return None


def _rate_before(facts: FileFacts, one: Statement) -> tuple[tuple[float, float], Source] | None:
    """Steps/s that a statement speaks of: its own, else the last one before it."""
    for other in [one, *reversed([s for s in facts.statements if 0 < one.source.line - s.source.line <= NEAR])]:
        for found in other.quantities:
            if found.what == "its" and found.low > 0 and not _CHANGE.search(other.said[: found.start]):
                return (found.low, found.high), other.source
            whole = other is one or not _PART.search(other.said)
            if found.what == "s_step" and found.low > 0 and whole:
                return (1 / found.high, 1 / found.low), other.source
    return None


def _rate(low: float, high: float) -> str:
    return f"{1 / high:.3g} s/step" if high == low < 0.1 else f"{span(low, high, ' it/s', 2)}"


def rates_across_batch_sizes(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """From one rate in it/s to another, after another batch size: the samples/s are what counts."""
    claims = []
    for one in facts.statements:
        change = next((q for q in one.all("its") if q.low < q.high and _CHANGE.search(one.said[: q.start])), None)
        sizes = [facts.setting("batch_size", phase=phase) for phase in ("before", "after")]
        if change is None or sizes[0] is None or sizes[1] is None or sizes[0].value == sizes[1].value:
            continue
        steps = change.high / change.low
        samples = steps * sizes[1].value / sizes[0].value
        found = (
            f"{steps:.1f}x in it/s is {samples:.1f}x in samples/s, since the batch goes from {sizes[0].value:.0f} "
            f"to {sizes[1].value:.0f}"
        )
        said = next(iter(one.speedups), None)
        sources = (one.source, sizes[1].source)
        if said is None:
            claims.append(Claim("rates_across_batch_sizes", "unknown", f"{change.text}", found, sources))
        else:
            words = (f"{change.text}: {span(said.low, said.high, 'x', 0)}", found)
            claims.append(judged("rates_across_batch_sizes", (said.low, said.high), (samples, samples), words, sources))
    return claims


def elapsed_and_epochs(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Time passed over epochs done is the time of an epoch; what is said of one epoch and of the whole follows it."""
    told = next((found for one in facts.statements if (found := reached(one)) is not None), None)
    if told is None:
        return []
    statement, seconds, done = told
    epoch_s = seconds / done
    base = f"{seconds:.0f} s for {done:.0f} epochs is {epoch_s:.0f} s an epoch"
    claims = []
    epochs, folds = _largest(facts, "epochs"), _largest(facts, "folds")
    for one in facts.statements:
        for said in one.all("s_epoch"):
            words = (f"{said.text}", base)
            claims.append(
                judged(
                    "epoch_duration",
                    (said.low, said.high),
                    (epoch_s, epoch_s),
                    words,
                    (one.source, statement.source),
                    0.1,
                )
            )
        total = next((q for q in reversed(one.all("s")) if q.low > 2 * epoch_s), None)
        if (
            one is not statement
            and total is not None
            and _TOTAL.search(one.said)
            and not _LIMIT.search(one.said)
            and epochs
        ):
            count = epochs * (folds or 1)
            words = (
                f"{total.text} in total",
                f"{base}; {count:.0f} epochs need {time_span(epoch_s * count, epoch_s * count)}",
            )
            claims.append(
                judged(
                    "total_duration",
                    (total.low, total.high),
                    (epoch_s * count,) * 2,
                    words,
                    (one.source, statement.source),
                    0.1,
                )
            )
        claims += _samples_rate(facts, one, statement, epoch_s, folds)
    return claims


def _samples_rate(
    facts: FileFacts, one: Statement, measured: Statement, epoch_s: float, folds: float | None
) -> list[Claim]:
    samples = facts.setting("train_samples")
    if samples is None:
        return []
    least = samples.value * (1 - 1 / folds if folds and folds > 1 else 1) / epoch_s
    most = samples.value / epoch_s
    found = f"{samples.value:,.0f} images in {epoch_s:.0f} s are at most {most:.0f} samples/s"
    if least < most:
        found += f", {least:.0f} if one of {folds:.0f} folds is held out"
    return [
        judged(
            "samples_rate",
            (said.low, said.high),
            (least, most),
            (said.text, found),
            (one.source, measured.source),
            0.05,
        )
        for said in one.all("sps")
    ]


def reached(one: Statement) -> tuple[Statement, float, float] | None:
    """Of "After 667 s: 13 of 30 epochs": the time and the epochs done; both must be single numbers."""
    if not _REACHED.search(one.said) or one.speedups or re.search(r"(?i)\bwould|should|expect", one.said):
        return None
    epochs = next((q for q in one.all("epochs") if q.all is not None and q.low == q.high and q.low > 0), None)
    seconds = next((q for q in one.all("s") if q.low == q.high and q.low > 0), None)
    return (one, seconds.low, epochs.low) if epochs and seconds else None


def _largest(facts: FileFacts, name: str) -> float | None:
    found = [one.value for one in facts.settings.get(name, ())]
    return max(found) if found else None


def bar_counts(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """The last rate of complete bars, times their time, gives their count, as far as a moving mean can."""
    passes = [
        one for one in facts.epochs if one.of == "progress bar" and one.complete and one.its and (one.seconds or 0) >= 5
    ]
    if not passes:
        return []
    off = [one for one in passes if not _near(one)]
    if len(off) <= len(passes) // 3:
        said = f"the rates at the end of {counted(len(passes), 'bar')}"
        return [Claim("bar_counts", "consistent", said, "they fit count and time", (passes[0].source,))]
    worst = max(off, key=lambda one: abs((one.its or 1) * (one.seconds or 1) / (one.steps or 1) - 1))
    mean = (worst.steps or 0) / (worst.seconds or 1)
    found = f"its mean is {mean:.3g} it/s: the printed rate is a moving mean of the end of the bar"
    return [Claim("bar_counts", "unknown", f"{worst.its:.3g} it/s at the end of a bar", found, (worst.source,))]


def _near(one: EpochTime) -> bool:
    return abs((one.its or 0) * (one.seconds or 0) / (one.steps or 1) - 1) <= _SMOOTHED + 1 / (one.seconds or 1)


def trainer_totals(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """A trainer's steps/s times its runtime is the number of steps that it did."""
    at = facts.setting("global_step") or facts.setting("steps")
    bar = next((one.steps for one in facts.epochs if one.complete and one.epoch is None and one.total), None)
    claims = []
    for one in facts.totals:
        its, runtime = one.values.get("its"), one.values.get("runtime_s")
        steps = one.values.get("step") or (at.value if at else bar)
        if not (its and runtime and steps) or its * runtime < 20:
            continue
        rounding = max(0.02, 0.0006 / its, 1.0 / steps)
        words = (f"{its:g} steps/s for {runtime:g} s", f"{its * runtime:.0f} of {steps:.0f} steps")
        claims.append(judged("trainer_totals", (its * runtime,) * 2, (steps, steps), words, (one.source,), rounding))
    return claims
