"""The step with its input there, twice the batch, and the loader alone, from hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.build import build_view
from flatout.measure.last_steps import LastSteps, read_last_steps
from flatout.record import load_run
from tests.record.synthetic import RunBuilder, ns


def read(folder: Path, **last_steps: Any) -> LastSteps:
    run = RunBuilder(folder)
    run.process(last_steps={"kept": 8, "samples": 128, "idle": True, "skipped": {}, **last_steps})
    return read_last_steps(load_run(run.write()).processes[0])


def blocks(**times_s: list[float]) -> list[list[Any]]:
    """Blocks of 10 steps: replayed ones, then single and doubled ones in turn."""
    found = [["replayed", 10, ns(10 * one)] for one in times_s.get("replayed", [])]
    single, doubled = times_s.get("single", []), times_s.get("doubled", [])
    for place, one in enumerate(single):
        found.append(["single", 10, ns(10 * one)])
        found += [["doubled", 10, ns(10 * doubled[place])]] if place < len(doubled) else []
    return found


def with_passes(folder: Path, **doubled_input: Any) -> LastSteps:
    """A training without a DataLoader, of whose steps forward and backward pass take 8 of 10 ms."""
    run = RunBuilder(folder)
    main = run.process(doubled_input=doubled_input)
    for _ in range(40):
        main.step(forward_s=0.004, backward_s=0.004, optimizer_s=0.002)
    view = build_view(load_run(run.write()))
    assert view is not None
    return view.last_steps


def test_what_twice_the_input_does_not_lengthen_is_fixed_and_so_is_the_rest_of_the_step(tmp_path: Path) -> None:
    found = with_passes(tmp_path, samples=1, single_ns=[ns(0.008)] * 7, doubled_ns=[ns(0.010)] * 5 + [ns(0.012)] * 2)
    assert found.doubled is not None and found.doubled.passes
    # A quarter of the passes grows, which are four fifths of the step; at the most half of them.
    assert (found.doubled.fixed, found.doubled.fixed_low) == pytest.approx((0.8, 0.6), abs=0.02)
    assert found.doubled.samples == 1 and found.doubled.single_s == pytest.approx(0.010, rel=0.02)


@pytest.mark.parametrize(
    ("recorded", "because"),
    [
        ({"skipped": "hooks on the model would see its passes"}, "hooks on the model would see its passes"),
        ({"samples": 4, "single_ns": [1], "doubled_ns": [2]}, "the passes of the model take too long"),
        (
            {"samples": 60, "single_ns": [ns(0.003)] * 7, "doubled_ns": [ns(0.003)] * 7},
            "the passes that were timed take 3.0 ms, those of a step 8.0 ms",
        ),
    ],
)
def test_an_input_that_was_not_doubled_says_why(tmp_path: Path, recorded: dict[str, Any], because: str) -> None:
    found = with_passes(tmp_path, **recorded)
    assert found.doubled is None and found.not_doubled == because


def test_the_ceiling_is_the_median_of_the_blocks_with_their_range(tmp_path: Path) -> None:
    found = read(tmp_path, blocks=blocks(replayed=[0.031, 0.030, 0.033, 0.031, 0.032]))
    assert found.ceiling is not None and found.doubled is None
    assert (found.ceiling.step_s, found.ceiling.low_s, found.ceiling.high_s) == pytest.approx((0.031, 0.030, 0.033))
    assert (found.ceiling.blocks, found.ceiling.steps) == (5, 10)


def test_steps_beside_busy_workers_are_no_ceiling(tmp_path: Path) -> None:
    found = read(tmp_path, idle=False, blocks=blocks(replayed=[0.031, 0.030, 0.033]))
    assert found.replayed is not None and found.ceiling is None


def test_two_blocks_are_no_measurement(tmp_path: Path) -> None:
    assert read(tmp_path, blocks=blocks(replayed=[0.031, 0.030])).replayed is None


def test_what_twice_the_batch_does_not_lengthen_is_fixed(tmp_path: Path) -> None:
    times = blocks(replayed=[0.010] * 5, single=[0.010] * 6, doubled=[0.012, 0.0125, 0.0125, 0.013, 0.0125])
    found = read(tmp_path, blocks=times).doubled
    assert found is not None
    assert (found.fixed, found.fixed_low, found.fixed_high) == pytest.approx((0.75, 0.70, 0.80))
    assert (found.samples, found.single_s, found.doubled_s) == pytest.approx((16, 0.010, 0.0125))
    assert found.bytes_per_sample is None


def test_what_trimmed_batches_save_is_a_share_of_the_step_that_is_not_watched(tmp_path: Path) -> None:
    found = [["replayed", 10, ns(0.1)]] * 5
    for step_s in (0.005, 0.006, 0.004, 0.005):  # of 10 ms, to which watching adds 2
        found += [["single", 10, ns(0.12)], ["trimmed", 10, ns(10 * (step_s + 0.002))]]
    trimmed = read(tmp_path, blocks=[*found, ["single", 10, ns(0.12)]]).trimmed
    assert trimmed is not None
    assert (trimmed.saved, trimmed.saved_low, trimmed.saved_high) == pytest.approx((0.5, 0.4, 0.6))
    assert read(tmp_path / "two", blocks=found[:9]).trimmed is None  # two blocks are no measurement


def test_what_watching_adds_to_both_is_no_fixed_cost(tmp_path: Path) -> None:
    # 10 ms, of which 5 grow with the batch; watching adds 2 ms to single and doubled steps alike.
    times = blocks(replayed=[0.010] * 5, single=[0.012] * 6, doubled=[0.017] * 5)
    found = read(tmp_path, blocks=times).doubled
    assert found is not None and found.fixed == pytest.approx(0.5)


def test_a_drift_of_the_machine_does_not_count(tmp_path: Path) -> None:
    single = [0.010 + 0.001 * place for place in range(6)]
    doubled = [2 * (0.0105 + 0.001 * place) for place in range(5)]
    found = read(tmp_path, blocks=blocks(replayed=[0.010] * 5, single=single, doubled=doubled)).doubled
    assert found is not None and found.fixed == 0.0


def test_the_memory_of_a_sample_is_the_slope_of_the_peaks(tmp_path: Path) -> None:
    times = blocks(replayed=[0.010] * 5, single=[0.010] * 6, doubled=[0.020] * 5)
    found = read(tmp_path, blocks=times, peak_bytes={"replayed": 500, "single": 1000, "doubled": 2600}).doubled
    assert found is not None and found.bytes_per_sample == pytest.approx(100)


def test_the_loader_alone_has_a_rate_of_new_and_of_repeated_batches(tmp_path: Path) -> None:
    found = read(tmp_path, loader=[10, ns(0.5)], again=[30, ns(0.5)])
    assert (found.loader_bps, found.again_bps) == pytest.approx((20, 60))


def test_a_record_without_any_says_why(tmp_path: Path) -> None:
    assert read(tmp_path, skipped={"replayed": "a step takes 4 s"}).not_doubled == "a step takes 4 s"
    assert LastSteps().not_doubled == "no steps were measured after the window"


def test_damaged_blocks_are_left_out_with_the_rest_of_the_list(tmp_path: Path) -> None:
    found = read(tmp_path, blocks=[["replayed", 0, 1], ["replayed", 10]], loader=[5, 0])
    assert found.replayed is None and found.loader_bps is None
