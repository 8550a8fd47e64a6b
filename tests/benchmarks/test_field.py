"""The field benchmark: programs' own meters are read right, and every miss is told."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.diagnose.explanations import explanations

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "field"
MODULES = ("material", "programs", "trying", "page")


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


def named(parts: SimpleNamespace, name: str) -> Any:
    return next(program for program in parts.programs.PROGRAMS if program.name == name)


def test_there_are_at_least_twelve_programs_whose_faults_are_known_causes(parts: SimpleNamespace) -> None:
    programs = parts.programs.PROGRAMS
    assert len({program.name for program in programs}) == len(programs) >= 12
    assert {cause for program in programs for cause in program.expected} <= set(explanations())


@pytest.mark.parametrize(
    ("name", "text", "steps", "step_s", "losses"),
    [
        (
            "nanoGPT",
            "".join(
                f"iter {n}: loss 4.{n}000, time {ms}ms, mfu -100.00%\n" for n, ms in enumerate((90.0, 10.0, 12.0, 14.0))
            ),
            4,
            0.012,
            4,
        ),
        (
            "examples/word_language_model",
            "| epoch   1 |    10/  262 batches | lr 20.00 | ms/batch 11.37 | loss  5.79 | ppl   328.64\n"
            "| epoch   1 |    20/  262 batches | lr 20.00 | ms/batch  4.98 | loss  5.26 | ppl   193.25\n",
            263,
            0.00498,
            2,
        ),
        (
            "timm train.py",
            "".join(f"Train: 0 [{n}/3]  Loss: 0.6 (0.8)  Time: 0.2{n}s,  33.9/s (0.1s, 44/s)\n" for n in range(3)),
            3,
            0.215,
            3,
        ),
        ("fastai", "steps 60\nloss 0.5\nloss 0.4\n", 60, None, 2),
    ],
)
def test_what_a_program_prints_is_read(
    parts: SimpleNamespace, name: str, text: str, steps: int, step_s: float | None, losses: int
) -> None:
    meter = named(parts, name).read(text)
    assert meter.steps == steps
    assert meter.step_s == (None if step_s is None else pytest.approx(step_s))
    assert len(meter.losses) == losses


def good(parts: SimpleNamespace) -> Any:
    return parts.trying.Outcome(
        "nanoGPT", unaccounted=0.001, steps=80, own_steps=80, step_s=0.0102, own_step_s=0.01, losses=80,
        same_losses=True, samples=640, planted=["own_input"], changed=[],
    )  # fmt: skip


def test_a_program_that_is_measured_right_has_no_miss(parts: SimpleNamespace) -> None:
    assert parts.page.judged(named(parts, "nanoGPT"), good(parts)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"own_steps": 81}, "80 steps were seen where the program says 81"),
        ({"own_step_s": 0.02}, "where the program says 20.0 ms"),
        ({"unaccounted": 0.04}, "4.0% of the time is unaccounted"),
        ({"same_losses": False}, "losses"),
        ({"planted": ["compute_bound"]}, "named first: compute_bound"),
        ({"planted": []}, "named first: nothing"),
        ({"changed": ["train.py"]}, "fix changed train.py"),
        ({"steps": None}, "not recorded"),
        ({"samples": 0}, "samples were not counted"),
        ({"why": "no folder"}, "not measured: no folder"),
    ],
)
def test_every_kind_of_miss_is_told(parts: SimpleNamespace, change: dict[str, Any], said: str) -> None:
    outcome = good(parts)
    for name, value in change.items():
        setattr(outcome, name, value)
    assert any(said in miss for miss in parts.page.judged(named(parts, "nanoGPT"), outcome))


def test_a_changed_file_shows_in_the_fingerprint(parts: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = parts.material.fingerprint(tmp_path)
    assert parts.material.fingerprint(tmp_path) == before
    (tmp_path / "a").write_text("12")
    assert parts.material.fingerprint(tmp_path) != before
