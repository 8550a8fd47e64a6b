"""Claims about counts: whether the rates that bars and trainers print fit what they counted."""

from __future__ import annotations

from flatout.logs.claims.verdict import Claim, judged
from flatout.logs.facts import EpochTime, FileFacts
from flatout.units import counted, short

_SMOOTHED = 0.15  # a bar's printed rate is a moving mean: so far from the mean of the whole is usual


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
    found = f"its mean is {short(mean)} it/s: the printed rate is a moving mean of the end of the bar"
    return [
        Claim("bar_counts", "unknown", f"{short(worst.its or 0.0)} it/s at the end of a bar", found, (worst.source,))
    ]


def _near(one: EpochTime) -> bool:
    return abs((one.its or 0) * (one.seconds or 0) / (one.steps or 1) - 1) <= _SMOOTHED + 1 / (one.seconds or 1)


def trainer_totals(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """A trainer's steps/s times its runtime is the number of steps that it did."""
    at = facts.setting("global_step") or facts.setting("steps")
    bar = next((one.done for one in facts.epochs if one.complete and one.epoch is None and one.total), None)
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
