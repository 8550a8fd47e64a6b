"""The page of results: figures of each tool, then every script, every miss, and the advice that did not help."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from conditions import head
from scenarios import FIXED, ORIGINAL, TUNED, USUAL, Scenario
from scoring import Gain, Key, Results, facts, gains, judge, misses, reliability
from tools import FLATOUT, OF_BENCHMARK, TRACEML, TRAIN_DOCTOR, VERSIONS

GOALS = "at least 90% first, at least 98% among the first three, no false alarm, unaccounted time under 3%"

_ONE_SENTENCE = "who had read one sentence on each fault, and nothing of flatout, wrote them."
_CHOSE = "Two further people, who had read nothing of flatout, wrote them, and chose"
WRITTEN = {
    TUNED: "Rules were tuned with other seeds.",
    "unseen": f"People {_ONE_SENTENCE}",
    "unseen2": f"Other people, {_ONE_SENTENCE}",
    "unseen3": f"Two other people, {_ONE_SENTENCE}",
    "unseen4": f"One more person, {_ONE_SENTENCE}",
    "unseen5": f"A further person, {_ONE_SENTENCE}",
    "unseen6": f"One more person, {_ONE_SENTENCE}",
    "unseen7": f"Two further people, {_ONE_SENTENCE}",
    "unseen8": f"Two further people, {_ONE_SENTENCE}",
    "unseen9": f"{_CHOSE} the faults themselves.",
    "unseen10": f"{_CHOSE} faults they had seen reported.",
    "unseen11": f"{_CHOSE} faults they had seen reported.",
    "unseen12": "Three further people, as those of the eleventh.",
    "unseen13": "Three further people, who planted nothing.",
    "unseen14": "Three further people, who took faults from pull requests and issues that repaired them.",
    "unseen20": "Two further people: one planted mistakes for variety, one none; both measured the one best change.",
    "unseen19": "Three further people: competitions, robots, tutorials; then they looked for the one best change.",
    "unseen18": "Three further people: papers, companies, other sciences; then they looked for the one best change.",
    "unseen17": "Three further people, who wrote on frameworks and then looked for the one change that gives most.",
    "unseen16": "Three further people, who wrote on frameworks and then looked for the one change that gives most.",
    "unseen15": "Three further people, who wrote for clarity and then looked for the one change that gives most.",
}


def page(scenarios: list[Scenario], results: Results, seconds: float, threads: int) -> str:
    """Markdown, ending with a newline."""
    tools = [tool for tool in (FLATOUT, TRAIN_DOCTOR, TRACEML) if any(key.tool == tool for key in results)]
    seeds = sorted({key.seed for key in results})
    compared = {tool: VERSIONS[tool] for tool in tools if tool in VERSIONS}
    with_threads = "on all cores"
    if threads:
        with_threads = f"with OMP_NUM_THREADS={threads} (so `{OF_BENCHMARK}` is the benchmark's fault, and not counted)"
    packages = ("flatout", "torch", "torchvision", "pytorch-lightning", "transformers")
    lines = [
        *head("How often the diagnosis is right", "benchmarks/diagnosis/run.py", packages, compared),
        f"- {len(scenarios)} scripts, seeds {', '.join(map(str, seeds))}: a seed draws the numbers in each. "
        f"{WRITTEN[scenarios[0].folder]}",
        f"- Each tool watches {seconds:g} s of training of the unmodified script, {with_threads}. Rivals are "
        "asked with the first seed. A fix is applied as a person would; the rates of both scripts are measured.",
        f"- {TRAIN_DOCTOR}: `profile --seconds {seconds:g}`; a verdict counts as right where a cause that it can mean "
        'was planted (`tools.py`); advice without a measured loss (as compile) counts as "nothing wrong".',
        f"- {TRACEML}: `traceml run` on the scripts of Lightning and transformers: it sees the steps of a plain loop "
        "only with code; INPUT_BOUND counts as right for every fault of the data, "
        "RESIDUAL_HEAVY for logging, checkpoints, validation and other code.",
        f"- Goals of flatout: {GOALS}.",
        "",
        *_figures(scenarios, results, tools),
        "## Misses of flatout",
        "",
        *(f"- {line}" for line in misses(scenarios, results)),
        "",
        *_reliability(scenarios, results),
        *_scripts(scenarios, results, tools),
        *_advice(scenarios, results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _figures(scenarios: list[Scenario], results: Results, tools: list[str]) -> list[str]:
    of_tool = {tool: dict(facts(scenarios, results, tool)) for tool in tools}
    rows = [[what.strip(), *(of_tool[tool].get(what, "") for tool in tools)] for what in of_tool[FLATOUT]]
    return ["## Figures", "", *_table(["", *tools], rows)]


def _reliability(scenarios: list[Scenario], results: Results) -> list[str]:
    """How often answers of each confidence are right."""
    return ["## Confidence", "", *_table(["first cause stated with", "mean", "right"], reliability(scenarios, results))]


def _scripts(scenarios: list[Scenario], results: Results, tools: list[str]) -> list[str]:
    """One row a script: how often each tool was right, and what the fix gave beside what was predicted."""
    right: dict[tuple[str, str], list[bool]] = {}
    for tool in tools:
        for one in judge(scenarios, results, tool):
            right.setdefault((one.scenario.name, tool), []).append(one.first)
    fixed: dict[str, list[Gain]] = {}
    for gain in gains(scenarios, results, FIXED):
        fixed.setdefault(gain.scenario.name, []).append(gain)
    rows = []
    for scenario in scenarios:
        cells = []
        for tool in tools:
            found = right.get((scenario.name, tool))
            said = results.get(Key(scenario.name, min(key.seed for key in results), ORIGINAL, tool))
            if said is None and not found:
                cells.append("not asked")
                continue
            first = said.verdicts[0] if said and said.verdicts else "no answer"
            cells.append(
                "no answer" if not found else f"{sum(found)}/{len(found)}" + ("" if all(found) else f" {first}")
            )
        found = fixed.get(scenario.name, [])
        factors = [_median(getattr(gain, name) for gain in found) for name in ("measured", "removed", "predicted")]
        rows.append([scenario.name, scenario.cause or "healthy", *cells, *factors])
    columns = [
        "script",
        "planted",
        *(f"{tool} right" for tool in tools),
        "fix gives",
        "1 / (1 - share)",
        "remedy predicted",
    ]
    return ["## Every script", "", *_table(columns, rows)]


def _median(factors: Iterable[float | None]) -> str:
    known = [factor for factor in factors if factor]
    return f"{statistics.median(known):.2f}x" if known else ""


def _advice(scenarios: list[Scenario], results: Results) -> list[str]:
    rows = [
        [gain.scenario.name, str(gain.seed), f"`{next(iter(gain.scenario.usual.values()))}`", f"{gain.measured:.2f}x"]
        for gain in gains(scenarios, results, USUAL)
    ]
    return ["## The usual advice, applied", "", *_table(["script", "seed", "advice", "gives"], rows)] if rows else []
