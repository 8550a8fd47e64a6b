"""The diagnosis benchmark: its truth fits its scripts, and its figures count right and wrong as they should."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.diagnose.explanations import explanations

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "diagnosis"
MODULES = ("scenarios", "tools", "scoring", "page")
SETS = ["scripts", "unseen", *(f"unseen{number}" for number in range(2, 16))]


@pytest.fixture
def parts() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which find each other by being in one folder."""
    both = [str(FOLDER), str(FOLDER.parent / "shared")]
    sys.path[:0] = both
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path[:] = [folder for folder in sys.path if folder not in both]
        for name in (*MODULES, "conditions"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("folder", SETS)
def test_every_constant_and_every_fix_is_found_in_its_script(parts: Any, tmp_path: Path, folder: str) -> None:
    for scenario in parts.scenarios.load(folder):
        texts = set()
        for variant in scenario.variants():
            path = scenario.write(tmp_path / scenario.name.replace("/", "-") / variant, 3, variant)
            ast.parse(path.read_text())
            texts.add(tuple(sorted(file.read_text() for file in path.parent.glob("*.py"))))
        changed = 1 + bool(scenario.fix) + bool(scenario.usual)
        assert len(texts) == changed, scenario.name
        assert scenario.healthy or scenario.fix or scenario.fix_args or scenario.crowd, scenario.name


def test_there_are_as_many_scripts_of_each_kind_as_promised(parts: Any) -> None:
    kinds = [scenario.kind for scenario in parts.scenarios.load()]
    data, model = kinds.count("data"), kinds.count("model")
    assert data + model >= 36 and min(data, model) >= 0.4 * (data + model)
    assert kinds.count("healthy") >= 5 and kinds.count("two faults") >= 4 and kinds.count("usual advice") >= 4


def test_unseen_scripts_are_as_many_as_promised(parts: Any) -> None:
    for folder, count, healthy in (
        ("unseen", 40, 8),
        ("unseen2", 35, 6),
        ("unseen3", 25, 3),
        ("unseen4", 12, 2),
        ("unseen5", 14, 3),
        ("unseen6", 14, 3),
        ("unseen7", 14, 3),
        ("unseen8", 16, 2),
        ("unseen9", 18, 2),
        ("unseen10", 18, 2),
        ("unseen11", 16, 2),
        ("unseen12", 15, 3),
        ("unseen13", 18, 3),
        ("unseen14", 18, 3),
        ("unseen15", 18, 3),
        ("unseen16", 18, 3),
        ("unseen17", 18, 5),
        ("unseen18", 18, 3),
        ("unseen19", 18, 4),
        ("unseen20", 16, 8),
    ):
        kinds = [scenario.kind for scenario in parts.scenarios.load(folder)]
        assert len(kinds) >= count and kinds.count("healthy") >= healthy


def test_the_truth_names_causes_that_exist(parts: Any) -> None:
    known = set(explanations())
    for scenario in [one for folder in SETS for one in parts.scenarios.load(folder)]:
        named = {scenario.cause, scenario.second, *scenario.also} - {None}
        assert named <= known, scenario.name
    for meanings in parts.tools.MEANS.values():
        assert {cause for causes in meanings.values() for cause in causes} <= known


def test_a_seed_always_draws_the_same_numbers_and_another_one_others(parts: Any) -> None:
    scenarios = [scenario for scenario in parts.scenarios.load() if scenario.draw]
    assert all(one.numbers(4) == one.numbers(4) for one in scenarios)
    assert sum(one.numbers(4) != one.numbers(5) for one in scenarios) > 0.8 * len(scenarios)


def results(parts: Any) -> tuple[list[Any], dict[Any, Any]]:
    """One fault found, one missed but third, two faults, one healthy script and a false alarm."""
    make, key, answer = parts.scenarios.Scenario, parts.scoring.Key, parts.tools.Answer
    scenarios = [
        make("right", "data", "cpu_decode", remedy="local_copy", fix={"a": "b"}),
        make("third", "model", "logging"),
        make("both", "two faults", "validation", second="checkpoint"),
        make("sound", "healthy"),
        make("alarm", "healthy"),
    ]
    said = {
        "right": answer(["cpu_decode"], rate_sps=10.0, unaccounted=0.01, confidence=0.9, shares={"cpu_decode": 0.5}),
        "third": answer(["small_batch", "validation", "logging"], rate_sps=1.0, unaccounted=0.05, confidence=0.6),
        "both": answer(["validation", "logging", "no_workers", "checkpoint"], rate_sps=1.0, unaccounted=0.0),
        "sound": answer(["compute_bound"], rate_sps=1.0, unaccounted=0.0),
        "alarm": answer(["no_workers", "compute_bound"], rate_sps=1.0, unaccounted=0.0),
    }
    said["right"].gains = {"local_copy": (1.8, 1.5, 2.5)}
    found = {key(name, 7, "original", "flatout"): one for name, one in said.items()}
    found[key("right", 7, "fixed", "flatout")] = answer(["compute_bound"], rate_sps=20.0)
    found[key("right", 7, "original", "train-doctor")] = answer(["cpu_bound_preprocessing"])
    found[key("third", 7, "original", "train-doctor")] = answer(failure="it measured no steps")
    found[key("sound", 7, "original", "train-doctor")] = answer(["no_torch_compile"])
    return scenarios, found


def test_figures_count_right_wrong_and_nothing_else(parts: Any) -> None:
    scenarios, found = results(parts)
    figures = {what.strip(): value for what, value in parts.scoring.facts(scenarios, found, "flatout")}
    assert figures["planted fault named first"] == "2 of 3 (67%)"
    assert figures["planted fault among the first three"] == "3 of 3 (100%)"
    assert figures["second fault among the first three"] == "0 of 1 (0%)"
    assert figures["false alarms on healthy scripts"] == "1 of 2 (50%)"
    assert figures["unaccounted time"] == "median 0.0%, most 5.0%, 1 over 3%"
    assert figures["1 / (1 - share) against the fix's gain"].startswith("median error 0%")
    assert figures["remedy's prediction against its gain"].startswith("median error 10%")
    assert figures["gain inside the remedy's interval"] == "1 of 1 (100%)"
    rival = dict(parts.scoring.facts(scenarios, found, "train-doctor"))
    assert rival["runs with an answer"] == "2 of 3"
    assert rival["planted fault named first"] == "1 of 1 (100%)"
    assert rival["false alarms on healthy scripts"] == "0 of 1 (0%)"


@pytest.mark.parametrize(("share", "first"), [(0.04, "compute_bound"), (0.4, "logging")])
def test_threads_that_the_benchmark_takes_away_put_nothing_small_before_the_healthy_answer(
    parts: Any, share: float, first: str
) -> None:
    shares = {"too_few_threads": 0.2, "logging": share, "compute_bound": 0.7}
    causes = [{"id": id, "share": part} for id, part in shares.items()]
    left = parts.tools._without("too_few_threads", causes)
    assert left[0]["id"] == first and len(left) == 2


def test_reliability_bins_first_answers_by_their_confidence(parts: Any) -> None:
    assert parts.scoring.reliability(*results(parts)) == [
        ("50% to 70%", "60%", "0 of 1 (0%)"),
        ("90% to 100%", "90%", "1 of 1 (100%)"),
    ]


def test_the_page_shows_misses_and_what_the_fix_gave(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.page, "head", lambda *given: ["# Title", ""])
    page = parts.page.page(*results(parts), 10.0, 1)
    assert "- third seed 7 original flatout: logging -> small_batch, validation, logging" in page
    assert "- both seed 7" in page and "- right seed 7" not in page
    assert "| right | cpu_decode | 1/1 | 1/1 | 2.00x | 2.00x | 1.80x |" in page
    assert "| alarm | healthy | 0/1 no_workers | not asked |" in page
