"""Comparing trainings: the factor, how sure it is, where the difference lies, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout import cli
from flatout.compare.comparison import Comparison
from flatout.compare.in_turn import turn
from flatout.compare.ratio import Ratio, ratio_of
from flatout.compare.sides import read_side
from flatout.compare.speed import Speed, alike, measure
from flatout.errors import RecordError, UsageError
from flatout.measure.crowding import Contention
from flatout.report.comparison import lines, notes
from flatout.report.html.comparison_data import comparison_data
from tests.record.synthetic import RunBuilder


def recorded(folder: Path, name: str, wait_s: float, steps: int = 60, batch: int = 4, last: int | None = None) -> Path:
    """A run of even steps of 0.1 s and a wait that varies by a tenth; ``last``: samples of each twentieth batch."""
    run = RunBuilder(folder / name)
    main = run.process()
    main.pause(1.0)
    loader = main.loader(batch_size=batch)
    main.iterate(loader)
    vary = np.random.default_rng(3).uniform(0.9, 1.1, steps)
    for number, factor in enumerate(vary, 1):
        samples = last if last and number % 20 == 0 else batch
        main.step(loader, wait_s=wait_s * factor, forward_s=0.04, backward_s=0.06, samples=samples)
    return run.write()


@pytest.fixture
def speeds(tmp_path: Path) -> tuple[Speed, Speed]:
    return measure(recorded(tmp_path, "a", 0.1)), measure(recorded(tmp_path, "b", 0.02))


def test_a_run_counts_its_samples_waits_included(speeds: tuple[Speed, Speed]) -> None:
    a, b = speeds
    assert (a.unit, a.batch) == ("samples/s", 4)
    assert a.rate == pytest.approx(4 / 0.2, rel=0.02) and b.rate == pytest.approx(4 / 0.12, rel=0.02)
    assert 0 < a.error < 0.03


def test_the_rates_of_a_table_agree_with_the_factor_of_all_pairs(speeds: tuple[Speed, Speed]) -> None:
    a, b = speeds
    faster, slower = replace(b, rate=1.25 * a.rate), replace(b, rate=0.8 * a.rate)
    comparison = Comparison([a, a], [faster, slower], ratio_of([a, a], [faster, slower]))
    (row,) = [line for line in lines(comparison) if line.startswith("  samples/s")]
    assert row.split() == ["samples/s", f"{a.rate:,.1f}", f"{a.rate:,.1f}", "1.00x"]
    assert any("the rates are means over them" in note for note in notes(comparison))


def test_two_runs_are_compared_with_an_interval_that_knows_of_other_runs(speeds: tuple[Speed, Speed]) -> None:
    ratio = ratio_of([speeds[0]], [speeds[1]])
    assert ratio.factor == pytest.approx(0.2 / 0.12, rel=0.02) and ratio.resolved and ratio.pairs == 1
    assert ratio.low < ratio.factor / 1.03 and ratio.factor * 1.03 < ratio.high
    same = ratio_of([speeds[0]], [speeds[0]])
    assert same.factor == 1.0 and not same.resolved


@pytest.mark.parametrize(("high", "fails"), [(0.94, True), (0.96, False), (1.2, False)])
def test_a_loss_fails_only_when_the_whole_interval_shows_it(
    speeds: tuple[Speed, Speed], high: float, fails: bool
) -> None:
    comparison = Comparison([speeds[0]], [speeds[1]], Ratio(0.93, 0.90, high, 3), allowed=0.05)
    assert comparison.fails is fails
    assert ("not shown" in "\n".join(lines(comparison))) is not fails
    assert not Comparison([speeds[0]], [speeds[1]], Ratio(0.5, 0.4, 0.6, 3)).fails


def test_the_lines_show_the_factor_and_where_the_difference_lies(speeds: tuple[Speed, Speed]) -> None:
    comparison = Comparison([speeds[0]], [speeds[1]], ratio_of([speeds[0]], [speeds[1]]))
    text = lines(comparison)
    assert max(map(len, text)) <= 80
    assert text[0].startswith("B is faster: 1.67x (")
    (only,) = comparison.accounts()
    assert only[0] == "batch_wait"
    assert only[1] - only[2] == pytest.approx(250 * 0.08, rel=0.05)
    assert any("waiting for batches" in line and "-2" in line for line in text)
    assert [line.strip() for line in text[2:6:2]] == [f"A  {speeds[0].run}", f"B  {speeds[1].run}"]
    rows = comparison_data(comparison)["rows"]
    assert {"batch_wait", "forward", "backward", "unaccounted"} <= {row["id"] for row in rows}
    for side in (0, 1):
        assert sum(row["ab"[side] + "_s"] for row in rows) == pytest.approx(1000 / speeds[side].rate, rel=1e-6)
    back = Comparison([speeds[1]], [speeds[0]], ratio_of([speeds[1]], [speeds[0]]))
    assert lines(back)[0].startswith("B is slower: 0.60x of A (")


def test_the_table_shows_the_pair_whose_factor_is_nearest_to_that_of_all_pairs(speeds: tuple[Speed, Speed]) -> None:
    """A first run of B that was held up makes pairs of 1.1, 3 and 2.9: no mixture of other runs is shown."""
    slow, fast = speeds
    a = [replace(slow, rate=rate) for rate in (100.0, 50.0, 101.0)]
    b = [replace(fast, rate=rate) for rate in (110.0, 150.0, 293.0)]
    ratio = ratio_of(a, b)
    shown = Comparison(a, b, ratio).shown
    assert (shown[0].rate, shown[1].rate) in {(one.rate, other.rate) for one, other in zip(a, b, strict=True)}
    factors = [other.rate / one.rate for one, other in zip(a, b, strict=True)]
    nearest = min(factors, key=lambda one: abs(math.log(one / ratio.factor)))
    assert shown[1].rate / shown[0].rate == pytest.approx(nearest)


def test_other_batch_sizes_are_compared_by_their_samples(tmp_path: Path) -> None:
    small, large = measure(recorded(tmp_path, "a", 0.1)), measure(recorded(tmp_path, "b", 0.1, batch=8))
    comparison = Comparison([small], [large], ratio_of([small], [large]))
    assert comparison.ratio.factor == pytest.approx(2.0, rel=0.02)
    assert any("4 and 8 samples" in note for note in notes(comparison))


def test_a_short_batch_at_the_end_of_a_pass_is_no_other_batch_size(tmp_path: Path) -> None:
    whole, cut = measure(recorded(tmp_path, "a", 0.1)), measure(recorded(tmp_path, "b", 0.1, last=2))
    assert (whole.batch, cut.batch) == (4, 4) and cut.rate < whole.rate
    assert not any("samples" in note for note in notes(Comparison([whole], [cut], ratio_of([whole], [cut]))))


def test_other_numbers_of_threads_are_told(tmp_path: Path) -> None:
    a, b = (measure(recorded(tmp_path, name, 0.1)) for name in "ab")
    one, other = replace(a, threads=2), replace(b, threads=1)
    assert "A computes with 2 threads, B with 1." in notes(Comparison([one], [other], ratio_of([one], [other])))
    assert not any("threads" in note for note in notes(Comparison([one], [one], ratio_of([one], [one]))))


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ((0.1, 1.5), "Other processes used 0.8 cores, 0.1 to 1.5 from run to run, while no core was idle"),
        ((1.2, 1.201), "Other processes used 1.2 cores, while no core was idle"),
        ((0.01, 0.3), "Other processes used up to 0.3 cores in some runs, while no core was idle"),
    ],
)
def test_other_processes_beside_a_run_are_told(
    speeds: tuple[Speed, Speed], used: tuple[float, float], said: str
) -> None:
    ratio = ratio_of([speeds[0]], [speeds[1]])
    beside = [replace(one, contention=Contention(cores, 1.0, 2)) for one, cores in zip(speeds, used, strict=True)]
    assert any(said in note for note in notes(Comparison(beside[:1], beside[1:], ratio)))


def test_other_processes_that_use_little_are_not_told(speeds: tuple[Speed, Speed]) -> None:
    ratio = ratio_of([speeds[0]], [speeds[1]])
    beside = [replace(speeds[0], contention=Contention(0.1, 1.0, 2))]
    assert not any("processes" in note for note in notes(Comparison(beside[:1], beside[:1], ratio)))


def test_what_other_processes_alone_may_have_made_is_no_difference(speeds: tuple[Speed, Speed]) -> None:
    def beside(a: float, b: float, full: float = 1.0, threads: int = 1) -> Ratio:
        one, other = (
            replace(speed, contention=Contention(cores, full, 2), threads=threads)
            for speed, cores in zip(speeds, (a, b), strict=True)
        )
        return ratio_of([one], [other])

    plain = ratio_of([speeds[0]], [speeds[1]])
    assert beside(1.0, 0.0).uneven == pytest.approx(2.0)
    assert beside(1.0, 0.0).low == pytest.approx(plain.low / 2) and beside(1.0, 0.0).high == plain.high
    assert beside(0.0, 1.0).high == pytest.approx(plain.high * 2) and beside(0.0, 1.0).low == plain.low
    assert plain.resolved and not beside(1.0, 0.0).resolved
    assert beside(1.0, 0.0, threads=2).uneven == pytest.approx(4.0)  # each may wait for its core
    for even in (beside(1.0, 1.0), beside(0.2, 0.0), beside(1.0, 0.0, full=0.1)):
        assert even == plain
    both = [replace(speeds[0], contention=Contention(cores, 1.0, 2)) for cores in (1.0, 0.0, 0.0, 1.0)]
    assert ratio_of(both[:2], both[2:]).uneven == pytest.approx(1.0)
    said = "Other processes left the two unequal cores, which alone may account for 2.0x."
    assert said in notes(Comparison([speeds[0]], [speeds[1]], beside(1.0, 0.0)))


def test_a_run_of_few_steps_and_one_without_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="5 are needed"):
        measure(recorded(tmp_path, "short", 0.1, steps=4))
    known = measure(recorded(tmp_path, "a", 0.1))
    unknown = Speed("x", (), 1.0, "steps/s", known.error, None, known.ledger, known.steps_s)
    with pytest.raises(RecordError, match="samples of x are not known"):
        alike(known, unknown)


def test_what_drifts_falls_on_both() -> None:
    assert "".join(side for pair in range(4) for side in turn(pair)) == "abbaabba"


def test_sides_are_runs_or_commands(tmp_path: Path) -> None:
    run = recorded(tmp_path, "a", 0.1)
    assert read_side(str(run), tmp_path) == run
    assert read_side(run.name, run.parent) == run
    assert read_side(f'{sys.executable} train.py --name "two words"', tmp_path) == [
        sys.executable,
        "train.py",
        "--name",
        "two words",
    ]
    for text, message in (
        ("nosuchrun", "neither a recorded run"),
        ("nosuchprogram train.py", "neither on PATH"),
        ('python "train.py', "close its quotes"),
        ("", "an empty A or B"),
    ):
        with pytest.raises(UsageError, match=message):
            read_side(text, tmp_path)


def call(*arguments: str) -> int:
    return cli.main(["compare", *arguments])


def test_a_beginning_of_several_runs_is_no_command(tmp_path: Path) -> None:
    for name in ("begun-a", "begun-b"):
        shutil.copytree(recorded(tmp_path / "others", name, 0.1), tmp_path / name)
    with pytest.raises(RecordError, match=r"2 runs begin with 'begun'.*give the whole id"):
        read_side("begun", tmp_path)


def test_the_command_compares_recorded_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(recorded(tmp_path, "a", 0.1)), str(recorded(tmp_path, "b", 0.2))
    assert call(a, b, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["ratio"]["factor"] == pytest.approx(0.2 / 0.3, rel=0.02)
    assert found["a"]["samples_per_step"] == 4 and found["unit"] == "samples/s" and found["fails"] is False
    assert call(a, b, "--fail-if-slower", "5%") == 1
    assert "is slower by more than the 5.0%" in capsys.readouterr().out
    assert call(b, a, "--fail-if-slower", "5%") == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--fail-if-slower", "lots"], "--fail-if-slower is 'lots'"),
        (["--fail-if-slower", "150%"], "below 100%"),
        (["--seconds", "10"], "bound commands"),
        (["--pairs", "1"], "--pairs"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    run = str(recorded(tmp_path, "a", 0.1))
    assert call(run, run, *more) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_a_run_and_a_command_are_no_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(recorded(tmp_path, "a", 0.1)), f"{sys.executable} train.py") == 2
    assert "two of one kind" in capsys.readouterr().err
