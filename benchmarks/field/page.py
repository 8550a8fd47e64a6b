"""The page of results: one row a program, every miss in words, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence

from conditions import head
from programs import LEFT_OUT, Program
from trying import WATCHED_S, Outcome

WITHIN = 0.05  # of the program's own meter
UNACCOUNTED = 0.03


def judged(program: Program, outcome: Outcome) -> list[str]:
    """Every miss, in words; empty where all is well."""
    if outcome.why:
        return [f"not measured: {outcome.why}"]
    misses = []
    if outcome.steps is None:
        return ["it was not recorded", *outcome.notes]
    if outcome.own_steps is not None and outcome.own_steps != outcome.steps:
        misses.append(f"{outcome.steps} steps were seen where the program says {outcome.own_steps}")
    if outcome.own_step_s and outcome.step_s and abs(outcome.step_s / outcome.own_step_s - 1) > WITHIN:
        misses.append(
            f"a step takes {outcome.step_s * 1e3:.1f} ms where the program says {outcome.own_step_s * 1e3:.1f} ms"
        )
    if not outcome.samples:
        misses.append("samples were not counted")
    if outcome.unaccounted is not None and outcome.unaccounted > UNACCOUNTED:
        misses.append(f"{outcome.unaccounted:.1%} of the time is unaccounted")
    if outcome.same_losses is False:
        misses.append("the losses are not those without flatout")
    if not outcome.planted or outcome.planted[0] not in program.expected:
        named = outcome.planted[0] if outcome.planted else "nothing"
        misses.append(f"planted was {program.plant}; named first: {named} ({outcome.verdict or 'no report'})")
    if outcome.changed:
        misses.append(f"fix changed {', '.join(outcome.changed[:3])}")
    return misses


def page(found: Sequence[tuple[Program, Outcome]], budget_s: float) -> str:
    """Markdown, ending with a newline."""
    measured = [(program, outcome) for program, outcome in found if not outcome.why]
    misses = [(program.name, miss) for program, outcome in found for miss in judged(program, outcome)]
    first = sum(bool(o.planted) and o.planted[0] in p.expected for p, o in measured)
    lines = [
        *head(
            "Trainings that nobody here wrote",
            "benchmarks/field/run.py",
            ("flatout", "torch", "lightning-utilities"),
            {},
        ),
        f"- {len(measured)} programs, unmodified, on data and random weights made by the benchmark. OMP_NUM_THREADS=1.",
        "- Steps and their time: from the program's own output in the same run (a median where it tells each step, "
        f"otherwise a mean). Goal: the same steps, within {WITHIN:.0%}; unaccounted at most {UNACCOUNTED:.0%}.",
        "- Losses: all that the program prints, with and without flatout, as text.",
        f"- Planted through the program's own options or data, watched for {WATCHED_S:g} s.",
        f"- `flatout fix --budget {budget_s:g}s` on the unplanted command: are files of data and program changed?",
        "- The machine was shared with other work: no time is a result, only ratios within one run.",
        "",
        f"Planted fault named first: {first} of {len(measured)}.",
        "",
        "| program | kind | steps (own) | step, flatout's / own | unaccounted | losses | planted | named first | fix |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for program, outcome in measured:
        ratio = (
            f"{outcome.step_s / outcome.own_step_s:.3f}" if outcome.step_s and outcome.own_step_s else "it does not say"
        )
        same = {True: f"{outcome.losses} equal", False: "differ", None: "not compared"}[outcome.same_losses]
        named = outcome.planted[0] if outcome.planted else "nothing"
        right = "" if named in program.expected else " (miss)"
        cells = [
            program.name,
            program.kind,
            f"{outcome.steps} ({'not told' if outcome.own_steps is None else outcome.own_steps})",
            ratio,
            f"{outcome.unaccounted:.1%}" if outcome.unaccounted is not None else "not measured",
            same,
            program.plant,
            f"{named}{right}",
            "not run" if outcome.changed is None else "files unchanged" if not outcome.changed else "files changed",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Misses", "", *(f"- {name}: {miss}" for name, miss in misses)]
    if not misses:
        lines.append("- none")
    lines += ["", "## Notes", ""]
    lines += [f"- {p.name}: {note}" for p, o in measured for note in o.notes]
    lines += ["", "## What was said without a planted fault", ""]
    lines += [f"- {p.name}: {o.healthy_verdict}" for p, o in measured]
    lines += ["", "## How fix ended", ""]
    lines += [f"- {p.name}: {o.fixed}" for p, o in measured if o.changed is not None]
    lines += ["", "## Left out", "", *(f"- {name}: {why}" for name, why in LEFT_OUT.items())]
    return "\n".join(lines).rstrip() + "\n"
